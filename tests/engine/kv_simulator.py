"""A model runner that keeps a symbolic KV cache and checks every read.

What a real model writes into a slot depends on the whole prefix up to that token, so the simulator writes the
prefix's fingerprint there. Before it answers it reads every slot of every scheduled sequence back through the
block table: one block copied too late, shared too long or evicted too early, and a fingerprint differs. The next
token is a function of the prefix, so what a sequence generates cannot depend on how it was scheduled.
"""

from collections.abc import Callable
from hashlib import blake2b

from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput


def fingerprint(previous: int, token: int) -> int:
    return int.from_bytes(blake2b(f"{previous},{token}".encode(), digest_size=6).digest(), "big")


def next_token(prefix: int, vocab: int) -> int:
    return prefix % vocab


def expected_reply(prompt: list[int], vocab: int, max_tokens: int, stop: frozenset[int] = frozenset()) -> list[int]:
    """What any scheduling must generate."""
    state = 0
    for token in prompt:
        state = fingerprint(state, token)
    reply: list[int] = []
    while len(reply) < max_tokens:
        token = next_token(state, vocab)
        reply.append(token)
        if token in stop:
            break
        state = fingerprint(state, token)
    return reply


class KVSimulator:
    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0, vocab: int = 5) -> None:
        self.block_size = block_size
        self.vocab = vocab
        self.device: list[list[int | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.host: list[list[int | None]] = [[None] * block_size for _ in range(num_host_blocks)]
        self.batch_sizes: list[int] = []
        self.at: Callable[[str, SchedulerOutput], None] = lambda place, batch: None
        """Called at every place of a step at which a runner may break off."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        assert batch.num_tokens == sum(item.num_tokens for item in batch.scheduled)
        self.batch_sizes.append(batch.num_tokens)
        self.at("begun", batch)
        for op in batch.block_ops.copy():
            source = self.host if op.kind == "swap_in" else self.device
            target = self.host if op.kind == "swap_out" else self.device
            target[op.dst] = source[op.src].copy()
            self.at("in a move", batch)
            batch.block_ops.remove(op)
        self.at("moved", batch)
        # In some steps, like a runner that is done with its part before the device is; in some not at all.
        if batch.meanwhile is not None and batch.step % 4 == 0:
            batch.meanwhile()
        written: set[tuple[int, int]] = set()
        for item in batch.scheduled:
            self.at("writing", batch)
            written |= self._write(item, written)
        if batch.meanwhile is not None and batch.step % 4 == 2:
            batch.meanwhile()
        self.at("written", batch)
        return ModelRunnerOutput([self._read(item) for item in batch.scheduled])

    def check(self) -> None:
        """It never breaks for good."""

    def _write(self, item, written) -> set[tuple[int, int]]:
        tokens = item.sequence.token_ids
        end = item.start + item.num_tokens
        assert item.num_tokens > 0
        assert item.samples == (end == len(tokens))
        states = self._states(tokens)
        slots = {self._slot(item.sequence, i): states[i] for i in range(item.start, end)}
        assert not written & slots.keys(), "two sequences write to one slot"
        for (block_id, offset), state in slots.items():
            self.device[block_id][offset] = state
        return set(slots)

    def _read(self, item) -> list[int]:
        seq, end = item.sequence, item.start + item.num_tokens
        states = self._states(seq.token_ids)
        for i in range(end):
            block_id, offset = self._slot(seq, i)
            assert self.device[block_id][offset] == states[i], f"{seq} reads another's KV at token {i}"
        return [next_token(states[end - 1], self.vocab)] if item.samples else []

    def _slot(self, seq, position: int) -> tuple[int, int]:
        return seq.block_table[position // self.block_size], position % self.block_size

    @staticmethod
    def _states(tokens: list[int]) -> list[int]:
        states, state = [], 0
        for token in tokens:
            state = fingerprint(state, token)
            states.append(state)
        return states
