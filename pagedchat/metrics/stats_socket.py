"""A Unix socket that answers everyone who connects with one JSON object, and the client that asks it.

Knows nothing of what the object says.
"""

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagedchat.errors import PagedChatError
from pagedchat.metrics.runtime_folder import socket_folder, socket_path
from pagedchat.private_files import FILE_MODE

Answer = dict[str, Any]
PATIENCE = 3.0
"""Seconds for one side to wait for the other."""
_READ_SIZE = 1 << 16


async def serve_stats(answer: Callable[[], Awaitable[Answer]]) -> None:
    """Answer until cancelled, on the loop that this runs on; the socket is removed at the end.

    Where no socket can be made there is none: nobody's chats fail for want of figures about them.
    """
    try:
        path = socket_path(socket_folder(), os.getpid())
        # Not serving yet, which is waited for: whoever cancels it then would leave a socket that nobody closes.
        server = await asyncio.start_unix_server(
            lambda _, writer: _reply(writer, answer), path, start_serving=False
        )
    except OSError:
        return
    try:
        with suppress(OSError):
            path.chmod(FILE_MODE)
            await server.serve_forever()
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _reply(writer: asyncio.StreamWriter, answer: Callable[[], Awaitable[Answer]]) -> None:
    """One that does not read is let go."""
    with suppress(OSError, TimeoutError):
        writer.write(json.dumps(await answer()).encode() + b"\n")
        await asyncio.wait_for(writer.drain(), PATIENCE)
    writer.close()


def ask_stats(path: Path) -> Answer:
    """What the program behind the socket says.

    Raises:
        PagedChatError: it does not answer.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(path))
            answer: Answer = json.loads(b"".join(iter(lambda: connection.recv(_READ_SIZE), b"")))
    except (OSError, ValueError) as error:
        raise PagedChatError(
            f"The pagedchat with process id {path.stem} does not answer.", "It may just have ended; try again."
        ) from error
    return answer
