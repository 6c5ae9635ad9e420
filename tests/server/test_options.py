"""How a server is reached: every value that cannot be, with its sentence."""

import socket
from typing import Any

import pytest

from pagedchat.errors import InvalidValueError
from pagedchat.server.options import ServeOptions

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"port": 65536}, "--port is 65536. It must be a whole number from 0 to 65535."),
    ({"port": -1}, "--port is -1. It must be a whole number from 0 to 65535."),
    ({"max_queued": -1}, "--max-queued is -1. It must be a whole number from 0 to 1048576."),
    ({"max_body": 1}, "--max-body is 1. It must be a whole number from 1024 to 4294967296."),
    ({"shutdown_seconds": float("nan")}, "--shutdown-seconds is nan. It must be a number from 0 to 86400."),
    ({"names": ("",)}, "--served-model-name is ''. It must be a text that is not empty, in valid Unicode."),
    ({"host": ""}, "--host is ''. It must be a text that is not empty, in valid Unicode."),
    (
        {"origins": ("example.org",)},
        "--cors-origin is 'example.org'. It must be like https://example.org, or * for all.",
    ),
    (
        {"host": "0.0.0.0"},
        "--host '0.0.0.0' can be reached by other machines, and there is no API key. "
        "Give one with --api-key-file FILE or in PAGEDCHAT_API_KEY, or leave out --host.",
    ),
    (
        {"api_key": "sechs und sechzig"},
        "The API key has characters that no header can carry. Take letters, digits and signs, without spaces.",
    ),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        ServeOptions(**given)
    assert str(caught.value) == said


def test_a_name_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(InvalidValueError, match=r"--host is 'nobody', which is no address of this machine\."):
        ServeOptions(host="nobody")


def test_a_key_is_never_said() -> None:
    with pytest.raises(InvalidValueError) as caught:
        ServeOptions(api_key="secret key")
    assert "secret" not in str(caught.value)


def test_other_machines_are_served_with_a_key() -> None:
    assert not ServeOptions(host="0.0.0.0", api_key="k").is_local
    assert not ServeOptions(host="::", api_key="k").is_local
    assert ServeOptions(host="localhost").is_local
    assert ServeOptions(host="127.0.0.5").is_local
