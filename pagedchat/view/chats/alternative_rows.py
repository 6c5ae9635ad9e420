"""What is said of one token of a reply and of its alternatives, line by line, as pieces of text with the names of
their styles. Pure.
"""

from collections.abc import Sequence

from rich.cells import cell_len

from pagedchat.chat.session import ChatSession
from pagedchat.view.chats.likelihood import (
    LIKELIHOODS,
    Alternative,
    TokenPlace,
    alternatives,
    likelihood,
    told_of,
)
from pagedchat.view.sentences.token_text import quote_token
from pagedchat.view.sentences.words import bar, cut, to_ascii

Pieces = list[tuple[str, str]]
"""Text, style: `dim`, `text`, `bar`, `written`, `cursor`, or how sure the model was."""

_BAR = 12
_TEXT = 24
"""Cells of a token's text in the first line."""
_KEYS = "Enter forks · ←→ token · Alt+N unsure · ↑↓ · Esc"
_MARK, _NO_MARK = "► ", "  "


def alternative_rows(
    session: ChatSession, place: TokenPlace, chosen: int, width: int, *, ascii_only: bool
) -> list[Pieces]:
    """The token, its alternatives with a cursor on one of them, what the colours mean, the keys."""
    told = told_of(session, place.turn)
    token = told[place.token]
    found = alternatives(token)
    written = next(each for each in found if each.is_written)
    rows = [_token_row(written, token.start == token.end, place.token, len(told))]
    rows += [_alternative_row(each, index == chosen, width) for index, each in enumerate(found)]
    rows += [_legend(), [(_KEYS, "dim")]]
    rows[0].append((f" · {likelihood(token)}", likelihood(token)))
    fitting = [_fitting(row, width) for row in rows]
    return [[(to_ascii(text), style) for text, style in row] for row in fitting] if ascii_only else fitting


def _token_row(written: Alternative, is_empty: bool, index: int, count: int) -> Pieces:
    text = cut(quote_token(written.text), _TEXT)
    row = [(text, "text"), (f" token {index + 1} of {count}", "dim")]
    if is_empty and written.rank:
        row.append((" · the end of the reply", "dim"))
    row.append((f" · {_share(written)}", "dim"))
    return row


def _share(each: Alternative) -> str:
    return f"{_percent(each.probability)}, rank {each.rank}" if each.rank else "given, not drawn"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def _alternative_row(each: Alternative, is_chosen: bool, width: int) -> Pieces:
    mark, rank = (_MARK if is_chosen else _NO_MARK), (f"{each.rank:>4}" if each.rank else "    ")
    style = "cursor" if is_chosen else "written" if each.is_written else "text"
    behind = " (written)" if each.is_written else ""
    share = f"{_percent(each.probability):>7}" if each.rank else "       "
    figures: Pieces = [(mark, style), (f"{rank} {share} ", "dim")]
    if width >= 44 and each.rank:
        figures.append((bar(each.probability, _BAR) + " ", "bar"))
    room = max(4, width - sum(cell_len(text) for text, _ in figures) - len(behind))
    return [*figures, (cut(quote_token(each.text), room), style), (behind, "dim")]


def _legend() -> Pieces:
    """From how much on a token is drawn how."""
    row: Pieces = []
    for name, least in LIKELIHOODS:
        row += [(name, name), (f" {least:.0%}+  " if least else " below", "dim")]
    return row


def _fitting(row: Sequence[tuple[str, str]], width: int) -> Pieces:
    kept: Pieces = []
    for text, style in row:
        room = width - sum(cell_len(text) for text, _ in kept)
        if room > 0:
            kept.append((cut(text, room), style))
    return kept
