"""`pagedchat stats [URL]`: asks a running pagedchat for its figures and prints them, one on this machine by itself,
a server anywhere by its URL. Starts nothing.

The names in the figures are text, never escapes.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagedchat.bounds import INT32_MAX
from pagedchat.chat.sanitize import one_line, sanitize, terminal_json
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.metrics.runtime_folder import running
from pagedchat.metrics.stats_socket import ask_stats
from pagedchat.remote.address import address_of
from pagedchat.units import format_size
from pagedchat.view.sentences.kernels import steps_by

_COLUMNS = ("chat", "status", "tokens", "own", "shared", "tok/s")
KEY_VARIABLE = "PAGEDCHAT_API_KEY"
_NO_ENGINE = "there is no engine yet"


def add_stats_options(parser: argparse.ArgumentParser) -> None:
    """Which running pagedchat to ask, and how to print what it says."""
    parser.add_argument(
        "url", nargs="?", metavar="URL", help="ask this pagedchat serve; its key is taken from PAGEDCHAT_API_KEY"
    )
    parser.add_argument("--pid", type=_pid, metavar="N", help="ask this process, where several are running")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run_stats(args: argparse.Namespace) -> int:
    """Ask and print; returns the exit code.

    Raises:
        PagedChatError: none is running, none by that process id, or it does not answer.
        InvalidValueError: several are running and none is named, or it is no URL.
    """
    if args.url is not None:
        print(_of_server(args))
        return 0
    answer = _ask(args.pid)
    print(terminal_json(answer, indent=2) if args.json else sanitize(stats_text(answer)))
    return 0


def _of_server(args: argparse.Namespace) -> str:
    """Somebody else's answer, which may be anything."""
    from pagedchat.remote.stats import ask_server, not_understood  # noqa: PLC0415 - for those who give a URL

    address = address_of("URL", args.url)
    if args.pid is not None:
        raise InvalidValueError("Both a URL and --pid are given.", "Give one of them.")
    answer = ask_server(address, os.environ.get(KEY_VARIABLE, ""))
    try:
        return terminal_json(answer, indent=2) if args.json else sanitize(stats_text(answer))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise not_understood(address) from None


def _ask(pid: int | None) -> dict[str, Any]:
    found = running()
    if pid is not None:
        if pid not in found:
            raise PagedChatError(f"No pagedchat of yours runs with process id {pid}.", _who_is_there(list(found)))
        return ask_stats(found[pid])
    answers = _ask_all(found)
    if not answers:
        raise PagedChatError("No pagedchat is running.", "Start one with: pagedchat")
    if len(answers) > 1:
        names = "; ".join(map(_brief, answers))
        raise InvalidValueError(f"{len(answers)} are running: {names}.", "Name one: pagedchat stats --pid N")
    return answers[0]


def _ask_all(found: dict[int, Path]) -> list[dict[str, Any]]:
    """The answers of those that give one: a process id may have gone to another program meanwhile."""
    answers = []
    for path in found.values():
        try:
            answers.append(ask_stats(path))
        except PagedChatError:
            continue
    return answers


def _who_is_there(pids: list[int]) -> str:
    return f"Running: {', '.join(map(str, pids))}." if pids else "Start one with: pagedchat"


