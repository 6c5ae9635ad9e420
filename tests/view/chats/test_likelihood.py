"""How sure a model was of a reply: classes, tokens under a place, alternatives, and what a fork begins with."""

from math import log

import pytest

from pagedchat.chat.session import ChatSession
from pagedchat.errors import RequestError
from pagedchat.events import ToldToken, packed
from pagedchat.view.chats.alternative_rows import alternative_rows
from pagedchat.view.chats.likelihood import (
    TokenPlace,
    alternatives,
    begun_with,
    last_told,
    likelihood,
    passage_of,
    row_likelihoods,
    token_at,
    told_of,
)
from pagedchat.view.markdown.plain import PlainDocument

ESCAPE = b"\x1b[2J"


def told(start: int, end: int, own: tuple[int, bytes, float], *others: tuple[int, bytes, float]) -> ToldToken:
    each = [own, *others]
    rank = next((i for i, other in enumerate(others, 1) if other[0] == own[0]), len(others) + 1)
    ids, texts = [one[0] for one in each], [one[1] for one in each]
    return ToldToken(start, end, rank, ids, texts, packed([log(one[2]) for one in each]))


THE, SEA = (1, b"The", 0.95), (2, b" sea", 0.25)
BOAT, DARK = (3, b" boat", 0.5), (4, ESCAPE, 0.001)
REPLY = [told(0, 3, THE, THE), told(3, 7, SEA, BOAT, SEA, DARK), told(7, 8, (5, b".", 0.1), (6, b"!", 0.6))]


@pytest.fixture
def session() -> ChatSession:
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("The sea.", 3, REPLY, 0)
    session.finish("stop")
    return session


@pytest.mark.parametrize(
    ("share", "name"),
    [
        (1.0, "sure"),
        (0.9001, "sure"),
        (0.899, "likely"),
        (0.5001, "likely"),
        (0.499, "unsure"),
        (0.199, "doubtful"),
    ],
)
def test_classes(share: float, name: str) -> None:
    assert likelihood(told(0, 1, (1, b"x", share))) == name


def test_a_given_token_is_no_doubt() -> None:
    given = ToldToken(0, 1, 0, [1], [b"x"], b"")
    assert likelihood(given) == "sure"
    assert [(each.rank, each.is_written) for each in alternatives(given)] == [(0, True)]


def test_alternatives_stand_by_rank_and_the_written_one_behind_them_if_it_is_none() -> None:
    assert [(each.token_id, each.rank, each.is_written) for each in alternatives(REPLY[1])] == [
        (3, 1, False), (2, 2, True), (4, 3, False)
    ]  # fmt: skip
    found = alternatives(REPLY[2])
    assert [(each.token_id, each.rank, each.is_written) for each in found] == [(6, 1, False), (5, 2, True)]
    assert found[1].probability == pytest.approx(0.1, rel=1e-6)


def test_the_token_of_a_character() -> None:
    assert [token_at(REPLY, position) for position in (0, 2, 3, 6, 7, 8, 50)] == [0, 0, 1, 1, 2, None, None]
    shared = [told(0, 1, THE), told(0, 1, SEA)]
    assert token_at(shared, 0) == 1, "of several that have parts of it the last"


def test_turns_without_anything_told(session: ChatSession) -> None:
    assert (last_told(session), told_of(session, 0), told_of(session, 9), told_of(session, -1)) == (1, (), (), ())
    assert last_told(ChatSession(2)) is None
    assert passage_of(session, TokenPlace(1, 99)).end == 0


def test_only_what_is_less_than_sure_is_tinted() -> None:
    document = PlainDocument(40)
    document.update("The sea.", finished=True)
    assert list(row_likelihoods(REPLY, document.rows[0].pieces)) == [(3, 7, "unsure"), (7, 8, "doubtful")]


def test_rows_that_are_wrapped_have_their_own_parts() -> None:
    document = PlainDocument(4)
    document.update("The sea.", finished=True)
    found = [list(row_likelihoods(REPLY, row.pieces)) for row in document.rows]
    assert [name for row in found for *_, name in row] == ["unsure", "doubtful"]


# --- going on otherwise -----------------------------------------------------------------------------------


def test_a_fork_begins_with_the_tokens_before_and_the_chosen_one(session: ChatSession) -> None:
    begun = begun_with(session, TokenPlace(1, 1), 3)
    assert [token.token_ids[0] for token in begun] == [1, 3]
    assert (begun[1].rank, begun[1].start, begun[1].end) == (1, 3, 3)
    assert [each.probability for each in alternatives(begun[1])] == pytest.approx([0.5, 0.25, 0.001])
    assert [each.token_id for each in alternatives(begun[1]) if each.is_written] == [3]


@pytest.mark.parametrize(("place", "token_id"), [((1, 1), 77), ((1, 9), 3), ((0, 0), 1), ((1, -1), 6), ((7, 0), 1)])
def test_what_cannot_be_chosen_is_refused(session: ChatSession, place: tuple[int, int], token_id: int) -> None:
    with pytest.raises(RequestError, match="another one by now"):
        begun_with(session, TokenPlace(*place), token_id)


# --- in words ---------------------------------------------------------------------------------------------


def lines(session: ChatSession, token: int, width: int = 60, *, ascii_only: bool = False) -> list[str]:
    rows = alternative_rows(session, TokenPlace(1, token), 0, width, ascii_only=ascii_only)
    return ["".join(text for text, _ in row) for row in rows]


def test_a_token_is_told_with_its_share_and_its_rank(session: ChatSession) -> None:
    found = lines(session, 1)
    assert found[0] == '" sea" token 2 of 3 · 25.0%, rank 2 · unsure'
    assert found[1].startswith("►    1   50.0% ██████")
    assert found[1].endswith('" boat"')
    assert found[2].endswith('" sea" (written)')


def test_a_token_that_would_command_the_terminal_is_spelled_out(session: ChatSession) -> None:
    for width in (30, 60):
        text = "\n".join(lines(session, 1, width))
        assert "\x1b" not in text
        assert r"\x1b" in text


@pytest.mark.parametrize("width", [8, 20, 40, 60, 200])
def test_no_line_is_wider_than_there_is_room(session: ChatSession, width: int) -> None:
    assert all(len(line) <= width for token in range(3) for line in lines(session, token, width))


def test_in_ascii_there_is_nothing_else(session: ChatSession) -> None:
    assert "\n".join(lines(session, 1, 80, ascii_only=True)).isascii()
