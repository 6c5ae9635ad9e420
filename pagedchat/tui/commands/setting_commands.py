"""Commands that set something: how this chat's tokens are chosen, the layout, the colours."""

from typing import get_args

import msgspec
from textual.theme import BUILTIN_THEMES

from pagedchat.bounds import shown
from pagedchat.chat.session import WhenFull
from pagedchat.engine.sampling_params import MAX_LOGPROBS, SamplingOverrides
from pagedchat.errors import InvalidValueError
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, first_word, no_argument, whole_number
from pagedchat.view.chats.layout import LAYOUTS
from pagedchat.view.chats.likelihood import ALTERNATIVES
from pagedchat.view.key_names import with_keys
from pagedchat.view.options import MarkdownChoice, ThoughtsChoice
from pagedchat.view.sentences.figures import settings_text

SETTINGS = {
    "temp": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "rep": "repetition_penalty",
    "presence": "presence_penalty",
    "frequency": "frequency_penalty",
    "seed": "seed",
    "max": "max_tokens",
    "speculate": "speculate",
}
"""What is typed -> field of `SamplingOverrides`."""
FULL_CHOICES: tuple[WhenFull, ...] = get_args(WhenFull)
_WHOLE = frozenset({"top_k", "seed", "max_tokens"})
_SET_USAGE = "/set NAME VALUE|off"


def _set(context: CommandContext, argument: str) -> None:
    name, value = first_word(argument)
    if not name:
        _show(context, "")
        return
    if name == "full":
        _set_full(context, value)
        return
    field = SETTINGS.get(name) or (name if name in SETTINGS.values() else None)
    if field is None:
        raise CommandError(
            f"There is no setting {name!r}; there are {', '.join(SETTINGS)}, full.", f"Type {_SET_USAGE}"
        )
    if not value:
        raise CommandError(f"{name} needs a value; off follows the model again.", f"Type {_SET_USAGE}")
    if field == "speculate":
        _set_speculate(context, value)
        return
    context.chat.set_sampling(field, None if value == "off" else _parsed(name, field, value))
    context.say(f"{name} {'follows the model' if value == 'off' else value} from the next request on.")


def _set_speculate(context: CommandContext, value: str) -> None:
    """Whether tokens of this chat are guessed and several verified at once."""
    meanings = {
        "lookup": "What followed the last tokens before is guessed to follow them again, from the next request on.",
        "model": "What the draft model says is verified, several tokens at once, from the next request on.",
        "off": "One token a step, from the next request on.",
    }
    if value not in meanings:
        raise CommandError(
            f"speculate is lookup, model or off, not {shown(value)}.", "Type /set speculate lookup|model|off"
        )
    if value == "model" and context.view.info is not None and not context.view.info.draft_model:
        raise CommandError("There is no draft model.", "Start pagedchat with --speculate MODEL.")
    context.chat.set_sampling("speculate", value)
    context.say(meanings[value])


def _set_full(context: CommandContext, value: str) -> None:
    """What becomes of the chat when its context is full."""
    meanings = {
        "stop": "A reply ends where the context is full.",
        "drop": "When the context is nearly full, the model no longer sees the oldest turns; they stay here.",
        "summary": "When the context is nearly full, a new chat goes on with a summary; this one is kept.",
    }
    if value not in FULL_CHOICES:
        raise CommandError(f"full is one of {', '.join(FULL_CHOICES)}, not {shown(value)}.", "Type /set full VALUE")
    context.chat.when_full = value
    context.say(meanings[value])


def _parsed(name: str, field: str, text: str) -> float:
    """The value, checked as an override is checked."""
    try:
        value = int(text) if field in _WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if field in _WHOLE else "a number"
        raise CommandError(f"{name} must be {kind}, not {shown(text)}.", f"Type {_SET_USAGE}") from None
    try:
        SamplingOverrides(**{field: value})  # type: ignore[arg-type]  # checked here
    except InvalidValueError as error:
        raise CommandError(f"{name} cannot be {text:.40}.", error.hint) from None
    return value


