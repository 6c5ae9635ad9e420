"""What the command palette lists: the keys' actions, the layouts, and slash commands that no key stands for."""

from collections.abc import Iterator
from functools import partial

from textual.app import SystemCommand

from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, KeyAction, remapped
from pagedchat.tui.commands.registry import COMMANDS
from pagedchat.tui.commands.slash_command import SlashCommand
from pagedchat.tui.screens import ScreensApp
from pagedchat.view.chats.layout import LAYOUTS
from pagedchat.view.sentences.words import count


def palette_commands(app: ScreensApp) -> Iterator[SystemCommand]:
    """All of it, by name."""
    for action in (*CHAT_ACTIONS, *APP_ACTIONS):
        text = f"{action.help} ({remapped(action, app.keys).key_display})"
        yield SystemCommand(action.title, text, partial(_run_action, app, action))
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


async def _run_command(app: ScreensApp, command: SlashCommand) -> None:
    """One that needs an argument is begun in the composer."""
    if command.arguments:
        app.action_chats()
        app.chats.write(f"/{command.name} ")
    else:
        await app.chats.run_command(app.chats.focused_chat, f"/{command.name}")
