"""`pagedchat stats`: asks a running pagedchat for its figures and prints them. Starts nothing."""

import argparse
import json
from pathlib import Path
from typing import Any

from pagedchat.cli.stats_text import brief, stats_text
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.metrics.runtime_folder import running
from pagedchat.metrics.stats_socket import ask_stats


def run_stats(args: argparse.Namespace) -> int:
    """Ask and print; returns the exit code.

    Raises:
        PagedChatError: none is running, none by that process id, or it does not answer.
        InvalidValueError: several are running and none is named.
    """
    answer = _ask(args.pid)
    print(json.dumps(answer, indent=2) if args.json else stats_text(answer))
    return 0


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
        names = "; ".join(map(brief, answers))
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
