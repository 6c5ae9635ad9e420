"""Block tables as rows of words, and their sum held against the engine's counts. Pure."""

from typing import NamedTuple

from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.events import SequenceStatus
from pagedchat.tui.words import superscript

ELISION = "…"


class Entry(NamedTuple):
    """One block id of a table as it is drawn."""

    text: str
    kind: str
    """`own`, `shared`, `copied` or `host`."""


class Row(NamedTuple):
    """One sequence's line."""

    name: str
    number: int
    status: SequenceStatus
    entries: list[Entry]
    fill: str


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
    agrees: bool
    """Whether the engine's own counts are the same, and every block is free, cached or in use."""

    @property
    def text(self) -> str:
        """In words."""
        saved = self.entries - self.used
        host = f" · {self.host_used} on host" if self.host_used else ""
        return f"{self.entries} entries − {saved} shared = {self.used} used · waste {self.waste} slots{host}"


def table_entries(mirror: CacheMirror, sequence: MirrorSequence, copied: set[int]) -> list[Entry]:
    """The ids of a block table, or of its host blocks while it is swapped out."""
    if sequence.host_block_table:
        return [Entry(f"h{block_id}", "host") for block_id in sequence.host_block_table]
    return [_entry(block_id, mirror.ref_counts[block_id], block_id in copied) for block_id in sequence.block_table]


def _entry(block_id: int, refs: int, copied: bool) -> Entry:
    text = f"{block_id:03d}" + (superscript(refs) if refs > 1 else "")
    return Entry(text + "*", "copied") if copied else Entry(text, "shared" if refs > 1 else "own")


def elide(entries: list[Entry], width: int) -> list[Entry]:
    """As many entries as fit into `width` cells, a space between them: all, or a head, `…` and a longer tail."""
    if _width(entries) <= width:
        return entries
    head = _fitting(entries, width // 3)
    room = width - _width(head) - len(ELISION) - (2 if head else 1)
    tail = _fitting(entries[::-1][: len(entries) - len(head)], room)[::-1]
    return [*head, Entry(ELISION, "own"), *tail]


def _width(entries: list[Entry]) -> int:
    return sum(len(entry.text) for entry in entries) + max(0, len(entries) - 1)


def _fitting(entries: list[Entry], width: int) -> list[Entry]:
    used, count = -1, 0
    while count < len(entries) and used + 1 + len(entries[count].text) <= width:
        used += 1 + len(entries[count].text)
        count += 1
    return entries[:count]


def fill_words(mirror: CacheMirror, sequence: MirrorSequence) -> str:
    """`[11/16]`: valid slots of the last block."""
    blocks = len(sequence.block_table) or len(sequence.host_block_table)
    if not blocks:
        return ""
    filled = min(mirror.block_size, max(0, sequence.num_computed - (blocks - 1) * mirror.block_size))
    return f"[{filled:>{len(str(mirror.block_size))}}/{mirror.block_size}]"


def count_tables(mirror: CacheMirror) -> Totals:
    """Add up all block tables and hold them against the engine's counts in the last report."""
    tables = [sequence.block_table for sequence in mirror.sequences.values()]
    used = set[int]().union(*tables)
    entries = sum(len(table) for table in tables)
    idle = len(mirror.free_blocks) + len(mirror.cached_blocks)
    host_used = sum(1 for refs in mirror.host_ref_counts if refs)
    agrees = len(used) + idle == mirror.num_blocks
    if mirror.last is not None:
        pool = mirror.last.pool
        told = (pool.table_entries, pool.in_use, pool.free + pool.cached, pool.host_in_use)
        agrees = agrees and told == (entries, len(used), idle, host_used)
    waste = sum(mirror.block_size - mirror.fill(block_id) for block_id in _last_blocks(mirror))
    return Totals(entries, len(used), waste, host_used, agrees)


def _last_blocks(mirror: CacheMirror) -> set[int]:
    """Blocks that may have slots without a token: those at or past the end of what was computed."""
    found: set[int] = set()
    for sequence in mirror.sequences.values():
        found.update(sequence.block_table[sequence.num_computed // mirror.block_size :])
    return found
