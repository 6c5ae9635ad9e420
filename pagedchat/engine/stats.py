"""The engine's counters at one moment, named for people."""

from dataclasses import dataclass


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
    """Running sequences that had to give their blocks back."""
    swaps_out: int
    """Blocks copied to host memory."""
    swaps_in: int
    copies: int
    """Blocks copied by copy-on-write."""
    evictions: int
    prefill_tokens: int
    decode_tokens: int
    steps: int
    num_waiting: int
    num_running: int
    num_swapped: int
    num_parked: int
