"""Stop strings: where a text that comes in pieces meets the first of several, and what of it may go out before.

Knows tokenizers and detokenizers, no sequences.
"""

import copy
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache

from tokenizers import Tokenizer

from pagedchat.chat.detokenizer import detokenizer
from pagedchat.chat.token_texts import byte_text

_REPLACEMENT = "\ufffd"
"""Has no bytes of its own in a text: it stands for bytes that are no character."""


class StopStrings:
    """Finds where a text that comes in pieces holds the first of several strings, reading every character once.

    Of each string it is known, for every beginning of it, which shorter beginning the text may still be in where
    the next character does not fit (Knuth, Morris and Pratt 1977). So time and memory grow with the length of the
    strings and not with its square. What is known of a text so far is *open*: word -> how many of its characters
    the text ends with. Never changed, so replies share it.
    """

    __slots__ = ("_beginning_with", "_fallbacks", "first_bytes", "openings")

    def __init__(self, words: Sequence[str]) -> None:
        self._fallbacks = {word: _fallbacks(word) for word in words}
        self._beginning_with: dict[str, list[str]] = {}
        for word in self._fallbacks:
            self._beginning_with.setdefault(word[0], []).append(word)
        self.openings = frozenset(self._beginning_with)
        """The characters with which they begin: a text without them needs no further look while nothing is open."""
        encoded = [word.encode(errors="surrogatepass") for word in self._fallbacks]
        self.first_bytes = None if _REPLACEMENT in "".join(words) else frozenset(word[0] for word in encoded)
        """The bytes with which they begin, of which the same is true; None where bytes do not tell."""

    def advance(self, open_words: dict[str, int], character: str) -> dict[str, int]:
        """What is open after one more character; one that is open in full is complete."""
        after = {word: 1 for word in self._beginning_with.get(character, ()) if word not in open_words}
        for word, matched in open_words.items():
            fallback = self._fallbacks[word]
            length = matched
            while length and word[length] != character:
                length = fallback[length - 1]
            if word[length] == character:
                after[word] = length + 1
            elif length:
                after[word] = length
        return after

    def past_complete(self, open_words: dict[str, int]) -> dict[str, int]:
        """What stays open where those that are complete do not count."""
        shorter = {
            word: self._fallbacks[word][-1] if length == len(word) else length
            for word, length in open_words.items()
        }
        return {word: length for word, length in shorter.items() if length}


def _fallbacks(word: str) -> "array[int]":
    """For each beginning of `word`, by its length less one: the longest shorter beginning with which it ends."""
    fallbacks = array("I", [0])
    length = 0
    for character in word[1:]:
        while length and word[length] != character:
            length = fallbacks[length - 1]
        length += word[length] == character
        fallbacks.append(length)
    return fallbacks


@lru_cache(maxsize=16)
def _stop_strings(words: tuple[str, ...]) -> StopStrings:
    """Made once for all replies with the same ones."""
    return StopStrings(words)


def _anything(_token_id: int) -> bool:
    return True


def _harmless(tokenizer: Tokenizer, stop: StopStrings, skip_special_tokens: bool) -> Callable[[int], bool] | None:
    """In which tokens no stop string begins; None where that cannot be told of each token alone."""
    if not stop.openings:
        return _anything
    text = byte_text(tokenizer, skip_special_tokens)
    return None if text is None or stop.first_bytes is None else text.harmless(stop.first_bytes)


class OutputProcessor:
    """Releases text as soon as no stop string can take it back.

    ::

        released text |<- held back ->| not decoded yet
        ..............|  may be the   |  incomplete
                      |  start of a   |  character
                      |  stop string  |

    Args:
        tokenizer: of the model.
        stop: the text ends before whichever of them is complete first (of several at the same place, the longest).
        context_ids: the tokens before the first one.
        skip_special_tokens: leave out tokens such as the end of the sequence.
        includes_stop: release the stop string that ends the text as well.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        context_ids: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
        includes_stop: bool = False,
    ) -> None:
        self.text = ""
        """Released so far."""
        self.stopped = False
        """A stop string was met; nothing more will be released."""
        self.stop_string: str | None = None
        """Which one."""
        self._includes_stop = includes_stop
        self._detokenizer = detokenizer(tokenizer, context_ids, skip_special_tokens)
        self._stop = _stop_strings(tuple(stop))
        self._is_harmless = _harmless(tokenizer, self._stop, skip_special_tokens)
        self._open: dict[str, int] = {}
        """Which stop strings the held text may be the start of; the longest start is all of it."""
        self._held = ""

    @property
    def has_stops(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._stop.openings)

    @property
    def may_wait(self) -> Callable[[int], bool] | None:
        """Of the tokens that come next, which ones may wait to be taken: no stop string can be met, nor begun, by
        them. None: none of them may. Good until others are taken."""
        is_open = self._open or (self._stop.openings and self._detokenizer.is_inside_character)
        return None if is_open else self._is_harmless

    def append(self, token_ids: Sequence[int], *, may_stop: bool = True) -> str:
        """Take tokens; the text that they release. In how many pieces they come makes no difference to it.

        Args:
            token_ids: the next ones.
            may_stop: whether a stop string that is complete by these ends the text.
        """
        if self.stopped:
            return ""
        return self._take(self._detokenizer.append(token_ids), may_stop)

    def append_until_stop(self, token_ids: Sequence[int]) -> tuple[str, int]:
        """The same, and how many tokens it took for a stop string to be complete; all of them if none is."""
        released, count, total = [], 0, len(token_ids)
        while count < total and not self.stopped:
            may_wait, start = self.may_wait, count
            while may_wait is not None and count < total and may_wait(token_ids[count]):
                count += 1
            count = max(count, start + 1)
            released.append(self.append(token_ids[start:count]))
        return "".join(released), count

    def finish(self) -> str:
        """No more tokens will come: release what was held back."""
        if self.stopped:
            return ""
        released = self._take(self._detokenizer.finish(), True)
        return released if self.stopped else released + self._release(len(self._held))

    def fork(self) -> "OutputProcessor":
        """An independent copy that goes on from here."""
        twin = copy.copy(self)
        twin._detokenizer = self._detokenizer.fork()
        return twin

    def _take(self, text: str, may_stop: bool) -> str:
        if not self._open and self._stop.openings.isdisjoint(text):  # nearly every token
            self.text += text
            return text
        found = self._find_stop(text, may_stop)
        self._held += text
        if found is None:
            return self._release(len(self._held) - max(self._open.values(), default=0))
        end, self.stop_string = found
        released = self._release(end if self._includes_stop else end - len(self.stop_string))
        self.stopped, self._held = True, ""
        return released

    def _find_stop(self, text: str, may_stop: bool) -> tuple[int, str] | None:
        """Where in the held text and `text` after it the stop string ends that is complete first, and which it is;
        None if there is none yet.

        By the end and not by the start, so that the answer is the same for whatever pieces the text arrives in.
        """
        advance, openings, open_words = self._stop.advance, self._stop.openings, self._open
        for end, character in enumerate(text, len(self._held) + 1):
            if not open_words and character not in openings:
                continue
            open_words = advance(open_words, character)
            complete = [word for word, length in open_words.items() if length == len(word)]
            if complete and may_stop:
                return end, max(complete, key=len)
            if complete:
                open_words = self._stop.past_complete(open_words)
        self._open = open_words
        return None

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        self.text += released
        return released
