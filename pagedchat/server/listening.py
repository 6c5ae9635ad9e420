"""The socket that a server listens on, taken before anything is loaded, so that a port that is not free is told at
once."""

import errno
import socket

from pagedchat.errors import PagedChatError

BACKLOG = 1024


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        PagedChatError: the port is taken, or not for us.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # named, for asyncio to set TCP_NODELAY
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        cure = "Give another --port; 0 takes any that is free." if error.errno in _TAKEN else "Give another --host."
        raise PagedChatError(f"The server cannot listen on {host}, port {port}: {reason}.", cure) from error
    listener.setblocking(False)
    return listener


def url(listener: socket.socket, *, tls: bool = False) -> str:
    """What to give to clients."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v1"


_TAKEN = (errno.EADDRINUSE, errno.EACCES)
