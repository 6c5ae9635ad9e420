"""Commands about chats: open, fork, stop, name, send, copy."""

from pagedchat.chat.plain_text import replies
from pagedchat.chat.sanitize import one_line
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, first_word, no_argument, whole_number
from pagedchat.view.sentences.figures import context_text
from pagedchat.view.sentences.words import count

MAX_FORKS = 16
"""At once; every fork is a pane."""


async def _new(context: CommandContext, name: str) -> None:
    await context.chats.open_chat(one_line(name))


async def _fork(context: CommandContext, count: str) -> None:
    number = whole_number(count or "1", "The number of forks", "/fork [n]", low=1, high=MAX_FORKS)
    await context.chats.fork_chat(context.chat, number)


def _regenerate(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/regen")
    context.chats.regenerate(context.chat)


def _stop(context: CommandContext, which: str) -> None:
    if which not in ("", "all"):
        raise CommandError(f"/stop ends this chat's reply or all of them, not {which!r}.", "Type /stop [all]")
    chats = list(context.desk) if which else [context.chat]
    if not context.chats.stop_replies(chats):
        raise CommandError("No reply is being written.")


async def _close(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/close")
    await context.chats.leave_chat(context.chat)


def _rename(context: CommandContext, name: str) -> None:
    if not one_line(name):
        raise CommandError("A chat needs a name of at least one character.", "Type /rename NAME")
    context.desk.rename(context.chat, name)


def _system(context: CommandContext, text: str) -> None:
    if not text:
        context.tell(f"System prompt: {context.chat.system or 'none'}\n/system TEXT sets it, /system off drops it.")
        return
    context.chat.set_system(None if text == "off" else text)
    context.say("From the next turn on this chat has " + ("no system prompt." if text == "off" else "this prompt."))


def _queue(context: CommandContext, argument: str) -> None:
    if argument not in ("", "clear"):
        raise CommandError(f"/queue shows what waits to be sent; it knows no {argument!r}.", "Type /queue [clear]")
    waiting = list(context.chat.queue)
    if argument:
        context.chat.clear_queue()
        context.say(f"Dropped {count(len(waiting), 'queued prompt')}.")
    elif waiting:
        context.tell("\n".join(f"{number}. {one_line(prompt)}" for number, prompt in enumerate(waiting, 1)))
    else:
        context.tell("No prompt is queued; what you send while a reply is being written is.")


def _send(context: CommandContext, argument: str) -> None:
    usage = "/send all|1,3 TEXT"
    numbers, prompt = first_word(argument)
    if not prompt:
        raise CommandError("/send needs the chats, then the prompt.", f"Type {usage}")
    wanted = list(context.desk) if numbers == "all" else [
        context.chat_number(number, usage) for number in numbers.split(",")
    ]  # fmt: skip
    context.chats.send_to(wanted, prompt)


def _copy(context: CommandContext, what: str) -> None:
    if what == "all":
        context.chats.copy_chat(context.chat)
    elif what and (written := replies(context.chat)):
        if what == "code":
            context.chats.copy_code(context.chat)
            return
        number = whole_number(what, "A reply's number", "/copy [n|code|all]", low=1, high=len(written))
        context.program.copy(written[number - 1])
    else:
        context.chats.copy_reply(context.chat)


def _context(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/context")
    context.engine.live()
    context.tell(context_text(context.chat, context.view, context.desk.context_limit))


COMMANDS = (
    SlashCommand("new", "[name]", "Another chat, in a pane of its own", _new),
    SlashCommand("fork", "[n]", "That many more chats over the same blocks", _fork),
    SlashCommand("regen", "", "Another reply to the last prompt", _regenerate),
    SlashCommand("stop", "[all]", "End this chat's reply, or every chat's", _stop, choices=("all",)),
    SlashCommand("close", "", "Drop this chat and its blocks", _close),
    SlashCommand("rename", "NAME", "Call this chat something else", _rename, title="Rename chat"),
    SlashCommand("system", "[TEXT|off]", "This chat's system prompt from the next turn on", _system,
                 choices=("off",), title="System prompt"),
    SlashCommand("queue", "[clear]", "The prompts that wait to be sent", _queue, choices=("clear",),
                 title="Queued prompts"),
    SlashCommand("send", "all|1,3 TEXT", "One prompt to several chats", _send, choices=("all",),
                 title="Send to some"),
    SlashCommand("copy", "[n|code|all]", "A reply, its last code block, or the whole chat", _copy,
                 choices=("code", "all")),
    SlashCommand("context", "", "Tokens and blocks that this chat holds", _context, title="Context of this chat"),
)  # fmt: skip
