"""What no captured step serves yet, by captured steps that are there: fewer sequences or fewer tokens at a time.

An eager step of a small model takes the host longer than a handful of captured ones take the device, and now and
then several times as long. Which of the two is quicker is measured, not known: of a large model every piece reads
all weights.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.runtime.graphs.decode.decode_steps import BegunDecodes, DecodeSteps
from pagedchat.runtime.graphs.prefill.prefill_steps import BegunPrefill, PrefillSteps

_EAGER_SECONDS = 0.004
"""What a step without a graph is taken to last while none was measured: little, for a host."""
_REMEMBERED = 4

Parts = list[ScheduledSequence]


@dataclass(slots=True)
class _Measured:
    """How long something takes at the least: the last few times that it was done, in seconds."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def least(self, otherwise: float) -> float:
        """`otherwise` while it was never done."""
        return min(self.seconds, default=otherwise)


class InPieces:
    """Runs parts of a batch in pieces.

    Args:
        decodes: has steps for single tokens.
        prefills: has steps for chunks of prompts, if there are any.
        clock: seconds.
    """

    def __init__(self, decodes: DecodeSteps, prefills: PrefillSteps | None, clock: Callable[[], float]) -> None:
        self._decodes = decodes
        self._prefills = prefills
        self._clock = clock
        self._eager = _Measured()
        self._piece = {True: _Measured(), False: _Measured()}
        """Of single tokens, of chunks."""

    def note_eager(self, seconds: float) -> None:
        """What a step without a graph took."""
        self._eager.seconds.append(seconds)

    def run(self, batch: SchedulerOutput, parts: Parts, *, are_decodes: bool) -> ModelRunnerOutput | None:
        """Run parts of a batch; None, with nothing done, where something is missing or eager steps are quicker.

        Args:
            batch: whose block moves are carried out before.
            parts: of it: single tokens, or chunks of prompts.
            are_decodes: which of the two.
        """
        pieces = self._decodes.pieces(parts) if are_decodes else self._pieces_of_chunks(parts)
        measured = self._piece[are_decodes]
        if not pieces or len(pieces) * measured.least(0.0) > self._eager.least(_EAGER_SECONDS):
            return None
        began = self._clock()
        outputs = [
            self._run_piece(SchedulerOutput(batch.step, piece, batch.block_ops, _num_tokens(piece)), are_decodes)
            for piece in pieces
        ]
        measured.seconds.append((self._clock() - began) / len(pieces))
        return _joined(parts, pieces, outputs)

    def _pieces_of_chunks(self, parts: Parts) -> list[Parts]:
        return [] if self._prefills is None else self._prefills.pieces(parts)

    def _run_piece(self, piece: SchedulerOutput, are_decodes: bool) -> ModelRunnerOutput:
        """It is known to be there."""
        if are_decodes:
            return self._decodes.finish(cast(BegunDecodes, self._decodes.begin(piece, goes_on=False, by_now=True)))
        prefills = cast(PrefillSteps, self._prefills)
        return prefills.finish(cast(BegunPrefill, prefills.begin(piece, by_now=True)))


def _num_tokens(parts: Iterable[ScheduledSequence]) -> int:
    return sum([part.num_tokens for part in parts])


def _joined(parts: Parts, pieces: list[Parts], outputs: list[ModelRunnerOutput]) -> ModelRunnerOutput:
    """What came back for pieces, as if they had been one step: of a chunk that was cut what its last piece says."""
    tokens: dict[int, list[int]] = {}
    told: dict[int, list[TokenLogprobs]] = {}
    for piece, output in zip(pieces, outputs, strict=True):
        for i, part in enumerate(piece):
            tokens[id(part.sequence)] = output.token_ids[i]
            told[id(part.sequence)] = output.logprobs[i] if output.logprobs is not None else []
    keys = [id(part.sequence) for part in parts]
    return ModelRunnerOutput(
        [tokens[key] for key in keys],
        sum([output.copy_seconds for output in outputs]),
        sum([output.forward_seconds for output in outputs]),
        sum([output.sample_seconds for output in outputs]),
        sum([output.launch_seconds for output in outputs]),
        logprobs=[told[key] for key in keys] if any(told.values()) else None,
    )
