"""All turns that were ever said in chats which were forked from one another: a tree, of which each chat is a path.

Nothing is taken out of it: a reply that was asked for again and a prompt that was edited are siblings of what came
in their place. A prompt that was taken back before there was a reply stays too, but is nobody's sibling. Knows no
chat, no screen, no disk.
"""

from collections.abc import Iterable, Iterator, Sequence

from pagedchat.chat.turns import Entry

ROOT = 0
"""The parent of first prompts; no turn is called so."""


class ConversationTree:
    """One tree. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._entries: dict[int, Entry] = {}
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {ROOT: []}
        self._chosen: dict[int, int] = {}
        """Turn -> the child by which somebody went on last."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, turn_id: int) -> bool:
        return turn_id in self._entries

    # --- growing ------------------------------------------------------------------------------------

    def add_path(self, path: Iterable[Entry]) -> None:
        """Turns that follow each other from the first on; those that are here already are gone through again."""
        parent = ROOT
        for entry in path:
            self.add(entry, parent)
            parent = entry.turn_id

    def add(self, entry: Entry, parent: int) -> None:
        """A turn behind another that is here. If it is here too the choice changes, and so does its text, where a
        reply that was cut short was gone on with."""
        if entry.turn_id in self._entries:
            if entry != self._entries[entry.turn_id]:
                self._entries[entry.turn_id] = entry
                self.version += 1
        else:
            self._entries[entry.turn_id] = entry
            self._parents[entry.turn_id] = parent
            self._children[entry.turn_id] = []
            self._children[parent].append(entry.turn_id)
            self.version += 1
        self._chosen[parent] = entry.turn_id

    def take_over(self, other: "ConversationTree") -> None:
        """All turns of another part of the same conversation."""
        for entry, parent in other.all_turns():
            if parent == ROOT or parent in self._entries:
                self.add(entry, parent)

    # --- reading ------------------------------------------------------------------------------------

    def all_turns(self) -> Iterator[tuple[Entry, int]]:
        """Every turn and its parent: parents first, siblings in the order in which they came to be."""
        waiting = list(reversed(self._children[ROOT]))
        while waiting:
            turn_id = waiting.pop()
            yield self._entries[turn_id], self._parents[turn_id]
            waiting.extend(reversed(self._children[turn_id]))

    def siblings(self, turn_id: int) -> list[int]:
        """The turns with the same parent, this one among them; oldest first."""
        return [one for one in self._children[self._parents[turn_id]] if one == turn_id or self.is_answered(one)]

    def last_choice(self, path: Sequence[Entry]) -> tuple[int, list[int]]:
        """Of a path, the siblings of the last turn that has some, and which of them it is; none of them if none
        has."""
        for entry in reversed(path):
            siblings = self.siblings(entry.turn_id)
            if len(siblings) > 1:
                return siblings.index(entry.turn_id), siblings
        return 0, []

    def is_answered(self, turn_id: int) -> bool:
        """Whether it is a reply, or a prompt with one."""
        return self._entries[turn_id].turn.role == "assistant" or bool(self._children[turn_id])

    def behind(self, turn_id: int) -> list[Entry]:
        """What was said behind it, oldest first, prompts that were taken back among it."""
        return [self._entries[one] for one in self._children[turn_id]]

    def path_to(self, turn_id: int) -> list[Entry]:
        """From the first prompt to this turn; empty for `ROOT`."""
        path = []
        while turn_id != ROOT:
            path.append(self._entries[turn_id])
            turn_id = self._parents[turn_id]
        return path[::-1]

    def path_to_reply(self, turn_id: int) -> list[Entry]:
        """To this reply, or the one that a prompt was gone on with last; a prompt without one is left out."""
        path = self.path_to(turn_id)
        if path and path[-1].turn.role == "user":
            children = self._children[turn_id]
            path = [*path, self._entries[self._chosen.get(turn_id, children[-1])]] if children else path[:-1]
        return path

    def path_through(self, turn_id: int) -> list[Entry]:
        """To this turn, and on as somebody went on last, to a reply: a prompt that has none yet is no end."""
        path = self.path_to(turn_id)
        while children := self._children[path[-1].turn_id if path else ROOT]:
            last = path[-1].turn_id if path else ROOT
            path.append(self._entries[self._chosen.get(last, children[-1])])
        while path and path[-1].turn.role == "user":
            path.pop()
        return path


def shared_length(one: Sequence[Entry], other: Sequence[Entry]) -> int:
    """With how many of the same turns two paths begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a.turn_id != b.turn_id), min(len(one), len(other)))
