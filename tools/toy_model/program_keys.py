"""Questions about pagedchat's keys and commands, made from `program_keys.toml`. Knows no other text."""

import random
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tools.toy_model.conversations import Conversation, Message

SOURCE = "drill_keys"
_SPELLED = 0.15
"""Share of the answers that say what `^` is."""


@cache
def table() -> Mapping[str, Any]:
    """The whole file."""
    found: dict[str, Any] = tomllib.loads(Path(__file__).with_name("program_keys.toml").read_text(encoding="utf-8"))
    return found


def key_questions(rng: random.Random, count: int) -> Iterator[Conversation]:
    """How to do something, what a key does; one to three turns."""
    rows = table()["keys"]
    for _ in range(count):
        drawn = rng.sample(rows, rng.choice((1, 1, 1, 2, 3)))
        messages: list[Message] = []
        for row in drawn:
            question, answer = _asked(rng, row, first=not messages)
            messages += [("user", question), ("assistant", answer)]
        yield Conversation(SOURCE, tuple(messages))


def _asked(rng: random.Random, row: Mapping[str, Any], first: bool) -> tuple[str, str]:
    questions = table()["questions"]
    if "key" in row and rng.random() < 0.2:
        return rng.choice(questions["what"]).format(k=_named(rng, row)), _meaning(row)
    wish = rng.choice(row["to"])
    if first and rng.random() < 0.15:
        return rng.choice(questions["can"]).format(v=wish), f"Yes. {_answer(rng, row)}"
    return rng.choice(questions["how" if first else "next"]).format(v=wish), _answer(rng, row)


def _named(rng: random.Random, row: Mapping[str, Any]) -> str:
    key: str = row["key"]
    if row.get("inspector"):
        return f"{key} in the inspector"
    if key.startswith("^"):
        return rng.choice((key, f"Ctrl+{key[1:]}", f"ctrl+{key[1:].lower()}", f"ctrl {key[1:].lower()}"))
    return rng.choice((key, key, key.lower()))


def _meaning(row: Mapping[str, Any]) -> str:
    return f"In the inspector: {row['say']}" if row.get("inspector") else f"{row['say']} {row['more']}"


def _answer(rng: random.Random, row: Mapping[str, Any]) -> str:
    command: str | None = row.get("command")
    if "key" not in row:
        return rng.choice((f"Write {command}. {row['more']}", row["say"], f"{row['say']} {row['more']}"))
    key: str = row["key"]
    if key.startswith("^") and rng.random() < _SPELLED:
        key = f"{key}, that is Ctrl+{key[1:]}"
    if row.get("inspector"):
        press = f"Open the inspector with F3 and press {'the comma' if key == 'comma' else key}."
        return rng.choice((press, f"In the inspector: {row['say']}", f"{press} {row['more']}"))
    answers = [f"Press {key}.", row["say"], f"Press {key}. {row['more']}", f"{row['say']} {row['more']}"]
    if command:
        answers.append(f"Press {key}, or write {command}.")
    return str(rng.choice(answers))
