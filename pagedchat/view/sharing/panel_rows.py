"""What the sharing panel says, line by line, as pieces of text with the names of their styles. Pure.

A style is a name (`dim`, `shared`, ...) or `@` and a chat's number for that chat's own colour.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rich.cells import cell_len

from pagedchat.engine.mirror import CacheMirror
from pagedchat.units import format_size
from pagedchat.view.owners import shown_number
from pagedchat.view.sentences.token_text import quote
from pagedchat.view.sentences.words import bar, count, fit, short_label, to_ascii
from pagedchat.view.sharing.prefix_tree import PrefixNode, PrefixTree
from pagedchat.view.sharing.savings import Saving, Twins, shared_blocks

Piece = tuple[str, str]
"""Text, style."""
Pieces = list[Piece]

MAX_LABEL = 14
_COLUMN = 4
_BAR = 10
_SHOWN_OWNERS = 9
_QUOTED_BLOCKS = 4
"""Blocks of a node that are enough for any width."""


class Signs(NamedTuple):
    """What lines are drawn with."""

    rail: str
    fork: str
    last: str
    none: str
    dot: str
    minus: str
    good: str
    wrong: str
    ascii_only: bool


UNICODE = Signs("│ ", "├ ", "└ ", "·", " · ", "−", "√", "‼", ascii_only=False)
ASCII = Signs("| ", "|-", "`-", ".", " | ", "-", "ok", "!!", ascii_only=True)


class Chats(NamedTuple):
    """How chats are called, in the order in which they are shown."""

    names: dict[int, str]
    number: Callable[[int], int]


def matrix_rows(mirror: CacheMirror, chats: Chats, width: int, signs: Signs) -> Iterator[Pieces]:
    """Chat by chat: blocks that both hold; on the diagonal those of its own."""
    label = min(MAX_LABEL, max(map(cell_len, chats.names.values()), default=0))
    shown = list(chats.names)[: max(1, (width - label) // _COLUMN)]
    counts = shared_blocks(mirror, shown)
    yield [
        (" " * label, ""),
        *((f"{shown_number(chats.number(one)):>{_COLUMN}}", f"@{chats.number(one)}") for one in shown),
    ]
    for row in shown:
        name = fit(short_label(chats.names[row], label), label)
        cells = [_cell(counts.get((row, column), 0), row == column, signs) for column in shown]
        yield [(to_ascii(name) if signs.ascii_only else name, f"@{chats.number(row)}"), *cells]
    if hidden := len(chats.names) - len(shown):
        yield [(f"and {count(hidden, 'more chat')}, for which there is no room", "dim")]


def _head(number: int, width: int) -> Piece:
    return f"{shown_number(number):>{width}}", f"@{number}"


def _cell(number: int, own: bool, signs: Signs) -> Piece:
    if not number:
        return f"{signs.none:>{_COLUMN}}", "dim"
    return f"{number:>{_COLUMN}}", "own" if own else "shared"


def saving_rows(found: Saving, block_bytes: int, width: int, signs: Signs) -> Iterator[Pieces]:
    """What sharing saves, that nobody miscounted, and how much of the prompts was found."""
    saved = found.entries - found.used
    first: Pieces = [
        (f"saves {count(saved, 'block')} = {format_size(saved * block_bytes)}", "shared" if saved else "dim")
    ]
    second: Pieces = [
        (f"{found.refs} refs {'=' if found.agrees else 'but'} {found.entries} entries ", "dim"),
        (signs.good, "good") if found.agrees else (signs.wrong, "wrong"),
    ]
    line = [*first, (signs.dot, "dim"), *second]
    yield from [line] if _cells(line) <= width else [first, second]
    yield _hit_row(found, width, signs)


def _hit_row(found: Saving, width: int, signs: Signs) -> Pieces:
    if not found.queries:
        return [("prefix cache: nothing looked up yet", "dim")]
    filled = round(found.hit_rate * _BAR)
    drawn = "#" * filled + "." * (_BAR - filled) if signs.ascii_only else bar(found.hit_rate, _BAR)
    row: Pieces = [("prefix cache ", "dim"), (drawn, "good")]
    figures = f" {found.hit_rate:.0%} of {found.queries:,}"
    whole = [*row, (f"{figures} tokens found", "dim")]
    return whole if _cells(whole) <= width else [*row, (figures, "dim")]


def _cells(pieces: Pieces) -> int:
    return sum(cell_len(text) for text, _ in pieces)


def advice_rows(twins: Twins | None, chats: Chats) -> Iterator[Pieces]:
    """What could be shared and is not."""
    if twins is not None:
        names = " ".join(shown_number(chats.number(seq_id)) for seq_id in twins.seq_ids)
        advice = f"fork instead of paste saves {count(twins.num_blocks, 'block')}"
        yield [(advice, "advice"), (f": chats {names} hold equal beginnings apart", "dim")]


def tree_heading(tree: PrefixTree) -> Pieces:
    """What stands above the tree."""
    if not tree.nodes:
        return [("no findable prefixes yet: a block can be found once it is full", "dim")]
    rest = f"; {count(tree.num_left_out, 'block')} more for which there is no room" if tree.num_left_out else ""
    return [(f"prefixes that can be found{rest}", "dim")]


def node_row(
    node: PrefixNode, mirror: CacheMirror, texts: Mapping[int, bytes], chats: Chats, width: int, signs: Signs
) -> Pieces:
    """`└ "You are a pirate." 6 blk  1 2 3`."""
    rails = "".join(signs.rail if more else "  " for more in node.rails)
    branch = rails + ((signs.last if node.is_last else signs.fork) if node.depth else "")
    figures = f" {len(node.blocks)} blk "
    owners = _owners(node, mirror, chats, signs)
    room = width - cell_len(branch) - len(figures) - _cells(owners)
    tokens = [token for block_id in node.blocks[:_QUOTED_BLOCKS] for token in mirror.block_tokens[block_id]]
    text = quote(tokens, texts, max(3, room), ascii_only=signs.ascii_only)
    return [(branch, "dim"), (text, "text" if node.owners else "idle"), (figures, "dim"), *owners]


def _owners(node: PrefixNode, mirror: CacheMirror, chats: Chats, signs: Signs) -> Pieces:
    pieces: Pieces = [
        (f" {shown_number(chats.number(one))}", f"@{chats.number(one)}") for one in node.owners[:_SHOWN_OWNERS]
    ]
    if more := len(node.owners) - len(pieces):
        pieces.append((f" +{more}", "dim"))
    if not node.owners:
        pieces.append((" cached" if node.is_reachable else " cut off", "dim"))
    if any(block_id in mirror.pinned for block_id in node.blocks):
        pieces.append((" !" if signs.ascii_only else " ◊", "pinned"))
    return pieces
