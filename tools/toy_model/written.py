"""The texts written for this model (`text/*.txt`) -> conversations.

A record is a run of lines, ended by an empty one: `S:` a system prompt, `U:` the user, `A:` the assistant. Lines
that repeat a letter are alternatives of one turn, so one record gives many conversations:

    U: What is a lighthouse?
    U: what's a lighthouse for
    A: A tower by the sea with a bright light.
    A: It shows ships where the coast is.

`\\n` is a line break inside a message, `#` begins a comment, `{size}` is the number of parameters in words.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.toy_model.conversations import Conversation, Message, Role

ROLES: dict[str, Role] = {"S": "system", "U": "user", "A": "assistant"}
HELD_OUT_SHARE = 0.15
"""Share of the records with many wordings that keep one wording for validation."""
_MANY = 5
_AFTER_SUBJECT = re.compile(r"[^a-z]")


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its turns, each with its alternatives."""

    source: str
    turns: tuple[tuple[Role, tuple[str, ...]], ...]

    def wordings(self) -> tuple[str, ...]:
        """The alternatives of the user's first turn."""
        return next(texts for role, texts in self.turns if role == "user")


def read_records(folder: Path, size: str) -> list[Record]:
    """Read every record of `folder/*.txt`; `science2_space.txt` is of the source `written_science`.

    Args:
        folder: with the texts.
        size: what `{size}` becomes, as "15 million".

    Raises:
        ValueError: a line or a record out of form, with its file and line.
    """
    records = []
    for path in sorted(folder.glob("*.txt")):
        source = f"written_{re.split(_AFTER_SUBJECT, path.stem)[0]}"
        text = path.read_text(encoding="utf-8").replace("{size}", size)
        records += [Record(source, turns) for turns in _parse(path, text)]
    return records


def conversations_of(record: Record, rng: random.Random, wordings: tuple[str, ...]) -> Iterator[Conversation]:
    """One conversation for each of `wordings`, the other turns' alternatives taken in random order.

    Under several system prompts a wording comes twice, each time under another one.
    """
    systems = len(record.turns[0][1]) if record.turns[0][0] == "system" else 1
    rounds = 2 if systems > 1 else 1
    shuffled = {role_at: rng.sample(texts, len(texts)) for role_at, (_, texts) in enumerate(record.turns)}
    for index, wording in enumerate(wording for _ in range(rounds) for wording in wordings):
        messages: list[Message] = []
        asked = False
        for position, (role, _) in enumerate(record.turns):
            choices = shuffled[position]
            first_question = role == "user" and not asked
            asked = asked or role == "user"
            messages.append((role, wording if first_question else choices[index % len(choices)]))
        yield Conversation(record.source, tuple(messages))


def split(record: Record, rng: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The wordings to train on, and the one held out for validation (mostly none)."""
    wordings = record.wordings()
    if len(wordings) < _MANY or rng.random() >= HELD_OUT_SHARE:
        return wordings, ()
    kept_out = rng.randrange(1, len(wordings))  # the first is the plainest: it stays
    return wordings[:kept_out] + wordings[kept_out + 1 :], (wordings[kept_out],)


def _parse(path: Path, text: str) -> Iterator[tuple[tuple[Role, tuple[str, ...]], ...]]:
    turns: list[tuple[Role, list[str]]] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if turns:
                yield _checked(path, number, turns)
            turns = []
            continue
        letter, content = line[:1], line[3:].strip()
        if line[1:3] != ": " or letter not in ROLES or not content:
            raise ValueError(f"{path}, line {number}: expected 'S: ', 'U: ' or 'A: ' and a text, got {line!r}")
        role = ROLES[letter]
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(content.replace("\\n", "\n"))


def _checked(
    path: Path, number: int, turns: list[tuple[Role, list[str]]]
) -> tuple[tuple[Role, tuple[str, ...]], ...]:
    roles = [role for role, _ in turns]
    spoken = roles[1:] if roles[0] == "system" else roles
    if not spoken or spoken != ["user", "assistant"] * (len(spoken) // 2):
        raise ValueError(f"{path}, record before line {number}: the turns are {', '.join(roles)}")
    return tuple((role, tuple(texts)) for role, texts in turns)
