"""What the command palette lists: the keys' actions, the layouts, and slash commands that no key stands for.

It is searched by names, by what the help of a command says, and by other words that people have for the same.
"""

from collections.abc import Iterator
from functools import partial

from textual.app import SystemCommand
from textual.command import Hit, Hits
from textual.system_commands import SystemCommandsProvider

from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, KeyAction, remapped
from pagedchat.tui.commands.registry import COMMANDS
from pagedchat.tui.commands.slash_command import SlashCommand
from pagedchat.tui.inspector.inspector_keys import PANEL_ACTIONS, TIME_ACTIONS
from pagedchat.tui.screens import ScreensApp
from pagedchat.view.chats.layout import LAYOUTS
from pagedchat.view.sentences.words import count

_OTHER_WORDS = {
    "Theme": "color colour scheme dark light appearance skin",
    "Inspector: Map colours": "color legend meaning",
    "New chat": "open tab session conversation add",
    "Fork chat": "branch clone duplicate split copy",
    "Close chat": "delete remove drop",
    "Stop reply": "cancel abort interrupt halt end",
    "Ask again": "regenerate retry redo resend",
    "Send to all": "broadcast everyone",
    "Zoom pane": "maximise maximize fullscreen full screen",
    "Next layout": "grid split panes tiles",
    "Next chat": "switch tab",
    "Previous chat": "switch tab",
    "Copy last reply": "clipboard yank",
    "Inspector": "blocks cache memory pool debug view tables events",
    "Pause or run": "hold resume freeze continue",
    "Quit": "exit leave close program bye",
    "Help": "keys shortcuts manual bindings ?",
    "Rename chat": "title name",
    "Set sampling": "temperature top_p top_k settings options seed parameters",
    "Show settings": "options preferences configuration",
    "System prompt": "instructions persona",
    "Slow motion": "speed pace delay",
    "Limit the pool": "pressure memory shrink size",
    "Engine totals": "statistics stats figures metrics",
    "Screenshot": "picture image svg export",
}
"""Title -> what it is also called."""
_BY_OTHER_WORDS = 0.25
"""How well such a match counts; those of names come first."""


class PaletteCommands(SystemCommandsProvider):
    """The program's commands, found by more than their names."""

    async def search(self, query: str) -> Hits:
        """Commands whose name, help or other words match."""
        matcher, words = self.matcher(query), query.lower().split()
        for title, text, callback, *_ in self.app.get_system_commands(self.screen):
            if (match := matcher.match(title)) > 0:
                yield Hit(match, matcher.highlight(title), callback, help=text)
            elif all(word in f"{text} {_OTHER_WORDS.get(title, '')}".lower() for word in words):
                yield Hit(_BY_OTHER_WORDS, title, callback, help=text)


def palette_commands(app: ScreensApp) -> Iterator[SystemCommand]:
    """All of it, by name."""
    for action in (*CHAT_ACTIONS, *APP_ACTIONS):
        text = f"{action.help} ({remapped(action, app.keys).key_display})"
        yield SystemCommand(action.title, text, partial(_run_action, app, action))
    for action in (*TIME_ACTIONS, *PANEL_ACTIONS):
        text = f"{action.help} ({remapped(action, app.keys).key_display})"
        yield SystemCommand(f"Inspector: {action.title}", text, partial(_run_in_inspector, app, action))
    yield from _layouts(app)
    for command in COMMANDS:
        if command.title:
            text = f"{command.help} ({command.usage})"
            yield SystemCommand(command.title, text, partial(_run_command, app, command))
    yield SystemCommand("Theme", "Change the colours", app.action_change_theme)
    yield SystemCommand("Screenshot", "Save the screen as an SVG file", app.deliver_screenshot)


def _layouts(app: ScreensApp) -> Iterator[SystemCommand]:
    set_layout = app.chats.set_layout
    yield SystemCommand("Layout: automatic", "As many panes as there are chats", partial(set_layout, None))
    for panes in LAYOUTS:
        yield SystemCommand(f"Layout: {panes}", f"Show {count(panes, 'pane')}", partial(set_layout, panes))


async def _run_action(app: ScreensApp, action: KeyAction) -> None:
    await app.run_action(action.action, app.chats)


async def _run_in_inspector(app: ScreensApp, action: KeyAction) -> None:
    """Opens the inspector first, where it is not in sight."""
    panel = await app.show_inspector()
    if panel is not None:
        await app.run_action(action.action, panel if action in TIME_ACTIONS else panel.panels)


async def _run_command(app: ScreensApp, command: SlashCommand) -> None:
    """One that needs an argument is begun in the composer."""
    if command.arguments:
        app.action_chats()
        app.chats.write(f"/{command.name} ")
    else:
        await app.chats.run_command(app.chats.focused_chat, f"/{command.name}")
