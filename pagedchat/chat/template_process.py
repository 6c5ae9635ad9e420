"""Where chat templates run that came with a checkpoint: a process with limits of time and memory.

Started when it is first wanted, killed where it is late, and started again then. Where no process can be had, a
template is not run: the request fails, as a loop in this process could not be ended. Knows jobs, no jinja.
"""

import json
import os
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pagedchat.chat.model_template import MAX_SOURCE, WITHOUT_IT, TemplateJob
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.template_worker import HEADER, job_frame
from pagedchat.errors import RequestError
from pagedchat.own_process import command, environment

DEFAULT_ENTRY = command("pagedchat.chat.template_worker")
SECONDS = 2.0
"""For one text, the compilation of the template included."""
_SECONDS_TO_START = 30.0
_READ_SIZE = 1 << 20
_BYTES_PER_CHARACTER = 12
"""Of JSON in ASCII: two surrogates."""
_BYTES_OF_AN_ERROR = 1 << 20


class TemplateProcess:
    """Runs templates, one at a time; may be used by several threads. Ends when nobody has it any more.

    Args:
        entry: the command that starts the process.
        seconds: how long one template may take.
    """

    def __init__(self, entry: Sequence[str] = DEFAULT_ENTRY, seconds: float = SECONDS) -> None:
        self._entry = tuple(entry)
        self._seconds = seconds
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def template(self, source: str | None, special_tokens: Mapping[str, str]) -> ChatTemplate:
        """A checkpoint's template, run here; without one the plain transcript, and no process is needed."""
        if source is None:
            self.close()
        return ChatTemplate(source, special_tokens, self.run)

    def start(self) -> None:
        """Start the process without waiting for it, so that the first text need not wait either."""
        with self._lock, suppress(OSError):  # told to whoever wants a text
            self._started()

    def run(self, job: TemplateJob) -> str:
        """`run_template`, within the limits.

        Raises:
            RequestError: as `run_template`; the template takes too long or too much; there is no process.
        """
        if len(job.source) > MAX_SOURCE:
            raise RequestError(
                f"The model's chat template has {len(job.source):,} characters; {MAX_SOURCE:,} are the most that "
                "are taken.",
                WITHOUT_IT,
            )
        with self._lock:
            try:
                worker = self._started()
                worker.wait_ready()
            except (OSError, EOFError, ValueError) as error:
                self._end()
                raise RequestError(
                    f"The process in which chat templates run cannot be started: {error or 'it ends at once'}.",
                    "Free memory, allow one more process, or use raw mode (--raw).",
                ) from error
            return self._ask(worker, job)

    def close(self) -> None:
        """End the process, if there is one; the next text starts another."""
        with self._lock:
            self._end()

    def _ask(self, worker: "_Worker", job: TemplateJob) -> str:
        try:
            answer = worker.ask(job, self._seconds)
        except TimeoutError:
            self._end()
            raise RequestError(
                f"The model's chat template did not finish within {self._seconds:g} s.", WITHOUT_IT
            ) from None
        except (OSError, EOFError, ValueError) as error:
            self._end()
            raise RequestError("The model's chat template ended the process that ran it.", WITHOUT_IT) from error
        if "text" not in answer:
            raise RequestError(answer["message"], answer["hint"])
        return answer["text"]

    def _started(self) -> "_Worker":
        if self._worker is not None and not self._worker.is_alive:
            self._end()
        if self._worker is None:
            self._worker = _Worker(self._entry)
        return self._worker

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class _Worker:
    """One process and the socket that is its standard input and output.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, entry: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - a module of our own
                    entry, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL,
                    env=environment(), start_new_session=True,
                )  # fmt: skip
            except BaseException:
                self._socket.close()
                raise
        self._owner = os.getpid()
        self._is_ready = False
        self._end = weakref.finalize(self, _end, self._process, self._socket, self._owner)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked: it runs, and was not started by a process of which this one is a fork."""
        return self._owner == os.getpid() and self._process.poll() is None

    def wait_ready(self) -> None:
        """Until it can take its first job.

        Raises:
            OSError, EOFError, ValueError: it ended, does not come up, or is something else.
        """
        if not self._is_ready:
            self._read_frame(time.monotonic() + _SECONDS_TO_START, 0)
            self._is_ready = True

    def ask(self, job: TemplateJob, seconds: float) -> dict[str, str]:
        """What it answers.

        Raises:
            TimeoutError: not in time.
            OSError, EOFError: it ended.
            ValueError: it says what cannot be understood.
        """
        deadline = time.monotonic() + seconds
        self._socket.settimeout(seconds)
        self._socket.sendall(job_frame(job))
        most = _BYTES_OF_AN_ERROR + _BYTES_PER_CHARACTER * job.max_characters
        answer = json.loads(self._read_frame(deadline, most))
        if not isinstance(answer, dict) or not all(isinstance(value, str) for value in answer.values()):
            raise ValueError("This is no answer.")
        return answer

    def end(self) -> None:
        """Kill it and wait for its end."""
        self._end()

    def _read_frame(self, deadline: float, most: int) -> bytes:
        size = HEADER.unpack(self._read(HEADER.size, deadline))[0]
        if size > most:
            raise ValueError(f"A frame of {size} bytes, where {most} are the most.")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            # What is there already is read even if we were stopped past the deadline.
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            part = self._socket.recv(min(size - len(data), _READ_SIZE))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def _end(process: subprocess.Popen[bytes], connection: socket.socket, owner: int) -> None:
    connection.close()
    if owner == os.getpid():  # a fork of its owner leaves it alone
        process.kill()
        process.wait()
