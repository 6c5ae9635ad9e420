"""Where the turns of a chat stand in the text of its sequence. Pure; knows templates only by what they leave.

The sequence's text is the turns with a template's words between them, so a short turn ("a") may read like a part of
those words. Only a place that cannot be another is told: the turns are found in order once from the start and once
from the end, and a turn counts as found where both agree.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from pagedchat.chat.template import ASSISTANT, USER
from pagedchat.chat.turns import Turn
from pagedchat.view.sentences.token_text import SequenceText

Place = int | None
"""Index of a turn's first character; None: not found, or not for certain."""
Fits = Callable[[Turn, int], bool]

_LABELS = {"user": USER, "assistant": ASSISTANT}


def find_turns(turns: Sequence[Turn], written: SequenceText, *, labelled: bool) -> list[Place]:
    """Where each turn's text begins in `written`.

    Args:
        turns: in order; those that the sequence does not hold (yet) are not found.
        written: the sequence.
        labelled: whether the turns stand behind `User:` and `Assistant:`.
    """
    if labelled:
        places = _agreed(turns, written.text, _behind_label(written.text))
        if any(place is not None for place in places):
            return places
    return _agreed(turns, written.text, _at_token(written))


def _agreed(turns: Sequence[Turn], text: str, fits: Fits) -> list[Place]:
    forward, backward = _from_start(turns, text, fits), _from_end(turns, text, fits)
    return [first if first == last else None for first, last in zip(forward, backward, strict=True)]


def _from_start(turns: Sequence[Turn], text: str, fits: Fits) -> list[Place]:
    places: list[Place] = []
    start = 0
    for turn in turns:
        place = next((at for at in _finds(turn.text, text, start) if fits(turn, at)), None)
        places.append(place)
        start = start if place is None else place + len(turn.text)
    return places


def _from_end(turns: Sequence[Turn], text: str, fits: Fits) -> list[Place]:
    places: list[Place] = []
    end = len(text)
    for turn in reversed(turns):
        place = next((at for at in _finds_back(turn.text, text, end) if fits(turn, at)), None)
        places.append(place)
        end = end if place is None else place
    return places[::-1]


def _finds(part: str, text: str, start: int) -> Iterator[int]:
    while part and (start := text.find(part, start)) >= 0:
        yield start
        start += 1


def _finds_back(part: str, text: str, end: int) -> Iterator[int]:
    while part and (at := text.rfind(part, 0, end)) >= 0:
        yield at
        end = at + len(part) - 1


def _behind_label(text: str) -> Fits:
    """Whether a place stands at the start of what the plain transcript gives to the turn's role."""

    def fits(turn: Turn, at: int) -> bool:
        label = _LABELS.get(turn.role, "")
        while at and text[at - 1].isspace():
            at -= 1
        start = at - len(label)
        return start >= 0 and text.startswith(label, start) and (start == 0 or text[start - 1] in "\n>")

    return fits


def _at_token(written: SequenceText) -> Fits:
    """Whether a token begins at a place, or with the space before it; no turn begins inside a special token."""

    def fits(turn: Turn, at: int) -> bool:
        return _starts_at(written, at) or (at > 0 and written.text[at - 1] == " " and _starts_at(written, at - 1))

    return fits


def _starts_at(written: SequenceText, at: int) -> bool:
    index = bisect_left(written.starts, at)
    return index < len(written.starts) and written.starts[index] == at
