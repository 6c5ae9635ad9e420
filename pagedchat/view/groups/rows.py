"""What the panel of groups says, line by line, as pieces of text with the names of their styles: the beams of a
search as a tree of blocks, those that were given up, and what it took. Pure.

A style is a name (`dim`, `quote` of what a model wrote, ...) or `@` and a sequence's number for its own colour.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rich.cells import cell_len

from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.view.groups.story import GroupStory, Pruned
from pagedchat.view.groups.tree import GroupNode, group_tree
from pagedchat.view.sentences.token_text import quote
from pagedchat.view.sentences.words import count, cut, superscript, to_ascii

Pieces = list[tuple[str, str]]
"""Text, style."""

SHOWN_BLOCKS = 8
"""Of a run; of longer ones the first and the last."""
NOTHING = (
    "No beams yet. /beam 4 PROMPT searches with four:",
    "forks that share their blocks, grown where they are",
    "likely and pruned where others are likelier.",
)
_KINDS = {"beams": ("beam", "beam search"), "answers": ("answer", "answers to one prompt"), "": ("member", "group")}


class Context(NamedTuple):
    """Who asks."""

    mirror: CacheMirror
    texts: Mapping[int, bytes]
    """Token -> what it stands for."""
    name: Callable[[int], str]
    number: Callable[[int], int]
    width: int
    ascii_only: bool


def group_rows(story: GroupStory | None, context: Context) -> list[Pieces]:
    """All lines, each at most as wide as there is room."""
    if story is None:
        rows: list[Pieces] = [[(line, "dim")] for line in NOTHING]
    else:
        rows = list(_rows(story, context))
    return [fitting(row, context) for row in rows]


def _rows(story: GroupStory, context: Context) -> Iterator[Pieces]:
    living = _members(story, context.mirror)
    yield _heading(story, living)
    yield _counts(story, living, context.mirror)
    tables = {sequence.seq_id: sequence.block_table for sequence in living}
    for node in group_tree(tables):
        yield _node_row(node, story, context)
    for pruned in reversed(story.pruned):
        yield _pruned_row(pruned, context)


def _members(story: GroupStory, mirror: CacheMirror) -> list[MirrorSequence]:
    """Those that live, the oldest first."""
    found = (sequence for sequence in mirror.sequences.values() if sequence.group_id == story.group_id)
    return sorted(found, key=lambda sequence: sequence.seq_id)


def _heading(story: GroupStory, living: list[MirrorSequence]) -> Pieces:
    noun, what = _KINDS[story.kind]
    wide = f", {story.size} wide" if story.size else ""
    row = [(f"{what}{wide}", "text"), (f" · since step {story.first_step + 1}", "dim")]
    if not living:
        return [*row, (" · over", "good")]
    blocks = {block_id for sequence in living for block_id in sequence.block_table}
    return [*row, (f" · {count(len(living), noun)} in {count(len(blocks), 'block')}", "dim")]


def _counts(story: GroupStory, living: list[MirrorSequence], mirror: CacheMirror) -> Pieces:
    blocks = {block_id for sequence in living for block_id in sequence.block_table}
    shared = sum(mirror.ref_counts[block_id] > 1 for block_id in blocks)
    return [
        (f"{shared} shared", "shared"), (" · ", "dim"), (f"{story.num_grown} forked", "good"), (" · ", "dim"),
        (f"{story.num_copied} copied", "copied"), (" · ", "dim"), (f"{story.num_pruned} pruned", "pruned"),
    ]  # fmt: skip


def _node_row(node: GroupNode, story: GroupStory, context: Context) -> Pieces:
    """`├ 031 032² " came back"  beam 4 −7.31 [11/16]`."""
    is_leaf = len(node.members) == 1
    row: Pieces = [(_branch(node), "dim"), *_blocks(node.blocks, context)]
    behind: Pieces = _leaf(node, story, context) if is_leaf else [(f" {len(node.members)} hold them", "dim")]
    if not node.blocks and not is_leaf:
        return [*row, (f"no full block before {len(node.members)} of them part", "dim")]
    sequence = context.mirror.sequences[node.members[0]]
    size = context.mirror.block_size
    end = len(sequence.token_ids) if is_leaf else (node.first + len(node.blocks)) * size
    room = context.width - sum(cell_len(text) for text, _ in [*row, *behind]) - 1
    text = end_of(sequence.token_ids[node.first * size : end], context, room)
    return [*row, (f" {text}" if text else "", "quote"), *behind]


def _branch(node: GroupNode) -> str:
    rails = "".join("│ " if more else "  " for more in node.rails)
    return rails + (("└ " if node.is_last else "├ ") if node.depth else "")


def _leaf(node: GroupNode, story: GroupStory, context: Context) -> Pieces:
    seq_id, mirror = node.members[0], context.mirror
    sequence = mirror.sequences[seq_id]
    filled = sequence.num_computed - max(0, len(sequence.block_table) - 1) * mirror.block_size
    slots = f" [{filled}/{mirror.block_size}]" if sequence.block_table else f" {sequence.status}"
    score = story.scores.get(seq_id)
    likely = [] if score is None else [(f" {score:.2f}".replace("-", "−"), _score_style(seq_id, story))]
    return [(f" {context.name(seq_id)}", f"@{context.number(seq_id)}"), *likely, (slots, "dim")]


def _score_style(seq_id: int, story: GroupStory) -> str:
    """The likeliest beam's is the one to find first."""
    return "good" if seq_id == next(iter(story.scores)) else "text"


def _blocks(blocks: tuple[int, ...], context: Context) -> Pieces:
    if len(blocks) > SHOWN_BLOCKS:
        head, tail = _blocks(blocks[:2], context), _blocks(blocks[-2:], context)
        return [*head, (f" … {len(blocks) - 4} more … ", "dim"), *tail]
    pieces: Pieces = []
    for block_id in blocks:
        refs = context.mirror.ref_counts[block_id]
        mark = (f"^{refs}" if context.ascii_only else superscript(refs)) if refs > 1 else ""
        pieces += [(" " if pieces else "", ""), (f"{block_id:03d}{mark}", "shared" if refs > 1 else "own")]
    return pieces


def end_of(token_ids: list[int], context: Context, room: int) -> str:
    """The last tokens whose text has room."""
    if room < 4 or not token_ids:
        return ""
    for first in range(max(0, len(token_ids) - room), len(token_ids)):
        text = quote(token_ids[first:], context.texts, 10_000, ascii_only=context.ascii_only)
        if cell_len(text) <= room:
            return text
    return quote(token_ids[-1:], context.texts, room, ascii_only=context.ascii_only)


def _pruned_row(pruned: Pruned, context: Context) -> Pieces:
    """`× beam 7 at 141 −036 " came home"`: the blocks that it alone had are given back."""
    back = "".join(f" −{block_id:03d}" for block_id in pruned.given_back[:SHOWN_BLOCKS])
    head = f"× {context.name(pruned.seq_id)} at {pruned.step}"
    room = context.width - cell_len(head) - cell_len(back) - 1
    text = end_of(list(pruned.token_ids), context, room)
    return [(head, "pruned"), (back, "text"), (f" {text}" if text else "", "quote")]


def fitting(row: Pieces, context: Context) -> Pieces:
    """As much of a line as there is room for, in ASCII if it is to be."""
    kept: Pieces = []
    for text, style in row:
        drawn = to_ascii(text) if context.ascii_only and style != "quote" else text
        room = context.width - sum(cell_len(piece) for piece, _ in kept)
        if room > 0 and drawn:
            kept.append((cut(drawn, room), style))
    return kept
