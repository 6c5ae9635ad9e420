"""A server in words: who answers, what it tells of itself, what it does not. Pure text; draws nothing.

What a server does not tell is said, never guessed: a figure that is missing is named as missing.
"""

from typing import NamedTuple

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.events import ServerFigures
from pagedchat.view.sentences.words import bar, count
from pagedchat.view.state.server import ServerState

NOT_TOLD = "not told"
_BAR_CELLS = 12


class Line(NamedTuple):
    """A name and what is to be said of it; a heading has no name."""

    name: str
    words: str
    told: bool = True


def server_name(state: ServerState) -> str:
    """`lab`, or `10.0.0.4:8000`."""
    return one_line(state.server.name)


def who_answers(state: ServerState) -> str:
    """`lab · vLLM · http://lab:8000/v1`."""
    kind = one_line(state.server.kind) or "of a kind that it does not tell"
    return f"{server_name(state)} · {kind} · {one_line(state.server.url)}"


def server_lines(state: ServerState) -> list[Line]:
    """All that there is to say, heading by heading."""
    return [*_its_own(state), *_of_these_chats(state), *_never_told(state)]


# --- its own figures ----------------------------------------------------------------------------------


def _its_own(state: ServerState) -> list[Line]:
    figures = state.figures
    heading = Line("", "Its own figures, of all its users (/metrics)")
    if figures is None:
        return [heading, Line("", "asked for; nothing has come yet", told=False)]
    if figures.problem:
        return [heading, Line("", one_line(figures.problem), told=False)]
    return [
        heading,
        _line("requests", _requests(figures)),
        _line("KV cache", _cache(figures)),
        _line("prefix cache", _prefixes(figures)),
        _line("preempted", count(round(figures.preemptions), "time") if figures.preemptions is not None else ""),
        _line("tokens", _tokens(figures)),
        _line("speed", f"{state.of_everybody:,.0f} tok/s" if state.of_everybody is not None else ""),
    ]


def _line(name: str, words: str) -> Line:
    return Line(name, words or NOT_TOLD, told=bool(words))


def _requests(figures: ServerFigures) -> str:
    told = ((figures.running, "being answered"), (figures.waiting, "waiting"))
    return ", ".join(f"{number:,.0f} {words}" for number, words in told if number is not None)


def _cache(figures: ServerFigures) -> str:
    used = ""
    if figures.cache_usage is not None:
        share = min(1.0, figures.cache_usage)
        used = f"{bar(share, _BAR_CELLS)} {share:.0%} in use"
    size = ""
    if figures.num_blocks:
        size = f"{figures.num_blocks:,.0f} blocks" + (
            f" of {figures.block_size:.0f} tokens" if figures.block_size else ""
        )
    return " of ".join(filter(None, (used, size)))


def _prefixes(figures: ServerFigures) -> str:
    if figures.prefix_queries and figures.prefix_hits is not None:
        share = min(1.0, figures.prefix_hits / figures.prefix_queries)
        return f"{share:.0%} of {figures.prefix_queries:,.0f} tokens looked up were found"
    return f"{figures.hit_rate:.0%} of what is looked up is found" if figures.hit_rate is not None else ""


def _tokens(figures: ServerFigures) -> str:
    told = ((figures.generated_tokens, "generated"), (figures.prompt_tokens, "of prompts"))
    return ", ".join(f"{number:,.0f} {words}" for number, words in told if number is not None)


# --- of these chats -----------------------------------------------------------------------------------


def _of_these_chats(state: ServerState) -> list[Line]:
    replies = f"{state.num_replies} ended, {state.num_tokens:,} tokens"
    failed = f", {count(state.num_failed, 'request')} failed" if state.num_failed else ""
    sent = state.num_prompt_tokens
    prompts = f"{sent:,} tokens sent, {state.num_cached_tokens:,} of them cached there" if sent else ""
    return [
        Line("", "These chats, as counted here"),
        Line("replies", f"{replies}{failed}"),
        _line("prompts", prompts if sent or state.num_replies else "none yet"),
        Line("speed", f"{state.tokens_per_second:.0f} tok/s"),
    ]


def _never_told(state: ServerState) -> list[Line]:
    return [
        Line("", "What it does not tell"),
        Line("blocks", "This server does not tell its blocks: no map, no tables.", told=False),
        Line("steps", "Nor its steps: no batches, no pause, no going back.", told=False),
        *_way_to_its_blocks(state),
    ]


def _way_to_its_blocks(state: ServerState) -> list[Line]:
    """A pagedchat serve tells all of it to whoever attaches."""
    if state.server.kind != "pagedchat":
        return []
    where = one_line(state.server.url).removesuffix("/").removesuffix("/v1")
    return [Line("but", f"pagedchat --attach {where} opens chats on its engine, with its blocks and steps.")]


# --- in one line --------------------------------------------------------------------------------------


def header_figures(state: ServerState) -> list[str]:
    """What of its own figures stands in the header, the most important first."""
    figures = state.figures
    if figures is None or figures.problem:
        return []
    told = []
    if figures.cache_usage is not None:
        told.append(f"cache {min(1.0, figures.cache_usage):.0%}")
    if figures.running is not None:
        waiting = f"+{figures.waiting:.0f}" if figures.waiting else ""
        told.append(f"running {figures.running:.0f}{waiting}")
    return told


def context_words(chat: ChatSession, state: ServerState) -> str:
    """How much of the context a chat fills, by what the server counted last."""
    name, done, most = server_name(state), chat.last_finished, state.info.max_model_len
    if done is None or not done.num_prompt_tokens:
        return f"{name} has not told how many tokens {one_line(chat.label)} has."
    used = done.num_prompt_tokens + done.num_tokens
    of = f" of {most} ({used / most:.0%})" if most else ""
    return (
        f"{used}{of} tokens with the last reply; {done.num_cached_tokens} of its prompt were cached there\n"
        f"blocks: {NOT_TOLD} by {name}"
    )


def totals_words(state: ServerState) -> str:
    """All figures as text."""
    told = [f"{line.name}: {line.words}" if line.name else line.words for line in server_lines(state)]
    return "\n".join([who_answers(state), *told])


# --- what cannot be done ------------------------------------------------------------------------------


def no_blocks(state: ServerState) -> PagedChatError:
    """Of commands about blocks."""
    return PagedChatError(
        f"{server_name(state)} is a server and does not tell its blocks.", "F3 shows what it does tell."
    )


def not_ours(state: ServerState) -> PagedChatError:
    """Of commands to a pool."""
    return PagedChatError(
        f"The pool of {server_name(state)} is its own: blocks are limited, pinned and freed only where they are.",
        "Chats of an engine on this machine have all of this.",
    )


def not_held(state: ServerState) -> PagedChatError:
    """Of commands to a scheduler."""
    return PagedChatError(
        f"{server_name(state)} serves others, too: its scheduler is not paused, stepped or slowed down from here.",
        "Esc ends this chat's reply.",
    )


def no_past(state: ServerState) -> PagedChatError:
    """Of time travel."""
    return PagedChatError(
        f"{server_name(state)} is a server and does not tell its steps: there is no past to go to, and no trace.",
    )
