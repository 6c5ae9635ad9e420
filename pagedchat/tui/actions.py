"""Every action of the chat screen, said once: bindings, footer, command palette and help are made from this list.

Keys avoided: ^I ^M ^H ^[ are Tab, Enter, Backspace and Esc in a plain terminal; ^B and ^A belong to tmux and
screen, F10 and F11 to the desktop; ^W ^U ^K ^X ^V ^Z ^Y edit text. F6 and F7 select lines in Textual's text area; a
composer of a few lines can spare them, so it binds them to these actions.
"""

from collections.abc import Mapping

import msgspec
from textual.binding import Binding


class KeyAction(msgspec.Struct, frozen=True):
    """One thing a user can do."""

    id: str
    """Names it in a keymap."""
    keys: str
    action: str
    label: str
    """One or two words for the footer; empty keeps it out of there."""
    title: str
    """Its name in the command palette and in help."""
    help: str
    over_text: bool = False
    """The composer binds the key as well, since a text area would take it."""
    priority: bool = False
    """Works whatever has the keyboard. Not for keys that follow typing: they would overtake the letters before."""

    @property
    def first_key(self) -> str:
        """The key that is shown where there are several."""
        return self.keys.partition(",")[0]

    @property
    def key_display(self) -> str:
        """As people write it: `^N`, `F9`, `Esc`."""
        return key_display(self.first_key)

    def binding(self) -> Binding:
        """As Textual wants it."""
        return Binding(
            self.keys,
            self.action,
            self.label or self.title,
            id=self.id,
            show=bool(self.label),
            priority=self.priority,
            tooltip=self.help,
        )


COMPOSER_ACTIONS = (
    KeyAction("prompt.send", "enter", "send", "send", "Send prompt", "Send the prompt to this chat"),
    KeyAction(
        "prompt.newline",
        "ctrl+j,alt+enter,shift+enter",
        "newline",
        "newline",
        "New line",
        "A new line in the prompt",
    ),
    KeyAction("prompt.editor", "ctrl+o", "edit_prompt", "", "Edit prompt", "Write the prompt in your $EDITOR"),
    KeyAction("prompt.search", "ctrl+r", "search_prompts", "", "Search prompts", "Find a prompt sent before"),
)

CHAT_ACTIONS = (
    KeyAction("chat.stop", "escape", "stop", "stop", "Stop reply", "End this chat's reply, keep its text"),
    KeyAction("chat.new", "ctrl+n", "new_chat", "new", "New chat", "Another chat in a pane of its own"),
    KeyAction("chat.fork", "f9", "fork", "fork", "Fork chat", "A second chat over the same blocks"),
    KeyAction("chat.regenerate", "ctrl+g", "regenerate", "again", "Ask again", "Another reply to the last prompt"),
    KeyAction(
        "chat.continue", "alt+r", "continue_reply", "", "Continue reply", "Go on with a reply that was cut short"
    ),
    KeyAction("chat.move", "alt+v", "app.move_chat", "", "Move chat", "Go on at another engine or server"),
    KeyAction(
        "chat.edit", "alt+up", "edit_prompt", "", "Edit the last prompt", "Write the last prompt anew, as a branch"
    ),
    KeyAction(
        "tree.next",
        "alt+right",
        "go_to_sibling(1)",
        "",
        "Next branch",
        "To the next branch: another reply, or prompt, in this place",
    ),
    KeyAction("tree.previous", "alt+left", "go_to_sibling(-1)", "", "Previous branch", "To the branch before"),
    KeyAction(
        "tree.show",
        "alt+down",
        "toggle_tree",
        "",
        "Tree of branches",
        "All branches of this chat, beside the chats",
    ),
    KeyAction("chat.broadcast", "f7", "broadcast", "to all", "Send to all", "Send the prompt to every chat", True),
    KeyAction("view.zoom", "f8", "zoom", "zoom", "Zoom pane", "Only this chat, or all again"),
    KeyAction("view.layout", "f6", "next_layout", "layout", "Next layout", "Show 1, 2, 4, 6 or 9 panes", True),
    KeyAction("chat.next", "tab", "focus_chat(1)", "next", "Next chat", "To the next pane"),
    KeyAction("chat.previous", "shift+tab", "focus_chat(-1)", "", "Previous chat", "To the pane before"),
    KeyAction(
        "chat.copy",
        "ctrl+c",
        "copy_or_stop",
        "",
        "Copy, stop or clear",
        "Copy selected text, else stop, else empty the prompt",
    ),
    KeyAction("chat.copy_reply", "ctrl+t", "copy_reply", "copy", "Copy last reply", "Copy the newest reply"),
    KeyAction("chat.copy_code", "alt+c", "copy_code", "", "Copy code", "Copy the last block of code"),
    KeyAction("chat.copy_all", "alt+a", "copy_chat", "", "Copy chat", "Copy the whole chat as Markdown"),
    KeyAction(
        "view.thought",
        "alt+t",
        "toggle_thought",
        "",
        "Open or fold thought",
        "Open or fold what the model thought before it answered",
    ),
    KeyAction(
        "view.markdown",
        "alt+m",
        "toggle_markdown",
        "",
        "Markdown or source",
        "Draw replies as Markdown, or as written",
    ),
    KeyAction(
        "chat.alternatives",
        "alt+p",
        "alternatives",
        "",
        "Alternatives",
        "How sure the model was of each token; fork there with another",
    ),
    KeyAction("chat.close", "ctrl+d", "close_chat", "close", "Close chat", "On an empty prompt: drop this chat"),
)