def _show(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/show")
    context.tell(settings_text(context.chat, context.view.info))


def _layout(context: CommandContext, argument: str) -> None:
    if argument == "auto":
        context.chats.set_layout(None)
        return
    panes = whole_number(argument, "The number of panes", "/layout 1|2|4|6|9|auto", low=1, high=max(LAYOUTS))
    if panes not in LAYOUTS:
        raise CommandError(f"There is no layout of {panes} panes; there are {', '.join(map(str, LAYOUTS))}.")
    context.chats.set_layout(panes)


def _logprobs(context: CommandContext, argument: str) -> None:
    """For this chat, or for all of them and those to come."""
    usage = "/logprobs [on|off|N] [all]"
    how, whom = first_word(argument)
    if how == "all":
        how, whom = whom, how
    if whom not in ("", "all"):
        raise CommandError(f"/logprobs is for this chat or for all, not for {shown(whom)}.", f"Type {usage}")
    count = _num_alternatives(how or ("off" if context.chat.shows_likelihood else "on"), usage)
    chats = context.every_chat if whom else [context.chat]
    context.chats.show_likelihood(chats, count)
    if whom:
        for group in context.program.groups:
            group.desk.overrides = msgspec.structs.replace(group.desk.overrides, logprobs=count)
    where = "in every chat" if whom else "here"
    if count is None:
        context.say(f"Replies are not coloured {where}, and nothing more is asked of their tokens.")
    else:
        context.say(
            with_keys(f"From the next reply on coloured {where} by how sure the model was; Alt+P has alternatives.")
        )


def _num_alternatives(how: str, usage: str) -> int | None:
    if how in ("on", "off"):
        return ALTERNATIVES if how == "on" else None
    return whole_number(how, "The number of alternatives", usage, low=0, high=MAX_LOGPROBS)


def _markdown(context: CommandContext, choice: str) -> None:
    choices: dict[str, MarkdownChoice] = {"on": "on", "off": "off", "auto": "auto"}
    if choice not in choices:
        raise CommandError(f"/markdown is on, off or auto, not {shown(choice)}.", "Type /markdown on|off|auto")
    context.desk.reading.markdown = choices[choice]
    drawn = context.desk.reading.reading(context.view.info).markdown
    context.say("Replies are drawn as Markdown." if drawn else "Replies are drawn as they were written.")


def _thoughts(context: CommandContext, choice: str) -> None:
    choices: dict[str, ThoughtsChoice] = {"open": "open", "fold": "fold"}
    if choice not in choices:
        raise CommandError(f"/thoughts are open or fold, not {shown(choice)}.", "Type /thoughts open|fold")
    context.desk.reading.thoughts = choices[choice]
    context.say("Thoughts are shown whole." if choice == "open" else "A thought is shown as one line.")


def _theme(context: CommandContext, name: str) -> None:
    if not name:
        context.program.action_change_theme()
    elif name in context.program.available_themes:
        context.program.theme = name
    else:
        known = ", ".join(sorted(context.program.available_themes))
        raise CommandError(f"There is no theme {name!r}.", f"There are {known}.")


COMMANDS = (
    SlashCommand("logprobs", "[on|off|N] [all]", "Replies coloured by how sure the model was; N others a token",
                 _logprobs, choices=("on", "off", "all"), title="How sure the model was"),
    SlashCommand("set", "NAME VALUE|off", "This chat's sampling from its next request on; Tab lists the names",
                 _set, choices=(*SETTINGS, "full"), title="Set sampling"),
    SlashCommand("show", "", "This chat's sampling and system prompt", _show, title="Show settings"),
    SlashCommand("layout", "N|auto", "Show 1, 2, 4, 6 or 9 panes", _layout,
                 choices=(*map(str, LAYOUTS), "auto")),
    SlashCommand("markdown", "on|off|auto", "Draw replies as Markdown, or as written", _markdown,
                 choices=("on", "off", "auto"), title="Markdown on or off"),
    SlashCommand("thoughts", "open|fold", "Show what a model thinks, or one line of it", _thoughts,
                 choices=("open", "fold"), title="Thoughts open or folded"),
    SlashCommand("theme", "[NAME]", "Change the colours", _theme, choices=tuple(sorted(BUILTIN_THEMES))),
)  # fmt: skip
