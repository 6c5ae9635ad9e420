"""What is captured while nobody waits: one CUDA graph after another, those first that a few chats need.

A batch whose graph is missing is served by something slower for a while. So they are made ready between requests,
until all are there or they have taken the memory that was left for them; the kernels of the next few are built
beside, on threads that go on while chats are running. Knows which and in what order, not how a step is captured.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.ops.ranks.company import Agree, nobody_else
from pagedchat.runtime.graphs.decode.buckets import batch_sizes, context_lens, usual_turn, verified_sizes
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.step.sizes import StepSizes

log = logging.getLogger(__name__)

_PATIENCE = 0.02
"""Seconds for which kernels are waited for at a time."""
_BUILT_AHEAD = 4
"""Buckets whose kernels are built at a time."""
_FEW_CHATS = 8
_FEW_ROWS = 64
_SHORT_CONTEXT = 2048
"""Tokens. Batches up to these come before prompts, all others in turn with them."""
_Batches = tuple[int, int] | tuple[int, int, bool]
"""Sequences and context; rows of drafts and context, and that these read each other."""


class SpareTime:
    """Makes graphs ready, one a call.

    Args:
        decodes: whose steps are captured.
        prepare_prompts: captures one graph for prompts, if its kernels are built, and says how many it has
            captured; None where none is left.
        sizes: of a step, at most.
        make_wanted: goes on with what batches lacked; says whether there was anything to be done.
        free_memory: asks for the bytes that are free where graphs go.
        most_memory: bytes that all graphs made here may take.
        speculates: whether there will be drafts, so that steps that verify them are wanted too.
        agree: of all ranks: a step that is captured is tried out, which takes them all. So they capture the same,
            once all have its kernels, and stop when one has no more room.
    """

    def __init__(
        self,
        decodes: DecodeSteps,
        prepare_prompts: Callable[[], int | None],
        sizes: StepSizes,
        make_wanted: Callable[[], bool],
        free_memory: Callable[[], int],
        most_memory: int,
        *,
        speculates: bool = False,
        agree: Agree = nobody_else,
    ) -> None:
        self._make_wanted = make_wanted
        self._free_memory = free_memory
        self._least_free = free_memory() - most_memory
        self._agree = agree
        self._graphs = _capture_all(decodes, prepare_prompts, in_order(sizes, speculates=speculates), agree)
        self._count, self._seconds = 0, 0.0

    def __call__(self) -> bool:
        """Capture the next one, if its kernels are compiled; False when there is none, or no room for it."""
        if self._make_wanted():
            return True
        started = time.perf_counter()
        room = self._agree(self._free_memory() >= self._least_free)
        num_captured = next(self._graphs, None) if room else None
        if num_captured is not None:
            self._count += num_captured
            self._seconds += time.perf_counter() - started
            return True
        reason = "all there are" if room else "as many as there is room for"
        log.info("Captured %d kinds of steps in spare time (%.1f s), %s.", self._count, self._seconds, reason)
        return False


def in_order(sizes: StepSizes, *, speculates: bool = False) -> list[_Batches]:
    """All batches that steps are captured for: likely ones first, small before large."""
    buckets: list[_Batches] = [
        (num_seqs, length)
        for num_seqs in batch_sizes(sizes.num_seqs)
        for length in context_lens(sizes.model_len, usual_turn(num_seqs))
    ]
    if speculates:
        buckets += [
            (num_rows, length, True)
            for num_rows in verified_sizes(sizes.num_seqs)
            for length in context_lens(sizes.model_len)
        ]
    return sorted(buckets, key=lambda bucket: (not _is_likely(bucket), bucket[0] * bucket[1]))


def _is_likely(bucket: _Batches) -> bool:
    return bucket[0] <= (_FEW_ROWS if len(bucket) > 2 else _FEW_CHATS) and bucket[1] <= _SHORT_CONTEXT


def _capture_all(
    decodes: DecodeSteps, prepare_prompts: Callable[[], int | None], buckets: list[_Batches], agree: Agree
) -> Iterator[int]:
    """1 after each one, 0 while its kernels are looked for or compiled: somebody may want to say something."""
    left, under_way = iter(buckets), deque[tuple[_Batches, BuildAhead | None]]()
    while True:
        for bucket in islice(left, _BUILT_AHEAD - len(under_way)):
            under_way.append((bucket, decodes.build_ahead(*bucket, quietly=True)))
            yield 0
        if not under_way:
            break
        bucket, kernels = under_way.popleft()
        while not agree(kernels is None or kernels.wait(_PATIENCE)):
            yield 0
        decodes.prepare(*bucket)
        yield 1
        if not _is_likely(bucket):
            yield prepare_prompts() or 0
    while (num_captured := prepare_prompts()) is not None:
        yield num_captured
