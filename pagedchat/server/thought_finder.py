"""Whether a prompt ends inside a thought, so that the reply begins with one.

That is seen from the text of its last tokens, which for one model are nearly
always the same, so that the engine is rarely asked.
"""

from collections import OrderedDict

from pagedchat.server.engine import Engine
from pagedchat.server.replies.thoughts import opened_by

_TAIL = 8
"""Tokens of a prompt; `<think>` and a line end are no more, even if every character is one."""
_MOST_KNOWN = 256


class ThoughtFinder:
    """Finds out whether prompts end inside a thought."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[tuple[int, ...], str] = OrderedDict()

    async def opened_by(self, prompt_token_ids: list[int]) -> str:
        """The name of the tag that is open; empty if none is."""
        tail = tuple(prompt_token_ids[-_TAIL:])
        if tail not in self._known:
            self._known[tail] = opened_by(await self._engine.detokenize(list(tail)))
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(tail)
        return self._known[tail]
