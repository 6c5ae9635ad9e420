"""A reply while it is being written: its text so far, what is told of its tokens, and in whose place it comes.

Knows no chat; what becomes of it when it ends, it says as an entry.
"""

from collections.abc import Sequence

import msgspec

from pagedchat.chat.identity import new_id
from pagedchat.chat.turns import Ending, Entry, Turn
from pagedchat.events import ToldToken


class OpenReply:
    """One reply.

    Args:
        replaced: the reply in whose place it comes, or with which it goes on.
        turn_id: of its entry; a new one if none is given.
    """

    def __init__(self, replaced: Entry | None = None, turn_id: int | None = None) -> None:
        self.turn_id = new_id() if turn_id is None else turn_id
        self.text = ""
        self.num_tokens = 0
        self.told: list[ToldToken] = []
        """How likely its tokens were, as far as that was asked for and told."""
        self._replaced = replaced
        self._restarted = self._goes_on = False
        self._told_from: tuple[int, int] | None = (0, 0)
        """Characters and tokens that were there before the request; None: of some nothing is told, so that nothing
        can be told of the rest."""

    # --- how it begins ------------------------------------------------------------------------------

    @classmethod
    def going_on(cls, replaced: Entry) -> "OpenReply":
        """It goes on with one that was cut short, whose text comes first."""
        reply = cls(replaced)
        reply._goes_on, reply.text = True, replaced.turn.text
        whole = bool(replaced.told) and replaced.told[-1].end >= len(reply.text)
        reply.told = list(replaced.told) if whole else []
        reply._told_from = (len(reply.text), len(reply.told)) if whole else None
        return reply

    def begin_with(self, text: str, told: Sequence[ToldToken]) -> None:
        """It begins with these tokens of another one."""
        self.text, self.told, self.num_tokens = text, list(told), len(told)

    def forked(self) -> "OpenReply":
        """A second one that has all that this one has, and is written on by itself."""
        other = OpenReply(self._replaced)
        other.text, other.num_tokens, other.told = self.text, self.num_tokens, self.told.copy()
        other._goes_on, other._told_from = self._goes_on, self._told_from
        return other

    # --- what comes ---------------------------------------------------------------------------------

    def start(self) -> None:
        """All of its text is told from the start: the first piece to come takes the place of what is there. What it
        goes on with, if it does, stays before it."""
        self._restarted = not self._goes_on
        if self._goes_on and self._replaced is not None:
            self.text = self._replaced.turn.text

    def hear_anew(self, begun: str) -> None:
        """All that was written comes again; `begun` is what it goes on with, or nothing."""
        self._goes_on = bool(begun)
        if begun:
            self.text = begun

    def append(
        self, text: str, num_tokens: int, told: Sequence[ToldToken] = (), num_told: int = 0, *, anew: bool = False
    ) -> None:
        """More text, or with `anew` all of it; and what is told of its tokens, the first so many left out."""
        self._restarted = self._restarted or anew
        self._take_told(told, num_told)
        self.text = text if self._restarted else self.text + text
        self._restarted = False
        self.num_tokens = num_tokens

    def _take_told(self, told: Sequence[ToldToken], num_told: int) -> None:
        """Of a token with which the reply was to begin only its place is told; the rest may be known."""
        if self._told_from is None or num_told + self._told_from[1] > len(self.told):
            return  # something was missed: nothing would be in its place
        characters, tokens = self._told_from
        for index, token in enumerate(told, num_told + tokens):
            known = self.told[index] if index < len(self.told) else token
            found = known if token.rank == 0 and known.token_ids[0] == token.token_ids[0] else token
            start, end = token.start + characters, token.end + characters
            self.told[index : index + 1] = [msgspec.structs.replace(found, start=start, end=end)]

    # --- what it leaves -----------------------------------------------------------------------------

    def entry(self, ending: Ending) -> Entry | None:
        """What is left when it ends so; None where nothing is: it wrote nothing and was cut short."""
        replaced = self._replaced
        if self._goes_on and replaced is not None and self.text == replaced.turn.text:
            return replaced  # nothing came
        if self.text or ending in ("complete", "length"):
            return Entry(Turn("assistant", self.text), ending, self.turn_id, within(self.told, len(self.text)))
        return replaced


def within(told: Sequence[ToldToken], length: int) -> tuple[ToldToken, ...]:
    """Those of a reply's tokens that belong to its text of this length: not those of a stop string behind it."""
    return tuple(token for token in told if token.start < length or token.start == token.end == length)
