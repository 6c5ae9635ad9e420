"""Whether what the screen has folded agrees with what the engine counts: cheap enough for every refresh."""

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import PoolCounts, StepReport
from pagedchat.view.engine_view import EngineView


def picture_holds(view: EngineView) -> bool:
    """Whether the live engine is drawn as the engine itself counts it."""
    mirror = view.present.mirror
    return mirror.last is None or counts_agree(mirror, mirror.last)


def counts_agree(mirror: CacheMirror, report: StepReport) -> bool:
    """Whether the engine's counts after `report`, the last one folded, are those of the mirror.

    Costs a look at every sequence and every pinned block, none at the other blocks.
    """
    pool = report.pool
    cached = len(mirror.cached_blocks) + sum(1 for block_id in mirror.pinned if not mirror.ref_counts[block_id])
    found = (len(mirror.free_blocks), cached, len(mirror.withheld), len(mirror.pinned))
    entries = sum(len(sequence.block_table) for sequence in mirror.sequences.values())
    return (
        found == (pool.free, pool.cached, pool.withheld, pool.pinned)
        and entries == pool.table_entries
        and _adds_up(pool)
    )


def _adds_up(pool: PoolCounts) -> bool:
    return pool.free + pool.cached + pool.in_use + pool.withheld == pool.total
