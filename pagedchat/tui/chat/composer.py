"""Where a prompt is written: several lines, history, paste. It posts what is sent and knows no sessions.

A line that begins with a slash may be a command: it is completed with Tab, and what it may become is posted.
"""

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from pagedchat.chat.prompt_history import PromptHistory, newest_first
from pagedchat.chat.returned_prompts import without
from pagedchat.chat.sanitize import sanitize, shown_safely
from pagedchat.settings.places import drafts_path
from pagedchat.tui.actions import (
    APP_ACTIONS,
    CHAT_ACTIONS,
    COMPOSER_ACTIONS,
    OVER_TEXT_BINDINGS,
    bindings,
    composer_keys,
)
from pagedchat.tui.chat.file_mentions import FileMentions
from pagedchat.tui.kit.quiet import bare_lines
from pagedchat.tui.kit.sparse_painting import SparseScreen
from pagedchat.tui.kit.textual_quirks import forget_listener, start_work

if TYPE_CHECKING:
    from pagedchat.tui.commands.registry import Candidate

_MOST_SHOWN = 300
"""Characters of a prompt in a list."""


class Composer(TextArea):
    """A text area that sends on Enter. A paste is only ever inserted."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(COMPOSER_ACTIONS), *OVER_TEXT_BINDINGS]

    DEFAULT_CSS = """
    Composer, Composer:focus {
        height: auto;
        max-height: 6;
        border: none;
        padding: 0;
        background: transparent;
        scrollbar-size-vertical: 1;
    }
    Composer .text-area--selection, Composer:focus .text-area--selection { color: auto; }
    """

    class Sent(Message):
        """Enter was pressed on a prompt that is not empty."""

        def __init__(self, prompt: str) -> None:
            super().__init__()
            self.prompt = prompt

    class UnqueueRequested(Message):
        """Up was pressed on an empty prompt: the prompt queued last is wanted back, else the history."""

    class Scrolled(Message):
        """A scrolling key that the prompt has no use for: by `pages`, or to the end where it is 0."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    class CandidatesChanged(Message):
        """What is being written may become one of these commands; none if it is no command."""

        def __init__(self, candidates: "list[Candidate]") -> None:
            super().__init__()
            self.candidates = candidates

    def __init__(self, history: PromptHistory) -> None:
        self._empty: dict[tuple[int, bool], Strip] = {}
        """What stands in it while it is empty: by its width, and whether the cursor can be seen just now."""
        super().__init__(compact=True, highlight_cursor_line=False, placeholder="Write a prompt")
        self._prompts = history
        self._recalled: int | None = None
        """Index into the history while walking it."""
        self._draft = ""
        """What was being written when the walk began."""
        self._candidates: list[Candidate] = []
        self._files = FileMentions()
        self._keys: dict[str, str] = {}
        self._colored: object = None
        """The theme that has the style sheet's colours."""

    # --- drawing ------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Textual's own would work out all colours anew whenever the cursor blinks."""
        lines = bare_lines(self, crop)
        return super(TextArea, self).render_lines(crop) if lines is None else lines

    def render_line(self, y: int) -> Strip:
        """Made once for the cursor and once without it: it blinks all the while a reply is read."""
        is_empty = not (y or self.text) and bool(self.placeholder)
        if not is_empty or self._draw_cursor:  # else only the placeholder is drawn, in a style of its own
            self._work_out_colors()
        if not is_empty:
            return super().render_line(y)
        looks = (self.size.width, self._draw_cursor)
        if looks not in self._empty:
            behind = Style(bgcolor=self.rich_style.bgcolor)
            self._empty[looks] = super().render_line(y).extend_cell_length(self.size.width, behind)
        return self._empty[looks]

    def _work_out_colors(self) -> None:
        theme = self._theme
        if theme is not None and theme is not self._colored:
            theme.apply_css(self)
            self._colored = theme

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._colored = None
        self._empty.clear()

    def on_mount(self) -> None:
        """See `forget_listener`; by the time its chat is closed it has no screen any more."""
        self._forget = partial(forget_listener, self, self.screen)
        keys = getattr(self.app, "keys", {})
        self._keys = composer_keys(keys)
        for action in (*CHAT_ACTIONS, *APP_ACTIONS):
            for key in keys.get(action.id, "").split(","):  # a text area may take it for something else
                self._bindings.key_to_bindings.pop(key, None)

    def on_unmount(self) -> None:
        """Its chat is closed."""
        self._forget()

    # --- sending ------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        """A text area would insert Enter. Its bindings run later than the keys typed after it, so act here."""
        if isinstance(self.screen, SparseScreen):
            self.screen.hurry(self)
        action = self._keys.get(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            await self.run_action(action)
        elif event.key == "tab" and await self._offers_candidates():
            event.stop()
            event.prevent_default()
            if self._files.typed is None:
                self._complete()
            else:
                self._put_in_file()
        elif event.key.startswith("alt+"):
            event.prevent_default()  # a plain terminal sends Alt+1 as a printable 1

    def action_send(self) -> None:
        """Post the prompt, if there is one."""
        if self.text.strip():
            self.post_message(self.Sent(self.take()))

    def action_newline(self) -> None:
        """Insert a line end at the cursor."""
        self.insert("\n")

    def take(self) -> str:
        """What was written; it goes into the history and the composer is empty again."""
        prompt = sanitize(self.text).strip("\n")
        self._prompts.add(prompt)
        self._recalled, self._draft = None, ""
        self.load_text("")
        return prompt

    def empty(self) -> bool:
        """Drop what was written; ^Z brings it back. False if there is nothing."""
        if not self.text:
            return False
        self._recalled, self._draft = None, ""
        self._show("")
        return True

    def put_before(self, prompt: str) -> None:
        """Bring a prompt back for editing, ahead of what is being written."""
        self._show("\n\n".join(part for part in (prompt, self.text) if part))

    def take_out(self, prompt: str) -> None:
        """A prompt that was brought back is not to be edited after all; what was written behind it stays."""
        if (rest := without(self.text, prompt)) != self.text:
            self._show(rest)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.history.checkpoint()  # ^Z takes back the paste, and nothing that was typed around it
        result = self._replace_via_keyboard(shown_safely(event.text), *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)
        self.history.checkpoint()

    # --- commands -----------------------------------------------------------------------------------

    def update_suggestion(self) -> None:
        """Called after every change of the text: show how a command goes on behind the cursor."""
        files = self._find_files()
        found = self._find_candidates()
        if found:
            self._files.typed = None  # a command may have an @ in it
        else:
            found = files
        if found != self._candidates:
            self._candidates = found
            self.post_message(self.CandidatesChanged(found))
        goes_on = found and self._at_end and found[0].line.startswith(self.text)
        self.suggestion = found[0].line.removeprefix(self.text) if goes_on else ""

    @property
    def _at_end(self) -> bool:
        return self.cursor_location == self.document.end

    async def _offers_candidates(self) -> bool:
        """Where the cursor stands now; moving it tells nobody. Files that are wanted are waited for."""
        self.update_suggestion()
        if self._files.typed is not None and not self._candidates:
            await self._list_files()
        return bool(self._candidates)

    def _find_candidates(self) -> "list[Candidate]":
        if not self.document.get_line(0).startswith("/"):
            return []
        from pagedchat.tui.commands.registry import candidates  # noqa: PLC0415 - not for the first frame

        return candidates(self.text)

    def _complete(self) -> None:
        from pagedchat.tui.commands.registry import completed  # noqa: PLC0415 - as above

        line = completed(self.text)
        if line != self.text:
            self._show(line)

    # --- files --------------------------------------------------------------------------------------

    def _find_files(self) -> "list[Candidate]":
        """Those that the word before the cursor may name; the folder is looked through beside the screen."""
        row, column = self.cursor_location
        found = self._files.look_for(self.document.get_line(row)[:column])
        if self._files.wants_list:
            start_work(self, self._list_files, "files")
        return found

    async def _list_files(self) -> None:
        await self._files.list()
        if self.is_attached:
            self.update_suggestion()

    def _put_in_file(self) -> None:
        """The only one; of several one is chosen."""
        names = self._files.names
        if len(self._candidates) == 1:
            self._write_mention(self._candidates[0].label)
        else:
            from pagedchat.tui.kit.picker import Picker  # noqa: PLC0415 - not for the first frame

            picker = Picker("File for the prompt", names, self._files.typed or "")
            self.app.push_screen(picker, lambda index: None if index is None else self._write_mention(names[index]))

    def _write_mention(self, name: str) -> None:
        from pagedchat.chat.writing.prompt_files import mention  # noqa: PLC0415 - as above

        row, column = self.cursor_location
        start = column - len(self._files.typed or "") - 1
        self.replace(f"{mention(name)} ", (row, max(0, start)), (row, column))

    # --- the prompt elsewhere -----------------------------------------------------------------------

    def action_edit_prompt(self) -> None:
        """The prompt in the user's own editor; what comes back can be undone."""
        from pagedchat.tui.kit.editor import EditorError, edited  # noqa: PLC0415 - not for the first frame

        try:
            text = sanitize(edited(self.app, self.text, drafts_path()))
        except EditorError as error:
            self.app.notify(str(error), severity="error")
        else:
            self.replace(text, (0, 0), self.document.end)
            self.move_cursor(self.document.end)

    def action_search_prompts(self) -> None:
        """One of the prompts sent before; what is being written comes back with down."""
        order = newest_first(self._prompts)
        if not order:
            self.app.notify("No prompt was sent yet.")
            return
        from pagedchat.tui.kit.picker import Picker  # noqa: PLC0415 - as above

        shown = [self._prompts[index][:_MOST_SHOWN] for index in order]
        self.app.push_screen(
            Picker("Prompts sent before", shown),
            lambda place: None if place is None else self._recall(order[place]),
        )

    def _recall(self, index: int) -> None:
        if self._recalled is None:
            self._draft = self.text
        self._recalled = index
        self._show(self._prompts[index])

    # --- keys that mean something else on an empty prompt or at its edges ---------------------------

    def action_cursor_up(self, select: bool = False) -> None:
        """On the first line: back in the history."""
        if select or not self.cursor_at_first_line:
            super().action_cursor_up(select)
        elif self._recalled is None and not self.text:
            self.post_message(self.UnqueueRequested())
        else:
            self.recall(-1)

    def action_cursor_down(self, select: bool = False) -> None:
        """On the last line: forward in the history."""
        if select or self._recalled is None or not self.cursor_at_last_line:
            super().action_cursor_down(select)
        else:
            self.recall(1)

    def action_cursor_page_up(self) -> None:
        """The prompt is short; pages are the transcript's."""
        self.post_message(self.Scrolled(-1))

    def action_cursor_page_down(self) -> None:
        """As page up."""
        self.post_message(self.Scrolled(1))

    def action_cursor_line_end(self, select: bool = False) -> None:
        """End on an empty prompt returns to the newest text."""
        if self.text:
            super().action_cursor_line_end(select)
        else:
            self.post_message(self.Scrolled(0))

    def action_delete_right(self) -> None:
        """^D on an empty prompt is left to the screen, as a shell leaves on it."""
        if not self.text:
            raise SkipAction
        super().action_delete_right()

    # --- history ------------------------------------------------------------------------------------

    def recall(self, direction: int) -> None:
        """Walk the history: -1 is older. Newer than the newest is the draft again."""
        newest = len(self._prompts)
        if self._recalled is None:
            self._draft = self.text
        index = (newest if self._recalled is None else self._recalled) + direction
        if index < 0:
            return
        if index >= newest:
            self._recalled = None
            self._show(self._draft)
        else:
            self._recalled = index
            self._show(self._prompts[index])

    def _show(self, text: str) -> None:
        """Another text in the place of the one that is there, which ^Z brings back."""
        self.history.checkpoint()
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        self.history.checkpoint()
