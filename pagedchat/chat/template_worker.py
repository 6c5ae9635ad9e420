"""Main of the process in which chat templates run: `python -m pagedchat.chat.template_worker`.

Standard input and output are one socket. Frames of jobs come in, frames of answers go out, each as its length and
JSON; the first frame says that it is ready. It ends with its input, so with whoever started it; a template that
holds it then is ended by its limit of processor time. `template_process.py` is the other end.
"""

import json
import os
import resource
import struct
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pagedchat.chat.model_template import TemplateJob, run_template, too_large
from pagedchat.errors import PagedChatError

HEADER = struct.Struct("!Q")
"""Bytes that follow."""
READY = b""
MEMORY = 512 << 20
"""Bytes that a template may take."""
CPU_SECONDS = 5
"""Of processor time for one job; whoever waits for it gives up before."""


def main() -> None:
    """Answer until the input ends."""
    from pagedchat.chat import jinja  # noqa: F401, PLC0415 - before there is a limit; the other end needs none of it

    _limit_memory()
    _write(READY)
    while (frame := _read()) is not None:
        _limit_seconds()
        _write(_answer(frame))


def job_frame(job: TemplateJob) -> bytes:
    """A job as it is sent, header included. JSON in ASCII: any text gets through, lone surrogates too."""
    return _framed(json.dumps(asdict(job)).encode())


def _framed(payload: bytes) -> bytes:
    return HEADER.pack(len(payload)) + payload


def _answer(frame: bytes) -> bytes:
    refusal: PagedChatError
    try:
        answer = {"text": run_template(TemplateJob(**json.loads(frame)))}
        return json.dumps(answer).encode()
    except PagedChatError as error:
        refusal = error
    except MemoryError:  # reading the job, or writing the answer
        refusal = too_large()
    return json.dumps({"message": refusal.message, "hint": refusal.hint}).encode()


def _limit_memory() -> None:
    """On top of what Python itself has taken; macOS knows no such limit."""
    try:
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        held = 0
    _limit(resource.RLIMIT_AS, held + MEMORY)
    _limit(resource.RLIMIT_CORE, 0)


def _limit_seconds() -> None:
    """Counted from now: the limit itself counts from the start of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS)


def _limit(what: int, value: int) -> None:
    _, most = resource.getrlimit(what)
    with suppress(ValueError, OSError):  # where the system has none, whoever waits keeps the limit of time
        resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def _read() -> bytes | None:
    """The next frame; None at the end of the input."""
    header = _read_exactly(HEADER.size)
    return None if header is None else _read_exactly(HEADER.unpack(header)[0])


def _read_exactly(size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        data = os.read(0, min(size - len(parts), 1 << 20))
        if not data:
            return None
        parts += data
    return bytes(parts)


def _write(payload: bytes) -> None:
    data = memoryview(_framed(payload))
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        main()
    except OSError:  # nobody is there any more
        sys.exit(1)