def _pid(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= INT32_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not the number of a process")


# --- for people -------------------------------------------------------------------------------------


def stats_text(answer: Mapping[str, Any]) -> str:
    """Everything, a line for each concern and one for each chat."""
    lines = [_title(answer), *_engine(answer), *_work(answer)]
    if answer["metrics_url"]:
        lines.append(f"metrics  {one_line(answer['metrics_url'])}")
    lines += _serves(answer)
    lines += ["", *_chats(answer["chats"])]
    beside = answer.get("beside")  # which older programs do not tell
    return "\n".join(lines if beside is None else [*lines, "", f"beside: {stats_text(beside)}"])


def _serves(answer: Mapping[str, Any]) -> list[str]:
    """Of a server: where, and for whom."""
    serves = answer.get("serves")  # which terminals do not tell
    if not serves:
        return []
    users = [
        f"{serves[name]} {what}{'s' * (serves[name] != 1)}"
        for name, what in (("requests", "request"), ("terminals", "terminal"), ("onlookers", "onlooker"))
    ]
    left = f", chats of {serves['left']} more that have left" if serves["left"] else ""
    return [f"serves   {one_line(serves['url'])}: {', '.join(users)}{left}"]


def _brief(answer: Mapping[str, Any]) -> str:
    """Enough to tell it from others: `4711 pagedchat-toy, 2 chats, up 3 min`."""
    chats = len(answer["chats"])
    words = [f"{answer['pid']} {one_line(answer['model'])}", f"{chats} chat{'s' * (chats != 1)}"]
    return ", ".join([*words, f"up {_age(answer['uptime'])}"])


def _title(answer: Mapping[str, Any]) -> str:
    return f"pagedchat {answer['version']}, process {_brief(answer)}, {answer['state']}"


def _engine(answer: Mapping[str, Any]) -> list[str]:
    engine = answer["engine"]
    if engine is None:
        return []
    return [
        f"engine   {one_line(engine['device'])} {engine['dtype']}, {_steps_by(engine)}, "
        f"{engine['num_blocks']} blocks of {engine['block_size']} tokens{_kept_in(engine)}"
    ]


def _steps_by(engine: Mapping[str, Any]) -> str:
    return one_line(steps_by(str(engine.get("kernels")), str(engine["attention_backend"])))


def _kept_in(engine: Mapping[str, Any]) -> str:
    """Of a cache of another type than the model's."""
    kind = engine.get("kv_cache_dtype")  # which older programs do not tell
    return f" in {one_line(kind)}" if kind else ""


def _work(answer: Mapping[str, Any]) -> list[str]:
    pool, queues, counters, rates = (answer[name] for name in ("pool", "queues", "counters", "rates"))
    if server := answer.get("server"):  # which older programs do not tell
        return [f"server   {one_line(server)}, which does not tell its blocks"]
    if pool is None:
        return [f"pool     {_NO_ENGINE}"]
    withheld = f", {pool['withheld']} withheld" if pool["withheld"] else ""
    return [
        f"pool     {pool['in_use']}/{pool['total']} in use, {pool['free']} free, {pool['cached']} cached"
        f"{withheld}, {pool['shared']} shared (saves {format_size(pool['saved_bytes'])})",
        f"queues   {queues['running']} running, {queues['waiting']} waiting, {queues['swapped']} swapped, "
        f"{queues['parked']} parked",
        f"work     step {counters['steps']}, {rates['tokens_per_second']:.0f} tok/s, batch {rates['batch']}, "
        f"{counters['prefill_tokens']} tokens prefilled, {counters['decode_tokens']} decoded",
        f"cache    {counters['prefix_hits']} of {counters['prefix_queries']} tokens looked up were found"
        f"{_kept(counters)}, copied on write: {counters['copies']}, evicted: {counters['evictions']}, "
        f"preempted: {counters['preemptions']}",
    ]


def _kept(counters: Mapping[str, Any]) -> str:
    """Of prompts, which older programs do not tell."""
    return f", {counters['kept_tokens']} kept by their chats" if "kept_tokens" in counters else ""


def _chats(chats: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [_COLUMNS, *map(_row, chats)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    reasons = ["", *map(_reason, chats)]
    return [_line(row, widths) + reason for row, reason in zip(rows, reasons, strict=True)]


def _reason(chat: Mapping[str, Any]) -> str:
    """Why it waits; older programs do not tell."""
    why = one_line(chat.get("waits_because", ""))
    return f"  {why}" if why else ""


def _row(chat: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{chat['session_id']} {one_line(chat['name'])}".rstrip()
    figures = (chat["tokens"], chat["blocks_own"], chat["blocks_shared"])
    rate = chat["tokens_per_second"]  # which servers do not tell
    return name, chat["status"], *map(str, figures), "" if rate is None else f"{rate:.0f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Words to the left, figures to the right."""
    words = [f"{cell:<{width}}" for cell, width in zip(row[:2], widths[:2], strict=True)]
    figures = [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*words, *figures]).rstrip()


def _age(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
