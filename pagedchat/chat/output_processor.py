"""One request's tokens -> its text, ended by stop strings. Knows no engine and no screen.

::

    released text |<- held back ->| not decoded yet
    ..............|  may be the   |  incomplete
                  |  start of a   |  character
                  |  stop string  |
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from pagedchat.chat.detokenizer import Detokenizer


class OutputProcessor:
    """Releases text as soon as no stop string can take it back.

    Args:
        tokenizer: `None` gives no text at all.
        stop: the text ends before whichever of them is complete first.
        context_ids: the tokens before the first one.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, stop: Sequence[str] = (), context_ids: Sequence[int] = ()
    ) -> None:
        self.text = ""
        """Released so far."""
        self.stopped = False
        """A stop string was met; nothing more will be released."""
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer, context_ids)
        self._stop = tuple(stop)
        self._openings = frozenset(word[:length] for word in stop for length in range(1, len(word)))
        self._longest_opening = max(map(len, self._openings), default=0)
        self._held = ""

    def append(self, token_ids: Sequence[int]) -> str:
        """Take tokens; the text that they release."""
        if self._detokenizer is None or self.stopped:
            return ""
        return self._take(self._detokenizer.append(token_ids))

    def finish(self) -> str:
        """No more tokens will come: release what was held back."""
        if self._detokenizer is None or self.stopped:
            return ""
        released = self._take(self._detokenizer.finish())
        return released if self.stopped else released + self._release(len(self._held))

    def fork(self) -> "OutputProcessor":
        """An independent copy that goes on from here."""
        twin = OutputProcessor(None, self._stop)
        twin.text, twin.stopped, twin._held = self.text, self.stopped, self._held
        twin._detokenizer = self._detokenizer and self._detokenizer.fork()
        return twin

    def _take(self, text: str) -> str:
        self._held += text
        cut = find_stop(self._held, self._stop)
        self.stopped = cut is not None
        released = self._release(len(self._held) - self._open_length() if cut is None else cut)
        if self.stopped:
            self._held = ""
        return released

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        self.text += released
        return released

    def _open_length(self) -> int:
        """Length of the longest end of the held text with which a stop string begins."""
        lengths = range(min(self._longest_opening, len(self._held)), 0, -1)
        return next((length for length in lengths if self._held[-length:] in self._openings), 0)


def find_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first (of several, the longest); `None` if there is none.

    By the end and not by the start, so that the answer is the same for whatever pieces the text arrives in.
    """
    starts = [(start + len(word), start) for word in stop if (start := text.find(word)) >= 0]
    return min(starts)[1] if starts else None
