"""Commands about chats: open, fork, stop, name, send, copy."""

from pagedchat.chat.plain_text import replies
from pagedchat.chat.sanitize import one_line
from pagedchat.engine.groups.beam_params import MAX_BEAM_WIDTH
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, first_word, no_argument, whole_number
from pagedchat.view.sentences.figures import context_text
from pagedchat.view.sentences.server_words import context_words
from pagedchat.view.sentences.words import count

MAX_FORKS = 16
"""At once; every fork is a pane."""


async def _new(context: CommandContext, name: str) -> None:
    await context.chats.open_chat(one_line(name))


async def _fork(context: CommandContext, argument: str) -> None:
    usage = "/fork [n] [@turn]"
    count, at = first_word(argument)
    if count.startswith("@"):
        count, at = at, count
    number = whole_number(count or "1", "The number of forks", usage, low=1, high=MAX_FORKS)
    await context.chats.fork_chat(context.chat, number, _turn(context, at, usage) if at else None)


def _turn(context: CommandContext, text: str, usage: str) -> int:
    """The number of one of the chat's prompts."""
    most = context.chat.num_prompts
    if not most:
        raise CommandError("Nothing was asked here yet.", "Send a prompt first.")
    return whole_number(text.removeprefix("@"), "A turn", usage, low=1, high=most)


async def _regenerate(context: CommandContext, count: str) -> None:
    if count:
        number = whole_number(count, "The number of replies", "/regen [n]", low=1, high=MAX_FORKS)
        await context.chats.reply_besides(context.chat, number)
    else:
        context.chats.regenerate(context.chat)


def _continue(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/continue")
    context.chats.continue_reply(context.chat)


async def _several(context: CommandContext, argument: str) -> None:
    """A prompt that was answered already has one of them."""
    usage = "/n N [PROMPT]"
    number, prompt = first_word(argument)
    count = whole_number(number, "The number of answers", usage, low=2, high=MAX_FORKS)
    if prompt:
        await context.chats.ask_several(context.chat, count, prompt)
    elif context.chat.entries:
        await context.chats.reply_besides(context.chat, count - 1)
    else:
        raise CommandError("/n needs the number of answers, then the prompt.", "Type /n N PROMPT")


def _beam(context: CommandContext, argument: str) -> None:
    """Another reply to the last prompt, or one to a new prompt, by beam search."""
    usage = "/beam N [PROMPT]"
    number, prompt = first_word(argument)
    width = whole_number(number, "The number of beams", usage, low=2, high=MAX_BEAM_WIDTH)
    context.chats.search_reply(context.chat, width, prompt)


def _edit(context: CommandContext, argument: str) -> None:
    context.chats.edit_prompt(context.chat, _turn(context, argument, "/edit [@turn]") if argument else None)


def _undo(context: CommandContext, count: str) -> None:
    most = max(1, context.chat.num_prompts)
    number = whole_number(count or "1", "The number of turns", "/undo [n]", low=1, high=most)
    context.chats.take_back(context.chat, number)


def _branch(context: CommandContext, which: str) -> None:
    steps = {"next": 1, "previous": -1}
    if which not in steps:
        raise CommandError(f"/branch goes to the next branch or the previous one, not {which!r}.",
                           "Type /branch next|previous")  # fmt: skip
    context.chats.go_to_sibling(context.chat, steps[which])


def _promote(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/promote")
    context.chats.promote(context.chat)


async def _tree(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/tree")
    await context.chats.toggle_tree()


def _stop(context: CommandContext, which: str) -> None:
    if which not in ("", "all"):
        raise CommandError(f"/stop ends this chat's reply or all of them, not {which!r}.", "Type /stop [all]")
    chats = context.every_chat if which else [context.chat]
    if not context.chats.stop_replies(chats):
        raise CommandError("No reply is being written.")


async def _close(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/close")
    await context.chats.leave_chat(context.chat)


async def _delete(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/delete")
    await context.program.delete_chat(context.chat)


def _sessions(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/sessions")
    context.program.show_history()


def _search(context: CommandContext, words: str) -> None:
    context.program.show_history(one_line(words))


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
    wanted = context.every_chat if numbers == "all" else [
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
    if context.view.server is not None:
        context.tell(context_words(context.chat, context.view.server))
        return
    context.engine.live()
    context.tell(context_text(context.chat, context.view, context.desk.context_limit))


COMMANDS = (
    SlashCommand("new", "[name]", "Another chat, in a pane of its own", _new),
    SlashCommand("fork", "[n] [@turn]", "That many more chats over the same blocks, up to a turn", _fork),
    SlashCommand("regen", "[n]", "Another reply to the last prompt; with n in so many forks", _regenerate),
    SlashCommand("continue", "", "Go on with the last reply, where it was cut short", _continue,
                 aliases=("retry",)),
    SlashCommand("n", "N [PROMPT]", "N answers to this prompt or the last, side by side over its blocks", _several,
                 title="Several answers"),
    SlashCommand("beam", "N [PROMPT]", "A reply by beam search, to a prompt or the last one; n in F3 draws it",
                 _beam, title="Beam search"),
    SlashCommand("promote", "", "Keep this reply, close the chats with others to the same prompt", _promote,
                 title="Promote this reply"),
    SlashCommand("edit", "[@turn]", "Go back before a prompt and write it anew, as a branch", _edit),
    SlashCommand("undo", "[n]", "Go back before the last prompt, or n of them", _undo, title="Undo a turn"),
    SlashCommand("branch", "next|previous", "To another reply, or prompt, in this one's place", _branch,
                 choices=("next", "previous")),
    SlashCommand("tree", "", "All branches of this chat, beside the chats", _tree),
    SlashCommand("stop", "[all]", "End this chat's reply, or every chat's", _stop, choices=("all",)),
    SlashCommand("close", "", "Close this chat, free its blocks", _close),
    SlashCommand("sessions", "", "All chats that are kept: search, open, rename, delete", _sessions),
    SlashCommand("search", "TEXT", "The chats in which this was said", _search, title="Search all chats"),
    SlashCommand("delete", "", "Close this chat, take it out of the history; ^S ^Z undoes it", _delete,
                 title="Delete chat"),
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
