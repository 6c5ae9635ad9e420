"""The token under the cursor in a reply, with its alternatives: a few lines below a chat's transcript.

Shows a session and posts what was chosen; it never asks anything of the engine.
"""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from pagedchat.chat.session import ChatSession
from pagedchat.tui.actions import KeyAction
from pagedchat.tui.kit.line_view import LineBar, laid_over
from pagedchat.view.chats.alternative_rows import alternative_rows
from pagedchat.view.chats.likelihood import (
    LIKELIHOODS,
    Alternative,
    TokenPlace,
    alternatives,
    last_told,
    likelihood,
    told_of,
)

_NAMES = ("dim", "text", "bar", "written", "cursor", *(name for name, _ in LIKELIHOODS))


class AlternativesPanel(LineBar, can_focus=True):
    """Out of sight until it is opened."""

    DEFAULT_CSS = """
    AlternativesPanel {
        display: none;
        padding: 0 1;
        margin: 0 1 0 0;
        background: $foreground 5%;
        &.-shown { display: block; }
        & > .alternatives-panel--dim { color: $foreground 55%; }
        & > .alternatives-panel--text { color: $foreground; }
        & > .alternatives-panel--bar { color: $text-warning; }
        & > .alternatives-panel--written { color: $foreground; text-style: bold; }
        & > .alternatives-panel--cursor { color: $text-primary; text-style: bold; }
        &:focus > .alternatives-panel--cursor { text-style: bold reverse; }
        & > .alternatives-panel--sure { color: $foreground; }
        & > .alternatives-panel--likely { color: $foreground; background: $warning 14%; }
        & > .alternatives-panel--unsure { color: $foreground; background: $warning 30%; text-style: underline; }
        & > .alternatives-panel--doubtful {
            color: $foreground; background: $warning 48%; text-style: bold underline;
        }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"alternatives-panel--{name}" for name in _NAMES}
    KEYS = (
        KeyAction("token.fork", "enter", "fork", "fork with it", "", ""),
        KeyAction("token.leave", "escape", "leave", "to the chat", "", ""),
        KeyAction("token.next", "right", "move(1)", "token", "", ""),
        KeyAction("token.unsure", "alt+n", "find(1)", "next unsure", "", ""),
        KeyAction("token.choose", "down", "choose(1)", "alternative", "", ""),
        KeyAction("token.reply", "pageup", "turn(-1)", "reply before", "", ""),
    )
    """In the footer while it has the keyboard. No letter is among them: letters are written into the chat."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "Token before", show=False),
        Binding("right", "move(1)", "Token behind", show=False),
        Binding("home", "move(-1000000)", "First token", show=False),
        Binding("end", "move(1000000)", "Last token", show=False),
        Binding("alt+n,ctrl+right", "find(1)", "Next token of which it was not sure", show=False),
        Binding("ctrl+left", "find(-1)", "The one before", show=False),
        Binding("pageup", "turn(-1)", "Reply before", show=False),
        Binding("pagedown", "turn(1)", "Reply behind", show=False),
        Binding("up", "choose(-1)", "Likelier", show=False),
        Binding("down", "choose(1)", "Less likely", show=False),
        Binding("enter", "fork", "Fork with it", show=False),
        Binding("escape", "leave", "Back to the prompt", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another token; `None`: on none any more."""

        def __init__(self, place: TokenPlace | None) -> None:
            super().__init__()
            self.place = place

    class ForkWanted(Message):
        """The chat shall be forked at a token, with another one, or the same, in its place."""

        def __init__(self, session_id: int, place: TokenPlace, token_id: int) -> None:
            super().__init__()
            self.session_id, self.place, self.token_id = session_id, place, token_id

    def __init__(self, session: ChatSession) -> None:
        super().__init__(0)
        self.can_focus = False  # nothing that is out of sight takes the keyboard
        self._session = session
        self.place: TokenPlace | None = None
        """The token under the cursor; None while it is closed."""
        self._chosen = 0
        """Index among the alternatives."""

    # --- opening and closing ------------------------------------------------------------------------

    def open(self, place: TokenPlace | None = None) -> bool:
        """Stand on this token, or on the first of the newest reply; false where nothing is told of any."""
        if place is None:
            turn = last_told(self._session)
            place = TokenPlace(turn, 0) if turn is not None else None
        if place is None:
            return False
        self._stand_on(place)
        self.focus()
        return True

    def close(self) -> bool:
        """Out of sight; false if it was."""
        if self.place is None:
            return False
        self.place = None
        self.set_class(False, "-shown")
        self.post_message(self.Moved(None))
        self.can_focus = False
        return True

    def action_leave(self) -> None:
        """Out of sight; whoever hears of it takes the keyboard."""
        self.close()

    # --- moving -------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """To a neighbour in the reply."""
        if self.place is not None and (told := told_of(self._session, self.place.turn)):
            self._stand_on(self.place._replace(token=max(0, min(self.place.token + step, len(told) - 1))))

    def action_find(self, step: int) -> None:
        """To the next token of the reply of which the model was not sure, or the one before."""
        if self.place is not None:
            told, index = told_of(self._session, self.place.turn), self.place.token + step
            while 0 <= index < len(told) and likelihood(told[index]) == "sure":
                index += step
            if 0 <= index < len(told):
                self._stand_on(self.place._replace(token=index))

    def action_turn(self, step: int) -> None:
        """To the first token of the next reply, or the one before, of which something is told."""
        turn = self.place.turn + step if self.place is not None else -1
        while 0 <= turn <= len(self._session.entries):
            if told_of(self._session, turn):
                self._stand_on(TokenPlace(turn, 0))
                return
            turn += step

    def action_choose(self, step: int) -> None:
        """To a likelier alternative, or one that is less likely."""
        if found := self._alternatives():
            self._chosen = max(0, min(self._chosen + step, len(found) - 1))
            self.refresh_view()

    def action_fork(self) -> None:
        """Go on otherwise from here, in a fork."""
        if self.place is not None and (found := self._alternatives()):
            token_id = found[self._chosen].token_id
            self.post_message(self.ForkWanted(self._session.session_id, self.place, token_id))

    def on_click(self, event: events.Click) -> None:
        """Choose an alternative; a second click forks with it."""
        event.stop()
        self.focus()
        offset = event.get_content_offset(self)
        index = offset.y - 1 if offset is not None else -1
        if 0 <= index < len(self._alternatives()):
            self._chosen = index
            self.refresh_view()
            if event.chain == 2:
                self.action_fork()

    def _stand_on(self, place: TokenPlace) -> None:
        moved, self.place = place != self.place, place
        found = self._alternatives()
        if moved:  # the likeliest that is not there already
            self._chosen = next((index for index, each in enumerate(found) if not each.is_written), 0)
        self.can_focus = True
        self.set_class(True, "-shown")
        self.refresh_view()
        self.post_message(self.Moved(place))

    def _alternatives(self) -> list[Alternative]:
        place = self.place
        told = told_of(self._session, place.turn) if place is not None else ()
        return alternatives(told[place.token]) if place is not None and place.token < len(told) else []

    # --- drawing ------------------------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Draw what changed; a reply that is another one by now has no such token."""
        if self.place is None:
            return
        if not self._alternatives():
            self.close()
            return
        width = self.content_size.width or max(20, self.app.size.width // 2)
        rows = alternative_rows(
            self._session, self.place, self._chosen, width, ascii_only=bool(getattr(self.app, "ascii", False))
        )
        self.show([Strip([Segment(text, self._laid_over(name)) for text, name in row]) for row in rows])

    def _laid_over(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = laid_over(self, f"alternatives-panel--{name}")
        return style

    def on_resize(self) -> None:
        """Lines are as wide as there is room."""
        self.refresh_view()

    def on_focus(self) -> None:
        """The cursor is lit."""
        self._styles.clear()
        self.refresh_view()

    def on_blur(self) -> None:
        """The cursor is dim."""
        self._styles.clear()
        self.refresh_view()
