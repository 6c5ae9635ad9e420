"""The places on the screen where a model's text is drawn, each as strips of a pane; made as the widgets make them.

A place takes the pieces of an output as they come and gives what the pane shows after each: as many strips as the
pane has rows, each as wide as the pane.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.strip import Strip
from textual.style import Style as ContentStyle
from textual.visual import RenderOptions

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.tui.chat.chat_pane import notice_content
from pagedchat.tui.chat.pane_title import pane_title
from pagedchat.tui.chat.transcript_paint import TranscriptPaint
from pagedchat.view.chats.chat_rows import ChatRows
from pagedchat.view.chats.reading import Reading
from pagedchat.view.chats.transcript_rows import Row
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.chat_texts import PastChat, past_rows, text_of
from pagedchat.view.sentences.token_text import quote, quote_token
from pagedchat.view.sentences.words import fit, short_label

Place = Callable[[list[str], int, int], Iterator[list[Strip]]]
"""`(pieces, width, height)` -> what is shown, once or more often."""

_STYLE = Style(color="white", bgcolor="black", bold=True)
_VIEW = EngineView()


def transcript(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """A reply while it is being written, below a prompt of the same text, and when it is done."""
    yield from _reply(pieces, width, height, Reading())


def markdown_transcript(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """The same as Markdown, with its thoughts."""
    yield from _reply(pieces, width, height, Reading(markdown=True, thoughts_open=True))


def _reply(pieces: list[str], width: int, height: int, reading: Reading) -> Iterator[list[Strip]]:
    session, chat = ChatSession(1), ChatRows()
    session.ask("".join(pieces[:1]), 1)
    session.start()
    for number, piece in enumerate(pieces):
        session.append(piece, number)
        chat.update(session, width, "", "", reading)
        yield _rows(chat.rows, width, height)
    session.finish("stop")
    chat.update(session, width, "", "", reading)
    yield _rows(chat.rows, width, height)


def past_transcript(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """The same chat as it was, in its pane."""
    chat = ChatRows()
    chat.show_past(_from_tokens(pieces), width)
    yield _rows(chat.rows, width, height)


def past_chats(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """Several chats as they were, in one column."""
    chats = [PastChat(number, fit(_name(pieces), width), _from_tokens(pieces)) for number in range(2)]
    rows = [Content(row.text).truncate(width, ellipsis=True) for row in past_rows(chats, width, height)]
    yield _content(Content("\n").join(rows), width, height)


def titles(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """The pane's title, and its name in a table."""
    session = ChatSession(1, name=_name(pieces))
    title = pane_title(session, _VIEW, 0, width, active=True, rule="")
    name = Content(fit(short_label(session.name, 14), width))
    yield _content(Content("\n").join([title, name]), width, height)


def tokens(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """Quotations in the events panel and the block tables, and single tokens in a block's page."""
    texts = dict(enumerate(piece.encode("utf-8", "replace") for piece in pieces))
    lines = [f"   12 EXTEND 1 tale {quote(texts, texts, 28)}", f"  7 {quote(texts, texts, width - 4)}"]
    lines += [quote_token(text) for text in texts.values()]
    segments = [[Segment(line, _STYLE)] for line in lines[:height]]
    yield _filled([Strip(line).crop_extend(0, width, _STYLE) for line in segments], width, height)


def notices(pieces: list[str], width: int, height: int) -> Iterator[list[Strip]]:
    """A sentence that quotes what was typed or read, in a pane and in a toast."""
    text = "".join(pieces)
    yield _content(notice_content(Notice(f"There is no {text!r}.", text)), width, height)
    yield _content(notice_content(Notice(text, text)), width, height)


PLACES: tuple[tuple[int, Place], ...] = (
    (8, transcript), (8, markdown_transcript), (2, past_transcript), (1, past_chats), (2, titles), (2, tokens),
    (2, notices),
)  # fmt: skip
"""Each with how often it is chosen."""


def _name(pieces: list[str]) -> str:
    return one_line("".join(pieces))[:24]


def _from_tokens(pieces: list[str]) -> str:
    texts = dict(enumerate(piece.encode("utf-8", "replace") for piece in pieces))
    return text_of(texts, texts)


def _rows(rows: list[Row], width: int, height: int) -> list[Strip]:
    """The last rows, as a transcript that follows its end shows them."""
    paint = TranscriptPaint(_STYLE, lambda _: _STYLE, ascii_only=False)
    return _filled([paint.row(row, (), _STYLE, width) for row in rows[-height:]], width, height)


def _content(content: Content, width: int, height: int) -> list[Strip]:
    """As Textual draws what a widget's `render` gives."""
    options = RenderOptions(_no_style, cast(Any, {}))
    strips = content.render_strips(width, height, ContentStyle(), options)
    return _filled([strip.extend_cell_length(width, _STYLE) for strip in strips], width, height)


def _no_style(style: str | ContentStyle) -> ContentStyle:
    """Colours are nothing that text could choose."""
    return style if isinstance(style, ContentStyle) else ContentStyle()


def _filled(strips: list[Strip], width: int, height: int) -> list[Strip]:
    """Cut to the pane, as the compositor does, with blank rows below."""
    cut = [strip.adjust_cell_length(width, _STYLE) for strip in strips[:height]]
    return cut + [Strip.blank(width, _STYLE)] * (height - len(cut))
