"""A streamed reply: pieces as they come from a server, and the chat's text as it comes of them.

The text is exactly what was sent. What a server tells apart as the model's thoughts stands before it between
`<think>` and `</think>`, as models themselves write it.
"""

from typing import Any

from pagedchat.cache_events import FinishReason
from pagedchat.remote.openai.plain import WholeCharacters, at, number_at, text_at

THOUGHT, END_OF_THOUGHT = "<think>\n", "\n</think>\n\n"
_REASONS: dict[str, FinishReason] = {"length": "length", "abort": "abort", "error": "error"}
"""All others (`stop`, `tool_calls`, `content_filter`, ...) mean that the model has come to an end."""


class ReplyReader:
    """Folds the pieces of one reply. Nothing in them is taken for granted."""

    def __init__(self) -> None:
        self.reason: FinishReason | None = None
        """How it ended; None: it has not, as far as the server has told."""
        self.num_prompt_tokens = self.num_cached_tokens = 0
        """0 where the server does not tell."""
        self._num_pieces = self._num_told = 0
        self._thinks = False
        self._whole = WholeCharacters()

    @property
    def num_tokens(self) -> int:
        """As the server counts them; until it tells, and where it never does, one a piece."""
        return self._num_told or self._num_pieces

    def take(self, piece: Any) -> str:
        """What a piece adds to the text."""
        self._take_usage(piece)
        choice = at(piece, "choices", 0)
        if choice is None:
            return ""
        delta = at(choice, "delta")
        thought = text_at(delta, "reasoning_content") or text_at(delta, "reasoning")
        said = text_at(delta, "content") or text_at(choice, "text")
        self._num_pieces += bool(thought or said)
        text = self._whole.feed(self._with_thought(thought, said)) if thought or said else ""
        if reason := text_at(choice, "finish_reason"):
            self.reason = _REASONS.get(reason, "stop")
            text += self.end()
        return text

    def end(self) -> str:
        """What is still to be added when no more comes."""
        closing = END_OF_THOUGHT.rstrip() if self._thinks else ""
        self._thinks = False
        return self._whole.end() + closing

    def _with_thought(self, thought: str, said: str) -> str:
        text = ""
        if thought:
            text = ("" if self._thinks else THOUGHT) + thought
            self._thinks = True
        if said:
            text += (END_OF_THOUGHT if self._thinks else "") + said
            self._thinks = False
        return text

    def _take_usage(self, piece: Any) -> None:
        usage, timings = at(piece, "usage"), at(piece, "timings")
        self._num_told = number_at(usage, "completion_tokens") or self._num_told
        self.num_prompt_tokens = number_at(usage, "prompt_tokens") or self.num_prompt_tokens
        cached = number_at(usage, "prompt_tokens_details", "cached_tokens") or number_at(timings, "cache_n")
        self.num_cached_tokens = min(cached or self.num_cached_tokens, self.num_prompt_tokens)
