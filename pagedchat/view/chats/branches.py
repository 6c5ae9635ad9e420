"""The tree of a conversation as rows: every turn once, siblings one below the other, and which chats stand where.

Turns that follow each other without a choice stand below each other; only where there are siblings does it go in.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pagedchat.chat.session import ChatSession
from pagedchat.chat.tree import ROOT, ConversationTree
from pagedchat.chat.turns import Entry

_BESIDE, _LAST, _PAST, _EMPTY = "├ ", "└ ", "│ ", "  "


class BranchRow(NamedTuple):
    """One turn."""

    entry: Entry
    guide: str
    """Lines from its siblings to it."""
    chats: tuple[ChatSession, ...]
    """Those whose last turn it is, in the order of the screen; what they are writing comes behind it."""
    on_path: bool
    """Whether the active chat came through it."""


class _Waiting(NamedTuple):
    turn: Entry
    guide: str
    below: str
    """The guide of what follows it."""


def branch_rows(active: ChatSession, chats: Iterable[ChatSession]) -> list[BranchRow]:
    """The tree that the active chat is a path of.

    Args:
        active: the chat.
        chats: all that are open; those of other trees are nowhere in it.
    """
    tree = active.tree
    standing: dict[int, list[ChatSession]] = {}
    for chat in chats:
        if chat.tree is tree and chat.entries:
            standing.setdefault(chat.entries[-1].turn_id, []).append(chat)
    path = {entry.turn_id for entry in active.entries}
    rows = []
    waiting = _in_turn(_shown(tree, ROOT, standing), "")
    while waiting:
        entry, guide, below = waiting.pop()
        rows.append(BranchRow(entry, guide, tuple(standing.get(entry.turn_id, ())), entry.turn_id in path))
        waiting += _in_turn(_shown(tree, entry.turn_id, standing), below)
    return rows


def _shown(tree: ConversationTree, parent: int, standing: dict[int, list[ChatSession]]) -> list[Entry]:
    """Without prompts that were taken back, but with those that are being answered."""
    return [entry for entry in tree.behind(parent) if tree.is_answered(entry.turn_id) or entry.turn_id in standing]


def _in_turn(turns: Sequence[Entry], guide: str) -> list[_Waiting]:
    """The last of these comes first off the end of the list."""
    if len(turns) < 2:
        return [_Waiting(entry, guide, guide) for entry in turns]
    first = [_Waiting(entry, guide + _BESIDE, guide + _PAST) for entry in turns[:-1]]
    return [_Waiting(turns[-1], guide + _LAST, guide + _EMPTY), *reversed(first)]
