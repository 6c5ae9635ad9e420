"""A conversation as training text, and the JSON-lines files that hold them. Knows no tokens."""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]
Message = tuple[Role, str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation: at most one system message, then user and assistant in turns."""

    source: str
    """Where the text comes from; weights and losses go by it."""
    messages: tuple[Message, ...]

    @property
    def system(self) -> str | None:
        """The system prompt, if there is one."""
        role, text = self.messages[0]
        return text if role == "system" else None

    @property
    def question(self) -> str:
        """The user's first words."""
        return next(text for role, text in self.messages if role == "user")

    @property
    def answer(self) -> str:
        """The assistant's first words."""
        return next(text for role, text in self.messages if role == "assistant")

    @property
    def is_one_turn(self) -> bool:
        """A question and its answer, under whatever system prompt."""
        return sum(role == "user" for role, _ in self.messages) == 1

    def under(self, system: str) -> "Conversation":
        """The same under another system prompt."""
        turns = self.messages if self.system is None else self.messages[1:]
        return replace(self, messages=(("system", system), *turns))


def one_turn(source: str, question: str, answer: str, system: str | None = None) -> Conversation:
    """A question and its answer."""
    conversation = Conversation(source, (("user", question), ("assistant", answer)))
    return conversation if system is None else conversation.under(system)


def read_jsonl(path: Path) -> Iterator[Conversation]:
    """Read `{"source": ..., "messages": [{"role": ..., "content": ...}, ...]}`, one a line; `.xz` or plain.

    Raises:
        ValueError: a line that is not of this form, with its number.
    """
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _from_json(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {number}: not a conversation ({error})") from error


def write_jsonl(path: Path, conversations: Iterable[Conversation]) -> None:
    """Write what `read_jsonl` reads."""
    with path.open("w", encoding="utf-8") as file:
        for conversation in conversations:
            messages = [{"role": role, "content": text} for role, text in conversation.messages]
            record = {"source": conversation.source, "messages": messages}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _from_json(record: dict[str, Any]) -> Conversation:
    messages = tuple((message["role"], str(message["content"])) for message in record["messages"])
    roles = [role for role, _ in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if not spoken or spoken != ["user", "assistant"] * (len(spoken) // 2):
        raise ValueError(f"the roles are {', '.join(roles)}")
    return Conversation(str(record["source"]), messages)
