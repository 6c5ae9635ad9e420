"""A server in a process of its own, and its clients in others, over the loopback."""

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import psutil

from pagedchat.bench.serve.streams import Stream
from pagedchat.errors import PagedChatError
from pagedchat.own_process import command, environment

_URL = re.compile(r" at http://([\d.]+):(\d+)/v1")
_SECONDS_TO_END = 20
_MOST_OF_A_PROCESS = 16
"""Clients; more would wait for one another, where there are processors enough."""
_REST, _WINDOW, _MOST_REST = 0.5, 0.25, 60.0
"""Seconds before an engine that has nothing to do does spare work, in which it is looked at, and at most."""
_IDLE_SHARE = 0.1
"""Of a processor, below which nothing is being made ready."""


def num_processes(num_clients: int, num_cores: int) -> int:
    """In how many processes so many clients are: two cores are the server's and the engine's."""
    return max(1, min(-(-num_clients // _MOST_OF_A_PROCESS), num_cores - 2))


class ServerProcess:
    """`pagedchat serve`, and clients of it; to be used in a `with`.

    Args:
        options: of its command line.

    Raises:
        PagedChatError: it does not start.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self.client_seconds = 0.0
        """Processor time of the busiest process of clients in the last run."""

    def __enter__(self) -> Self:
        arguments = [*command("pagedchat"), "serve", "--port", "0", *self._options]
        self._process = subprocess.Popen(  # noqa: S603 - a module of our own
            arguments, stdout=subprocess.PIPE, env=environment(), text=True
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        found = _URL.search(self._process.stdout.readline())
        if found is None:
            raise PagedChatError("The server did not start.", "What it said stands above.")
        self.host, self.port = found[1], int(found[2])
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(_SECONDS_TO_END)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def processor_seconds(self) -> float:
        """That the server has used, its engine left out."""
        return _seconds(psutil.Process(self._process.pid))

    def settle(self) -> None:
        """Wait until the engine has made ready what the streams so far were served without."""
        server = psutil.Process(self._process.pid)
        deadline = time.monotonic() + _MOST_REST
        time.sleep(_REST)
        while time.monotonic() < deadline:
            before = sum(map(_seconds, server.children(recursive=True)))
            time.sleep(_WINDOW)
            if sum(map(_seconds, server.children(recursive=True))) - before < _IDLE_SHARE * _WINDOW:
                return

    def run(self, prompts: list[list[int]], new_tokens: int) -> list[Stream]:
        """A client for each prompt, all at once.

        Raises:
            PagedChatError: one of them got something else than a whole stream.
        """
        streams, self.client_seconds = run_clients(self.host, self.port, prompts, new_tokens)
        return streams


def run_clients(host: str, port: int, prompts: list[list[int]], new_tokens: int) -> tuple[list[Stream], float]:
    """A client for each prompt, all at once, and the processor time of the busiest process of them.

    Raises:
        PagedChatError: one of them got something else than a whole stream.
    """
    count = num_processes(len(prompts), os.cpu_count() or 1)
    with ExitStack() as ends:
        groups = [ends.enter_context(_Group(host, port)) for _ in range(count)]
        for number, group in enumerate(groups):
            group.tell({"prompts": prompts[number::count], "new_tokens": new_tokens})
        for group in groups:
            group.hear()
        for group in groups:
            group.tell({})
        answers = [group.hear() for group in groups]
    streams = [Stream(**stream) for answer in answers for stream in answer["streams"]]
    return streams, max(answer["seconds"] for answer in answers)


class _Group:
    """A process of clients."""

    def __init__(self, host: str, port: int) -> None:
        self._arguments = [*command("pagedchat.bench.serve.client_child"), host, str(port)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - a module of our own
            self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
        )
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=_SECONDS_TO_END)

    def tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - asked for above
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - as above
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "The clients ended."}
        if "error" in answer:
            raise PagedChatError(answer["error"], "Look at what the server said above.")
        return answer


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system
