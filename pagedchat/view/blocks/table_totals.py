"""All block tables added up, and held against the engine's own counts. Pure."""

from typing import NamedTuple

from pagedchat.engine.mirror import CacheMirror


class Totals(NamedTuple):
    """The tables added up, and what the engine says."""

    entries: int
    """Entries of all device block tables."""
    used: int
    """Distinct blocks in them."""
    waste: int
    """Slots of those blocks that hold no token."""
    host_used: int
    """Blocks in host memory."""
    refs: int
    """Ref counts of all blocks together; the same as `entries`, unless somebody has miscounted."""
    agrees: bool
    """Whether the engine's own counts are the same, and every block is in exactly one place."""

    def words(self, *, ascii_only: bool = False) -> tuple[str, str]:
        """In words: the sum, and what it leaves unused."""
        minus, dot = ("-", "|") if ascii_only else ("−", "·")
        saved = self.entries - self.used
        host = f" {dot} {self.host_used} on host" if self.host_used else ""
        return (
            f"{self.entries} entries {minus} {saved} shared = {self.used} used",
            f"waste {self.waste} slots{host}",
        )


def count_tables(mirror: CacheMirror) -> Totals:
    """Add up all block tables and hold them against the engine's counts in the last report."""
    tables = [sequence.block_table for sequence in mirror.sequences.values()]
    used = len(set[int]().union(*tables))
    entries = sum(map(len, tables))
    refs = sum(mirror.ref_counts)
    host_used = sum(1 for count in mirror.host_ref_counts if count)
    waste = sum(mirror.block_size - mirror.fill(block_id) for block_id in _last_blocks(mirror))
    agrees = refs == entries and _places_agree(mirror, entries, used, host_used)
    return Totals(entries, used, waste, host_used, refs, agrees)


def _places_agree(mirror: CacheMirror, entries: int, used: int, host_used: int) -> bool:
    """Every block is in use, free, cached or withheld, and the engine counts as many of each."""
    pinned = sum(1 for block_id in mirror.pinned if not mirror.ref_counts[block_id])
    free, cached, withheld = len(mirror.free_blocks), len(mirror.cached_blocks) + pinned, len(mirror.withheld)
    counted = (entries, used, free, cached, withheld, host_used)
    if mirror.last is None:
        return used + free + cached + withheld == mirror.num_blocks
    pool = mirror.last.pool
    told = (pool.table_entries, pool.in_use, pool.free, pool.cached, pool.withheld, pool.host_in_use)
    return counted == told and used + free + cached + withheld == mirror.num_blocks


def _last_blocks(mirror: CacheMirror) -> set[int]:
    """Blocks that may have slots without a token: those at or past the end of what was computed."""
    found: set[int] = set()
    for sequence in mirror.sequences.values():
        found.update(sequence.block_table[sequence.num_computed // mirror.block_size :])
    return found
