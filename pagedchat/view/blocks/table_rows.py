"""Block tables as rows of words: a sequence's blocks on one line, and one block with its text. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pagedchat.cache_events import SequenceStatus
from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.step_batch import DecodeBatch
from pagedchat.view.sentences.token_text import quote
from pagedchat.view.sentences.words import superscript

INDENT = 2
ID_WIDTH = 7
"""Cells of a block's id with its marks, where each block has a line."""


class Entry(NamedTuple):
    """One block of a table as it is drawn."""

    text: str
    kind: str
    """`own`, `shared`, `copied` or `host`."""
    place: int = -1
    """Its place in the block table; -1 for what stands for several."""
    marked: bool = False
    """Whether it belongs to what the user has selected somewhere."""


class Row(NamedTuple):
    """One sequence's line."""

    name: str
    number: int
    status: SequenceStatus
    entries: list[Entry]
    fill: str
    summary: str = ""
    """Said in place of the entries."""
    chosen: int = -1
    """Place in the block table on which the cursor stands."""


class BlockRow(NamedTuple):
    """One block's line under its sequence."""

    entry: Entry
    figures: str
    text: str
    chosen: bool = False


class Marks(NamedTuple):
    """What is said of blocks beside their ids."""

    copied: set[int]
    """Copy-on-write has copied into them just now."""
    highlighted: frozenset[int]
    ascii_only: bool = False


def table_entries(
    mirror: CacheMirror, sequence: MirrorSequence, marks: Marks, width: int, chosen: int = -1
) -> list[Entry]:
    """The ids of a block table, or of its host blocks while it is swapped out, as many as there is room for."""
    ellipsis = "..." if marks.ascii_only else "…"
    return elide(
        table_length(sequence), lambda place: table_entry(mirror, sequence, place, marks), width, chosen, ellipsis
    )


def table_length(sequence: MirrorSequence) -> int:
    """Blocks that the sequence has, on the device or in host memory."""
    return len(sequence.host_block_table) or len(sequence.block_table)


def table_entry(mirror: CacheMirror, sequence: MirrorSequence, index: int, marks: Marks) -> Entry:
    """`023²◊*`: block 23, held by two, pinned, copied into just now."""
    if sequence.host_block_table:
        return Entry(f"h{sequence.host_block_table[index]}", "host", index)
    block_id = sequence.block_table[index]
    refs, copied = mirror.ref_counts[block_id], block_id in marks.copied
    text = f"{block_id:03d}"
    if refs > 1:
        text += f"^{refs}" if marks.ascii_only else superscript(refs)
    if block_id in mirror.pinned:
        text += "!" if marks.ascii_only else "◊"
    kind = "copied" if copied else "shared" if refs > 1 else "own"
    return Entry(text + "*" * copied, kind, index, block_id in marks.highlighted)


def fill_words(mirror: CacheMirror, sequence: MirrorSequence) -> str:
    """`[11/16]`: valid slots of the last block; `[11/16 +3 x2]` where the last step has kept three drafted tokens,
    and the slots of two others are to be written again."""
    blocks = table_length(sequence)
    drafted = draft_words(mirror, sequence.seq_id)
    return f"[{slot_words(mirror, sequence, blocks - 1)}{drafted}]" if blocks else ""


def draft_words(mirror: CacheMirror, seq_id: int) -> str:
    """` +3 x2`: drafted tokens of the last step that were accepted, and that were rejected."""
    batch = mirror.last.batch if mirror.last is not None else []
    if type(batch) is DecodeBatch:
        return ""
    entry = next((entry for entry in batch if entry.seq_id == seq_id and entry.num_drafted), None)
    return "" if entry is None else f" +{entry.num_accepted} x{entry.num_drafted - entry.num_accepted}"


def slot_words(mirror: CacheMirror, sequence: MirrorSequence, index: int) -> str:
    """`11/16`: valid slots of the block at this place of the table."""
    filled = min(mirror.block_size, max(0, sequence.num_computed - index * mirror.block_size))
    return f"{filled:>{len(str(mirror.block_size))}}/{mirror.block_size}"


def block_row(
    mirror: CacheMirror,
    sequence: MirrorSequence,
    index: int,
    marks: Marks,
    texts: Mapping[int, bytes],
    width: int,
) -> BlockRow:
    """One block with the text of its tokens, on a line of `width` cells."""
    entry = table_entry(mirror, sequence, index, marks)
    refs = "" if sequence.host_block_table else f"r{mirror.ref_counts[sequence.block_table[index]]}"
    figures = f" {slot_words(mirror, sequence, index)} {refs:<3} "
    start = index * mirror.block_size
    tokens = sequence.token_ids[start : min(start + mirror.block_size, sequence.num_computed)]
    room = width - INDENT - ID_WIDTH - len(figures)
    return BlockRow(entry, figures, quote(tokens, texts, room, ascii_only=marks.ascii_only))


def elide(
    length: int, entry: Callable[[int], Entry], width: int, chosen: int = -1, ellipsis: str = "…"
) -> list[Entry]:
    """As many entries as fit into `width` cells, a space between them: all, or a head, `…` and a longer tail.

    The one at `chosen` is always among them. Of a long table only those that may be seen are asked for.
    """
    whole = _fitting(map(entry, range(length)), width)
    if len(whole) == length:
        return whole
    gap = Entry(ellipsis, "own")
    head = _fitting(map(entry, range(length)), width // 3)
    room = width - entries_width(head) - len(ellipsis) - (2 if head else 1)
    tail = _fitting(map(entry, range(length - 1, len(head) - 1, -1)), room)[::-1]
    if chosen < len(head) or chosen >= length - len(tail):
        return [*head, gap, *tail]
    return _around(length - 1, entry, width, chosen, gap)


def _around(last: int, entry: Callable[[int], Entry], width: int, chosen: int, gap: Entry) -> list[Entry]:
    """The first entry, a window around the chosen one, the last entry; every gap stands for at least one."""
    head = [entry(0), gap] if chosen > 1 else list(map(entry, range(chosen)))
    tail = [gap, entry(last)] if chosen < last - 1 else list(map(entry, range(chosen + 1, last + 1)))
    room = width - sum(entries_width(end) + 1 for end in (head, tail) if end)
    window, before = [entry(chosen)], -1
    while len(window) != before:
        before = len(window)
        low, high = window[0].place, window[-1].place
        if low > 2 and entries_width(window) + 1 + len(entry(low - 1).text) <= room:
            window.insert(0, entry(low - 1))
        if high < last - 2 and entries_width(window) + 1 + len(entry(high + 1).text) <= room:
            window.append(entry(high + 1))
    return [*head, *window, *tail]


def entries_width(entries: Sequence[Entry]) -> int:
    """Cells of the entries with a space between each two."""
    return sum(len(entry.text) for entry in entries) + max(0, len(entries) - 1)


def _fitting(entries: Iterable[Entry], width: int) -> list[Entry]:
    found: list[Entry] = []
    used = -1
    for entry in entries:
        used += 1 + len(entry.text)
        if used > width:
            break
        found.append(entry)
    return found
