"""How likely the tokens of captured decodes were: one more launch behind the graph, on the logits it has left.

It needs no graph of its own, waits for nothing, and leaves what it finds in pinned memory, as steps do with their
tokens; so steps of sequences that want it are begun ahead like others. Knows no graphs.
"""

from dataclasses import dataclass

import torch

from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.ops.sampling.kernels import MAX_LIKELY
from pagedchat.ops.sampling.top_logprobs import LookUp, TopLogprobs
from pagedchat.runtime.graphs.capture import Replayable
from pagedchat.runtime.graphs.decode.ahead import Asked, RunningStep
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, StateBuffers
from pagedchat.runtime.step.logprobs import NOTHING, ToldStep, asked_of, read
from pagedchat.runtime.step.upload import int32, upload


def keeps_logits(step: Replayable) -> bool:
    """Whether it leaves any; one that was never run and is not captured either does."""
    return step.logits.dim() < 2 or step.logits.shape[1] > 0


@dataclass(slots=True)
class _Memory:
    """What the launches of one bucket read and write."""

    chosen: torch.Tensor
    """`[num_seqs]`, on the device."""
    slots: list[TopLogprobs]
    """In pinned memory, one for each of the last steps."""


class ToldSteps:
    """Looks up the tokens of steps.

    Args:
        buffers: the steps' memory.
        max_num_seqs: rows of a step, at most.
        device: where they run.
    """

    def __init__(self, buffers: StateBuffers, max_num_seqs: int, device: torch.device) -> None:
        self._buffers = buffers
        self._max_num_seqs = max_num_seqs
        self._device = device
        self._found: TopLogprobs | None = None
        """Of all steps, made for the first one."""
        self._memory: dict[object, _Memory] = {}

    def ask(self, running: RunningStep) -> None:
        """Note what is asked of a batch that is new; all steps that follow it ask the same."""
        asked = asked_of(running.sequences)
        if asked:
            counts = [NOTHING] * running.bucket.num_seqs
            for row, count in zip(running.rows, asked, strict=True):
                counts[row] = count
            [there] = upload([int32(counts)], self._device)
            running.asked = Asked(there, asked[0] if asked.count(asked[0]) == len(asked) else None)

    def queue(self, running: RunningStep, asked: Asked, logits: torch.Tensor) -> None:
        """Queue looking up the tokens of a step that is queued.

        Args:
            running: the step.
            asked: what is asked of its rows.
            logits: `[num_seqs, vocab_size]`, that it leaves.
        """
        slot = running.number % HISTORY_LEN
        look_up = asked.look_ups.get(slot)
        if look_up is None or not look_up.reads(logits):
            look_up = asked.look_ups[slot] = self._made(running, asked, logits)
        look_up.launch()

    @torch.inference_mode()
    def _made(self, running: RunningStep, asked: Asked, logits: torch.Tensor) -> LookUp:
        return LookUp(logits, self._memory_of(running).chosen, asked.counts, self._found_by(running))

    def read(self, running: RunningStep) -> list[list[TokenLogprobs]]:
        """What was found for each sequence of a step that is done."""
        asked = [NOTHING if each.logprobs is None else each.logprobs for each in running.params]
        return read(self._found_by(running), running.rows, asked)

    def read_later(self, running: RunningStep) -> ToldStep | None:
        """The same, to be read when somebody asks for it; None where not all of them want as much."""
        count = None if running.asked is None else running.asked.of_each
        return None if count is None or count < 0 else ToldStep(self._found_by(running), running.rows, count)

    def _found_by(self, running: RunningStep) -> TopLogprobs:
        return self._memory_of(running).slots[running.number % HISTORY_LEN]

    def _memory_of(self, running: RunningStep) -> _Memory:
        memory = self._memory.get(running.bucket)
        if memory is None:
            memory = self._memory[running.bucket] = self._laid_out(running)
        return memory

    def _laid_out(self, running: RunningStep) -> _Memory:
        if self._found is None:
            pinned = self._device.type == "cuda"
            self._found = TopLogprobs.empty(
                HISTORY_LEN * self._max_num_seqs, MAX_LIKELY, torch.device("cpu"), pinned=pinned
            )
        rows = running.bucket.num_seqs
        slots = [
            TopLogprobs(*(tensor[i * rows : (i + 1) * rows] for tensor in self._found)) for i in range(HISTORY_LEN)
        ]
        return _Memory(self._buffers.state(running.bucket).token_ids, slots)
