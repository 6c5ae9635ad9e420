"""How sure a model was of a reply: its tokens by their probabilities, and what else might have stood in a place.

Pure: sessions in, plain values out. The probabilities are the model's own, before temperature and any rule.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from math import exp
from typing import Literal, NamedTuple

from pagedchat.chat.session import ChatSession
from pagedchat.errors import RequestError
from pagedchat.events import ToldToken, packed, unpacked
from pagedchat.view.chats.chat_tokens import Passage
from pagedchat.view.markdown.pieces import Pieces, drawn_spans, source_span

Likelihood = Literal["sure", "likely", "unsure", "doubtful"]
LIKELIHOODS: tuple[tuple[Likelihood, float], ...] = (
    ("sure", 0.9), ("likely", 0.5), ("unsure", 0.2), ("doubtful", 0.0),
)  # fmt: skip
"""What a token is called that is at least so probable."""
ALTERNATIVES = 5
"""Tokens that are told of in each place, where nobody says how many."""


class TokenPlace(NamedTuple):
    """A token of a chat's reply."""

    turn: int
    """Index of the turn; one past the last is the reply that is being written."""
    token: int
    """Its index in the reply."""


class Alternative(NamedTuple):
    """A token that might have stood in a place, or the one that does."""

    token_id: int
    text: bytes
    """What it stands for; maybe only a part of a character."""
    probability: float
    rank: int
    """1 for the likeliest; 0 where it is not known."""
    is_written: bool
    """Whether it is the one that does."""


# --- reading ----------------------------------------------------------------------------------------------


def told_of(session: ChatSession, turn: int) -> Sequence[ToldToken]:
    """What is told of the tokens of a turn; empty where nobody asked, and after the program was started again."""
    if turn < 0 or turn > len(session.entries):
        return ()
    return session.entries[turn].told if turn < len(session.entries) else session.open_told


def last_told(session: ChatSession) -> int | None:
    """The newest turn of whose tokens something is told."""
    return next((turn for turn in range(len(session.entries), -1, -1) if told_of(session, turn)), None)


def probability(token: ToldToken) -> float | None:
    """Of the token that stands there; None where it is not known."""
    return exp(unpacked(token.logprobs[:4])[0]) if token.logprobs else None


def likelihood(token: ToldToken) -> Likelihood:
    """In which of four classes a token is; one that was given counts as sure."""
    known = probability(token)
    return "sure" if known is None else next(name for name, least in LIKELIHOODS if known >= least)


def alternatives(token: ToldToken) -> list[Alternative]:
    """What might have stood there, the likeliest first, and what does: at its rank, or behind them."""
    if not token.logprobs:
        return [Alternative(token.token_ids[0], token.texts[0], 1.0, 0, is_written=True)]
    own, *others = zip(token.token_ids, token.texts, map(exp, unpacked(token.logprobs)), strict=True)
    found = [Alternative(*other, rank, other[0] == own[0]) for rank, other in enumerate(others, 1)]
    if not any(each.is_written for each in found):
        found.append(Alternative(*own, token.rank, is_written=True))
    return found


# --- on the screen ----------------------------------------------------------------------------------------


def token_at(told: Sequence[ToldToken], position: int) -> int | None:
    """The token that has this character of the reply, the last of them where several have parts of it."""
    index = bisect_right(told, position, key=lambda token: token.start) - 1
    while index >= 0 and told[index].end <= position:
        index -= 1
    return index if index >= 0 and told[index].start <= position else None


def passage_of(session: ChatSession, place: TokenPlace) -> Passage:
    """The characters of a token; none where there is no such token any more."""
    told = told_of(session, place.turn)
    token = told[place.token] if place.token < len(told) else None
    return Passage(place.turn, token.start, token.end) if token is not None else Passage(place.turn, 0, 0)


def row_likelihoods(told: Sequence[ToldToken], pieces: Pieces) -> Iterator[tuple[int, int, Likelihood]]:
    """The parts of a drawn row that are less than sure: first character, the one after the last, how sure."""
    source = source_span(pieces, 0, sum(len(piece.text) for piece in pieces))
    if source is None:
        return
    first = bisect_right(told, source[0], key=lambda token: token.end)
    last = bisect_left(told, source[1], key=lambda token: token.start)
    for token in told[first:last]:
        if (name := likelihood(token)) != "sure":
            yield from ((start, end, name) for start, end in drawn_spans(pieces, token.start, token.end))


# --- going on otherwise -----------------------------------------------------------------------------------


def begun_with(session: ChatSession, place: TokenPlace, token_id: int) -> list[ToldToken]:
    """A reply up to a token, with another in its place.

    Raises:
        RequestError: there is no such token any more, or this one is none of its alternatives.
    """
    told = told_of(session, place.turn)
    token = told[place.token] if 0 <= place.token < len(told) else None
    found = [each for each in alternatives(token) if each.token_id == token_id] if token is not None else []
    if token is None or not found:
        raise RequestError("This token cannot be put there: the reply is another one by now.", "Choose it again.")
    return [*told[: place.token], _chosen(token, found[0])]


def _chosen(token: ToldToken, chosen: Alternative) -> ToldToken:
    """The same place with another token; the engine will say where it ends."""
    if chosen.is_written:
        return token
    at = token.token_ids.index(chosen.token_id, 1)
    logprobs = unpacked(token.logprobs)
    return ToldToken(
        token.start, token.start, chosen.rank,
        [chosen.token_id, *token.token_ids[1:]], [chosen.text, *token.texts[1:]],
        packed([logprobs[at], *logprobs[1:]]),
    )  # fmt: skip
