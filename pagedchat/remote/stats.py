"""Asks a `pagedchat serve` for what `pagedchat stats` prints. Knows HTTP, not what the figures say."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from pagedchat import __version__
from pagedchat.errors import PagedChatError, first_line
from pagedchat.remote.address import Address
from pagedchat.remote.tls import tls_trouble, trusting

PATIENCE = 5.0
"""Seconds for the server to connect, and to answer."""
MOST_ANSWER = 8 << 20
"""Bytes."""
_PATH = "/stats"


def ask_server(address: Address, api_key: str) -> dict[str, Any]:
    """What the server says.

    Raises:
        PagedChatError: nobody answers, or something that is no pagedchat, or it wants another key.
    """
    parts = urlsplit(address.http(_PATH))
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=trusting())
        if address.is_tls
        else http.client.HTTPConnection(host, port, timeout=PATIENCE)
    )
    headers = {"User-Agent": f"pagedchat/{__version__}", "Accept": "application/json"}
    try:
        connection.request("GET", parts.path, headers=headers | _with_key(api_key))
        response = connection.getresponse()
        body = response.read(MOST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise _not_reached(address, error) from error
    finally:
        connection.close()
    if response.status == http.client.UNAUTHORIZED:
        key = "another API key" if api_key else "an API key"
        raise PagedChatError(
            f"The server at {address.where} wants {key}.", "Put it into the variable PAGEDCHAT_API_KEY."
        )
    return _read(address, response.status, body)


def _with_key(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _not_reached(address: Address, error: Exception) -> PagedChatError:
    trouble = tls_trouble(error)
    if trouble is not None:
        return PagedChatError(f"The server at {address.where} cannot be asked: {trouble[0]}.", trouble[1])
    if isinstance(error, TimeoutError):
        return PagedChatError(f"The server at {address.where} does not answer.", "Look at the address.")
    if isinstance(error, ConnectionRefusedError):
        return PagedChatError(f"Nothing answers at {address.where}.", "Start it with: pagedchat serve")
    reason = (getattr(error, "strerror", None) or first_line(error)).lower()
    cure = "Look at the address." if address.is_tls else "Look at the address; with TLS it has https://."
    return PagedChatError(f"The server at {address.where} cannot be asked: {reason}.", cure)


def _read(address: Address, status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body) if status == http.client.OK else None
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        return answer
    raise not_understood(address, f" (HTTP status {status})" if status != http.client.OK else "")


def not_understood(address: Address, detail: str = "") -> PagedChatError:
    """Something else answers there."""
    return PagedChatError(
        f"What answers at {address.where} is no pagedchat that tells its figures{detail}.",
        "Look at the address, and that pagedchat serve runs there; another server's figures are at its /metrics.",
    )