APP_ACTIONS = (
    KeyAction("app.inspector", "f3", "app.inspector", "inspector", "Inspector", "Blocks, tables, batches, events"),
    KeyAction("app.chats", "f2", "app.chats", "", "Chats", "Back to the chats"),
    KeyAction(
        "engine.model", "ctrl+l", "app.model", "", "Model", "Another model: in place of this one, or beside it"
    ),
    KeyAction("engine.pause", "f4", "app.pause", "pause", "Pause or run", "Hold the scheduler, or let it run"),
    KeyAction("engine.step", "f5", "app.step", "step", "Single step", "One step of the paused scheduler"),
    KeyAction("engine.restart", "f12", "app.restart", "", "Restart the engine", "End the engine, start it again"),
    KeyAction("app.history", "ctrl+s", "app.history", "", "History", "All chats that are kept: search, open"),
    KeyAction("app.quit", "ctrl+q", "app.quit", "quit", "Quit", "End pagedchat and its engine", priority=True),
    KeyAction("app.help", "f1", "app.help", "help", "Help", "This page"),
)

FOCUS_BINDINGS = [
    Binding(f"alt+{number}", f"focus_number({number})", f"Chat {number}", id=f"chat.focus_{number}", show=False)
    for number in range(1, 10)
]

PALETTE = KeyAction(
    "app.palette", "ctrl+p", "app.command_palette", "palette", "Palette", "Find any command by name", priority=True
)


_NAMES = {
    "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn",
    "full_stop": ".", "comma": ",", "plus": "+", "minus": "-", "equals_sign": "=", "slash": "/",
}  # fmt: skip
"""As people write them, where that is not the name with a capital letter."""
_ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
"""With Alt they are words, since an arrow behind a plus is hard to read."""


def remapped(action: KeyAction, keymap: Mapping[str, str]) -> KeyAction:
    """With the keys that a user gave it, if they did."""
    return msgspec.structs.replace(action, keys=keymap.get(action.id, action.keys)) if keymap else action


def key_display(key: str) -> str:
    """A Textual key name as people write it."""
    if len(key) == 1:
        return key
    *modifiers, plain = key.split("+")
    name = _NAMES.get(plain, plain.capitalize())
    if not modifiers:
        return _ARROWS.get(plain, name)
    if modifiers == ["ctrl"]:
        return f"^{_ARROWS.get(plain, _NAMES.get(plain, plain.upper()))}"
    return "+".join([*(each.capitalize() for each in modifiers), name])


def new_names(keymap: Mapping[str, str]) -> dict[str, str]:
    """Of the chats' and the program's keys: `{"^N": "^X"}` where a user gave a new chat another one."""
    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
    return {action.key_display: remapped(action, keymap).key_display for action in actions if action.id in keymap}


def composer_keys(keymap: Mapping[str, str]) -> dict[str, str]:
    """Keys that the composer acts on at once, in the order of typing -> what they do."""
    return {key: action.action for action in COMPOSER_ACTIONS for key in remapped(action, keymap).keys.split(",")}


OVER_TEXT_BINDINGS = [
    Binding(action.keys, f"screen.{action.action}", action.title, id=action.id, show=False)
    for action in CHAT_ACTIONS
    if action.over_text
]


def bindings(actions: tuple[KeyAction, ...]) -> list[Binding]:
    """Textual bindings of these actions."""
    return [action.binding() for action in actions]
