"""Commands about servers: open one beside what there is, and move chats from one place to another."""

from pagedchat.bounds import shown
from pagedchat.chat.sanitize import one_line
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError

_SERVER_USAGE = "/server [NAME|URL|local|--close]"


async def _server(context: CommandContext, argument: str) -> None:
    if argument == "--close":
        await context.program.close_model()
    elif argument:
        await context.program.open_server(argument)
    else:
        context.program.choose_server()


async def _move(context: CommandContext, place: str) -> None:
    if not place:
        context.program.choose_place(context.chat)
        return
    group = context.program.groups.named(place)
    if group is None:
        there = ", ".join(
            f"{number} {one_line(each.name)}" for number, each in enumerate(context.program.groups, 1)
        )
        raise CommandError(f"No engine and no server here is called {shown(place)}; there are {there}.",
                           "/server opens one.")  # fmt: skip
    await context.program.move_chat(context.chat, group)


COMMANDS = (
    SlashCommand("server", "[NAME|URL|--close]",
                 "Chats on an OpenAI-compatible server, beside these; local: on this machine; --close ends it",
                 _server, choices=("local", "--close"), title="Open a server"),
    SlashCommand("move", "[NUMBER|NAME]", "This chat goes on at another engine or server", _move),
)  # fmt: skip
