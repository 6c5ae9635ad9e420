"""What is said of drafts, line by line, as pieces of text with the names of their styles: how many were drafted,
accepted and rejected, and the slots of the last ones. Pure.
"""

from collections.abc import Iterator

from rich.cells import cell_len

from pagedchat.events import Counters
from pagedchat.view.groups.rows import Context, Pieces, end_of, fitting
from pagedchat.view.speculation.story import DraftStep

BEFORE, PLAIN, ACCEPTED, REJECTED, FREE = "▓", "•", "+", "×", "░"
"""Slots: those filled before, the token behind which the draft was, drafted ones, those that are empty."""
MOST_SHOWN = 12
_LEGEND: Pieces = [
    (f"{PLAIN} token", "text"), (f"  {ACCEPTED} accepted", "good"), (f"  {REJECTED} rejected", "pruned"),
    (f"  {BEFORE} before", "dim"),
]  # fmt: skip
_NO_DRAFTS = "No drafts yet: /set speculate lookup guesses what was said before."


def draft_rows(steps: list[DraftStep], counters: Counters | None, context: Context) -> list[Pieces]:
    """A line on all of them, then the last ones, the latest first."""
    if counters is None or not counters.draft_tokens:
        return [fitting([(_NO_DRAFTS, "dim")], context)]
    latest = steps[: -MOST_SHOWN - 1 : -1]
    rows = [_counts(counters), _LEGEND, *(_step_row(step, context) for step in latest)]
    return [fitting(row, context) for row in rows]


def _counts(counters: Counters) -> Pieces:
    drafted, accepted = counters.draft_tokens, counters.accepted_tokens
    share = f" · {1 + accepted / counters.drafts:.1f} a step"
    return [
        (f"{drafted} drafted", "text"), (" · ", "dim"), (f"{accepted} accepted", "good"), (" · ", "dim"),
        (f"{drafted - accepted} rejected", "pruned"), (share, "dim"),
    ]  # fmt: skip


def _step_row(step: DraftStep, context: Context) -> Pieces:
    """`  88 1 tale 021 ▓▓▓▓▓▓▓▓▓▓•++++× 024 ××░░░░░░░░░░░░░░ " the sea"`."""
    row: Pieces = [(f"{step.step:>5} ", "dim"), (context.name(step.seq_id)[:8], f"@{context.number(step.seq_id)}")]
    row += _slots(step, context.mirror.block_size)
    room = context.width - sum(cell_len(text) for text, _ in row) - 1
    text = end_of(list(step.token_ids), context, room)
    return [*row, (f" {text}" if text else "", "quote")]


def _slots(step: DraftStep, block_size: int) -> Iterator[tuple[str, str]]:
    """Block by block, slot by slot."""
    first = step.position - step.position % block_size
    kinds = [
        (BEFORE, "dim", step.position - first), (PLAIN, "text", 1),
        (ACCEPTED, "good", step.num_accepted), (REJECTED, "pruned", step.num_rejected),
    ]  # fmt: skip
    slots = [(sign, style) for sign, style, count in kinds for _ in range(count)]
    slots += [(FREE, "dim")] * (-len(slots) % block_size)
    for index in range(0, len(slots), block_size):
        place = index // block_size
        name = f"{step.blocks[place]:03d}" if place < len(step.blocks) else "---"
        yield f" {name} ", "own"
        yield from slots[index : index + block_size]
