"""A chat's turns as rows for a given width, each with the characters of the turn that it shows. Draws nothing."""

from typing import NamedTuple, Protocol

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Role
from pagedchat.view.chats.reading import Reading
from pagedchat.view.chats.wrap import wrap
from pagedchat.view.engine_view import EngineView
from pagedchat.view.key_names import with_keys
from pagedchat.view.markdown.pieces import Piece, Pieces, text_of
from pagedchat.view.markdown.plain import PlainDocument, TextRow
from pagedchat.view.sentences.words import count

GUTTER = 6
"""Cells before the text: `"you │ "`."""
NO_GUTTER = frozenset({"marker", "hint", "blank", "past"})

_SPEAKERS: dict[Role, str] = {"system": "sys ", "user": "you ", "assistant": "ai  "}
_NO_SPEAKER = "    "
_HINT = "Nothing said yet. F7 sends a prompt to all chats, F9 forks a chat, "
_INSPECTOR = {False: "F3 shows its blocks.", True: "F3 shows what its server tells."}
"""By whether a server answers, which tells no blocks."""
_NOT_YET = "This chat had no text at this step."
_REMARKS = {
    "stopped": "stopped",
    "interrupted": "interrupted; /continue goes on from here",
    "length": "cut at the token limit",
}


class Row(NamedTuple):
    """One drawn row: gutter and text."""

    kind: str
    """Names the style: a role, `open` (the last row of the reply being written), `remark`, and those without a
    gutter: `marker`, `hint`, `blank`, `past`."""
    speaker: str
    """Four cells, blank but in a turn's first row."""
    pieces: Pieces
    joiner: str = "\n"
    """What stands before this row when rows are joined to text; see `wrap`."""
    fill: str = ""
    """Style of the cells behind the text."""

    @property
    def text(self) -> str:
        """What it draws behind the gutter."""
        return text_of(self.pieces)


class Document(Protocol):
    """A turn's text as rows."""

    rows: list[TextRow]

    def update(self, text: str, *, finished: bool) -> int:
        """The text is this now; returns the first row that is another one than before."""

    def thought_at(self, row: int) -> int | None:
        """The number of the thought for which this row stands."""


def document(role: Role, width: int, reading: Reading, toggled: frozenset[int] = frozenset()) -> Document:
    """For a turn's text; `width` includes the gutter. What a user wrote is drawn as they wrote it."""
    room = max(2, width - GUTTER)
    if role != "assistant" or not reading.markdown:
        return PlainDocument(room)
    from pagedchat.view.markdown.stream import MarkdownDocument  # noqa: PLC0415 - not for the first frame

    return MarkdownDocument(room, keep_open=reading.thoughts_open, toggled=toggled)


def turn_rows(role: Role, rows: list[TextRow], first: int, *, being_written: bool) -> list[Row]:
    """Rows of a document from `first` on; the last row of a reply that is being written has a kind of its own."""
    made = [
        Row(role, _SPEAKERS[role] if index == 0 else _NO_SPEAKER, row.pieces, row.joiner, row.fill)
        for index, row in enumerate(rows[first:], first)
    ]
    if being_written and made:
        made[-1] = made[-1]._replace(kind="open")
    return made


def remarks(entry: Entry) -> list[Row]:
    """What is said below a turn."""
    if remark := _REMARKS.get(entry.ending):
        return [_plain("remark", remark)]
    return []


EMPTY_REPLY = Row("remark", _NO_SPEAKER, (Piece("an empty reply"),))
BLANK = Row("blank", _NO_SPEAKER, ())
PENDING = Row("pending", _NO_SPEAKER, ())
"""Stands for a row of a turn that nobody has looked at yet."""


def guessed_rows(text: str, width: int) -> int:
    """About how many rows a turn will have."""
    return 1 + text.count("\n") + len(text) // max(8, 2 * (width - GUTTER))


def marker_rows(text: str, width: int, kind: str = "marker") -> list[Row]:
    """A line of the program's own, without a gutter."""
    return [_plain(kind, row.text, row.joiner) for row in wrap(one_line(text), width)]


def hint_rows(note: str, width: int, *, elsewhere: bool = False) -> list[Row]:
    """What stands in a chat that is empty; `elsewhere` says that a server answers in it."""
    rows = marker_rows(with_keys(_HINT + _INSPECTOR[elsewhere]), width, "hint")
    return [*rows, BLANK, *marker_rows(note, width, "hint")] if note else rows


def past_rows(text: str, width: int) -> list[Row]:
    """A chat as it was: one text, template and all, or a word on why there is none."""
    if not text:
        return marker_rows(_NOT_YET, width, "hint")
    plain = PlainDocument(max(2, width))
    plain.update(text, finished=True)
    return [Row("past", _NO_SPEAKER, row.pieces, row.joiner) for row in plain.rows]


def fork_marker(session: ChatSession, view: EngineView) -> str:
    """The line a fork begins with: where it comes from and what it still shares with it."""
    origin = session.origin
    if origin is None:
        return ""
    line = f"» from {one_line(origin.label)} at turn {origin.num_prompts}"
    shared = view.shared_with(session.session_id).get(origin.session_id, 0)
    if shared:
        line += f" · {count(shared, 'block')} shared"
    if copies := view.shown.num_copied(session.session_id):
        line += f" · {copies} copied"
    return line


def _plain(kind: str, text: str, joiner: str = "\n") -> Row:
    return Row(kind, _NO_SPEAKER, (Piece(text),) if text else (), joiner)
