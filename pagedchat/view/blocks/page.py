"""One block in words: a page with a fact a line, or all that is most asked for on one line. Pure."""

from rich.cells import cell_len, set_cell_size

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.facts import BlockFacts, Owner, Slot
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.words import cut

STATES = {"free": "free", "cached": "cached", "in_use": "in use", "withheld": "withheld by the limit"}
MAX_MOMENTS = 12
"""Moments of the history that are shown."""
_LABEL = 9
"""Cells of the words at the left."""
_SLOT = 16
"""Cells of a token's text at most."""
_MAX_OWNERS = 9
"""Owners named on the one line."""


def page_lines(facts: BlockFacts, width: int) -> list[str]:
    """A fact a line, at most `width` cells where that can be had by breaking lines."""
    moments = [f"{moment.step:>6}  {moment.text}" for moment in facts.history[:MAX_MOMENTS]]
    more = len(facts.history) - len(moments)
    return [
        *_labelled("state", [_state(facts)]),
        *_labelled("fill", [_fill(facts)]),
        *_labelled("hash", [facts.hash or "none until it is full and findable"]),
        *_labelled("parent", [_parent(facts)]),
        *_labelled("slab", [f"{facts.size} at {facts.offset:#x}"]),
        *_labelled("owners", [_owner(owner, facts.block_size) for owner in facts.owners] or ["nobody"]),
        *_labelled("tokens", _slots(facts, max(1, width - _LABEL))),
        *_labelled("history", moments or ["nothing that is remembered"]),
        *_labelled("", [f"        and {more} more before"] if more else []),
    ]


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"{'' if index else label:<{_LABEL}}{line}" for index, line in enumerate(lines)]


def _state(facts: BlockFacts) -> str:
    refs = f"ref {facts.ref_count}" + (f" (was {facts.was})" if facts.was is not None else "")
    return " · ".join([STATES[facts.state], refs, *(["pinned"] if facts.pinned else [])])


def _fill(facts: BlockFacts) -> str:
    taken = "" if facts.allocated is None else f" · allocated at step {facts.allocated}"
    return f"{facts.fill}/{facts.block_size}{taken}"


def _parent(facts: BlockFacts) -> str:
    short = f"#{facts.parent_hash[:16]}" if facts.parent_hash else ""
    if facts.parent is not None:
        return " · ".join(filter(None, [f"{facts.parent:03d}", short]))
    if short:
        return f"{short}, no longer in the pool"
    return "none: the first of its text" if facts.owners or facts.hash else "none"


def _owner(owner: Owner, block_size: int) -> str:
    first = owner.block_idx * block_size
    return f"{owner.name} · logical {owner.block_idx} · tokens {first} to {first + block_size - 1}"


def _slots(facts: BlockFacts, width: int) -> list[str]:
    """Slot by slot from left to right, in columns of one width; `·` is an empty slot."""
    if not facts.slots:
        return ["none"]
    empty = facts.block_size - len(facts.slots)
    texts = [cut(_text(slot), _SLOT) for slot in facts.slots] + ["·"] * empty
    number = len(str(facts.block_size - 1))
    column = max(map(cell_len, texts))
    per_line = max(1, (width + 2) // (number + 1 + column + 2))
    cells = [f"{index:>{number}} {set_cell_size(text, column)}" for index, text in enumerate(texts)]
    return ["  ".join(cells[i : i + per_line]).rstrip() for i in range(0, len(cells), per_line)]


def _text(slot: Slot) -> str:
    return slot.text or f"#{slot.token_id}"


def describe_block(view: EngineView, mirror: CacheMirror, block_id: int) -> str:
    """`041 in use · ref 2 · 1 tale[24] 2 tale»a[24] · 16/16 · #1a2b3c4d`."""
    state, refs = mirror.state(block_id), mirror.ref_counts[block_id]
    parts = [f"{block_id:03d} {STATES[state]}"]
    if block_id in mirror.pinned:
        parts.append("pinned")
    if refs:
        parts += [f"ref {refs}", _held_by(view, mirror, block_id)]
    if state in ("cached", "in_use"):
        parts.append(f"{mirror.fill(block_id)}/{mirror.block_size}")
    block_hash = mirror.block_hashes[block_id]
    if block_hash is not None:
        parts.append(f"#{block_hash.hex()[:8]}")
    return " · ".join(parts)


def _held_by(view: EngineView, mirror: CacheMirror, block_id: int) -> str:
    holders = mirror.holders[block_id]
    shown = [
        f"{view.name(seq_id)}[{mirror.sequences[seq_id].block_table.index(block_id)}]"
        for seq_id in holders[:_MAX_OWNERS]
    ]
    more = len(holders) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more else "")
