"""Commands about the program: what is shown, time travel and traces, help, leaving."""

from pagedchat.trace.format import MAX_STEP
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, file_path, first_word, no_argument, whole_number
from pagedchat.units import format_size

_MODEL_USAGE = "/model [NAME] [--beside|--close]"


def _help(context: CommandContext, argument: str) -> None:
    context.program.action_help()


def _block(context: CommandContext, argument: str) -> None:
    context.program.open_block(context.block_id(argument, "/block ID"))


async def _table(context: CommandContext, argument: str) -> None:
    chat = context.chat_number(argument, "/table [chat]") if argument else context.chat
    context.engine.live()
    await context.program.show_table(chat.session_id)


def _goto(context: CommandContext, argument: str) -> None:
    step = None if argument == "live" else whole_number(
        argument, "The step", "/goto STEP|live", low=0, high=MAX_STEP
    )  # fmt: skip
    context.program.go_to_step(step)


def _trace(context: CommandContext, argument: str) -> None:
    usage = "/trace save|load FILE"
    verb, name = first_word(argument)
    if verb not in ("save", "load") or not name:
        raise CommandError("/trace needs save or load, and a file.", f"Type {usage}")
    path = file_path(name, usage)
    if verb == "load":
        context.program.open_trace(path)
    else:
        context.engine.check_recorded()
        num_bytes = context.group.time_travel.save(path)
        context.say(f"Saved the recording, {format_size(num_bytes)}, to {path}.")


def _metrics(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/metrics")
    url = context.program.metrics_url
    context.tell(
        f"Metrics are served at {url}" if url else "No metrics are served; --metrics-port N at the start does."
    )


async def _tour(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/tour")
    await context.program.action_tour()


async def _model(context: CommandContext, argument: str) -> None:
    if argument == "--close":
        await context.program.close_model()
        return
    name, beside = _without_beside(argument)
    if beside and not name:
        raise CommandError("/model --beside needs the name of a model.", f"Type {_MODEL_USAGE}")
    if beside:
        await context.program.open_beside(name)
    elif name:
        await context.program.switch_model(name)
    else:
        await context.program.action_model()


def _without_beside(argument: str) -> tuple[str, bool]:
    """The name, and whether `--beside` stands before or after it."""
    if argument.startswith(("--beside ", "--beside\t")) or argument == "--beside":
        return argument.removeprefix("--beside").strip(), True
    if argument.endswith((" --beside", "\t--beside")):
        return argument.removesuffix("--beside").strip(), True
    return argument, False


def _restart(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/restart")
    context.program.action_restart()


async def _quit(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/quit")
    await context.program.action_quit()


COMMANDS = (
    SlashCommand("help", "", "Keys, commands, signs and words", _help),
    SlashCommand("keys", "", "All keys: the same page", _help),
    SlashCommand("tour", "", "Eight things the cache does, shown on this engine", _tour, title="Tour"),
    SlashCommand("block", "ID", "Everything about one block", _block, title="Open a block"),
    SlashCommand("table", "[chat]", "A chat's block table in the inspector", _table, title="Block table"),
    SlashCommand("goto", "STEP|live", "Go back in time, or to the present", _goto, choices=("live",),
                 title="Go to a step"),
    SlashCommand("trace", "save|load FILE", "Keep what was recorded; replay a file", _trace,
                 choices=("save", "load"), title="Trace"),
    SlashCommand("metrics", "", "Where the Prometheus metrics are served", _metrics, title="Metrics"),
    SlashCommand("model", "[NAME|--close]",
                 "Another model; --beside: next to this one, with chats of its own; --close ends it", _model,
                 choices=("--beside", "--close")),
    SlashCommand("restart", "", "End the engine, start it again", _restart),
    SlashCommand("quit", "", "End pagedchat and its engine", _quit, aliases=("bye", "exit")),
)  # fmt: skip
