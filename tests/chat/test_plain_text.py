"""What is copied of a chat."""

import pytest

from pagedchat.chat.plain_text import code_blocks, replies, whole_chat
from pagedchat.chat.session import ChatSession


@pytest.fixture
def session() -> ChatSession:
    session = ChatSession(1, system="Be brief.")
    session.ask("hello", 1)
    session.append("hi", 1)
    session.finish("stop")
    return session


def test_replies_are_in_order_with_the_one_being_written_last(session: ChatSession) -> None:
    assert replies(session) == ["hi"]
    session.ask("more", 2)
    assert replies(session) == ["hi"], "nothing is written yet"
    session.append("once upon", 2)
    assert replies(session) == ["hi", "once upon"]


def test_a_whole_chat_names_its_speakers(session: ChatSession) -> None:
    assert whole_chat(session) == "### you\n\nhello\n\n### ai\n\nhi"
    session.ask("more", 2)
    session.append("once upon", 2)
    assert whole_chat(session) == "### you\n\nhello\n\n### ai\n\nhi\n\n### you\n\nmore\n\n### ai\n\nonce upon"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no code", []),
        ("```python\na = 1\nb = 2\n```\nand\n~~~\nls\n~~~", ["a = 1\nb = 2", "ls"]),
        ("```\nstill being wri", ["still being wri"]),
        ("````md\n```\ninner\n```\n````", ["```\ninner\n```"]),
        ("~~~\n```\nother fence\n~~~", ["```\nother fence"]),
        ("```\n```", [""]),
    ],
)
def test_code_stands_between_fences_of_one_kind(text: str, found: list[str]) -> None:
    assert code_blocks(text) == found
