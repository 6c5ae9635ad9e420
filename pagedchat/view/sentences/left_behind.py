"""What an engine that ended had been told by the user, and what of it the next one has. Words alone, no process."""

from typing import NamedTuple

from pagedchat.events import EngineNotice
from pagedchat.view.sentences.words import count


class LeftBehind(NamedTuple):
    """By the engine that ended."""

    paused: bool = False
    pace: float = 0.0
    """Seconds that a step took at least."""
    limit: int | None = None
    """Blocks that the pool might use."""
    num_pins: int = 0


NOTHING = LeftBehind()


def carried_over(left: LeftBehind) -> list[EngineNotice]:
    """What is to be said when the next engine is ready: its client sets all but the pins again."""
    again = [
        words
        for words, is_set in (
            ("it is paused", left.paused),
            (f"a step takes at least {left.pace * 1000:g} ms", left.pace > 0),
            (f"the limit is {left.limit}", left.limit is not None),
        )
        if is_set
    ]
    told = [f"As before, {_listed(again)}."] if again else []
    if left.num_pins:
        told.append(f"{count(left.num_pins, 'pin')} went with the old engine's blocks.")
    return [EngineNotice(f"The engine runs again. {' '.join(told)}")] if told else []


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
