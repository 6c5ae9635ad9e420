"""The engine's counters at one moment, named for people."""

from dataclasses import dataclass

from pagedchat.events import Counters, PoolCounts, QueueLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot; totals count from the start of the engine."""

    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_in_use: int
    blocks_shared: int
    """Blocks in use by two sequences or more."""
    host_blocks_total: int
    host_blocks_in_use: int
    prefix_queries: int
    """Tokens looked up in the prefix cache."""
    prefix_hits: int
    """Of those, tokens found."""
    preemptions: int
    """Times that a sequence, running or not, had to give its blocks back."""
    swaps_out: int
    """Blocks copied to host memory."""
    swaps_in: int
    copies: int
    """Blocks copied by copy-on-write."""
    evictions: int
    prefill_tokens: int
    decode_tokens: int
    kept_tokens: int
    """Prompt tokens that their sequences still had from turns before."""
    drafts: int
    """Times that tokens of a sequence were guessed, to be verified in one step."""
    draft_tokens: int
    accepted_tokens: int
    """Of those guessed, tokens that the model would have chosen itself."""
    steps: int
    num_waiting: int
    num_running: int
    num_swapped: int
    num_parked: int


def engine_stats(pool: PoolCounts, queues: QueueLengths, counters: Counters) -> EngineStats:
    """One snapshot of the three sets of numbers that every report carries."""
    return EngineStats(
        blocks_total=pool.total,
        blocks_free=pool.free,
        blocks_cached=pool.cached,
        blocks_in_use=pool.in_use,
        blocks_shared=pool.shared,
        host_blocks_total=pool.host_total,
        host_blocks_in_use=pool.host_in_use,
        prefix_queries=counters.prefix_queries,
        prefix_hits=counters.prefix_hits,
        preemptions=counters.preemptions,
        swaps_out=counters.swaps_out,
        swaps_in=counters.swaps_in,
        copies=counters.copies,
        evictions=counters.evictions,
        prefill_tokens=counters.prefill_tokens,
        decode_tokens=counters.decode_tokens,
        kept_tokens=counters.kept_tokens,
        drafts=counters.drafts,
        draft_tokens=counters.draft_tokens,
        accepted_tokens=counters.accepted_tokens,
        steps=counters.steps,
        num_waiting=queues.waiting,
        num_running=queues.running,
        num_swapped=queues.swapped,
        num_parked=queues.parked,
    )
