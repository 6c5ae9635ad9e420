import pytest

from pagedchat.errors import InvalidValueError
from pagedchat.remote.address import address_of

ADDRESSES = {
    "localhost": ("localhost:8000", "ws://localhost:8000/attach", True),
    "127.0.0.1:9": ("127.0.0.1:9", "ws://127.0.0.1:9/attach", True),
    "http://box:8080/": ("box:8080", "ws://box:8080/attach", False),
    "http://box:8080/v1": ("box:8080", "ws://box:8080/attach", False),
    "https://box/llm": ("box:443", "wss://box:443/llm/attach", False),
    "ws://box:1/attach": ("box:1", "ws://box:1/attach", False),
    "http://box": ("box:80", "ws://box:80/attach", False),
    "[::1]:8000": ("[::1]:8000", "ws://[::1]:8000/attach", True),
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items(), ids=ADDRESSES)
def test_an_address_is_what_people_mean(text, expected):
    found = address_of("--attach", text)
    assert (found.where, found.websocket, found.is_here) == expected


@pytest.mark.parametrize(
    "text", ["", "://", "ftp://box", "box:port", "box:99999", "box:0", "http://", "a b", "x\x1b[2J", "http://u:p@box",
             "http://box?q", "h" * 3000]
)  # fmt: skip
def test_what_is_no_address_is_refused_by_name(text):
    with pytest.raises(InvalidValueError) as refused:
        address_of("--attach", text)
    assert refused.value.message.startswith("--attach is ")
    assert refused.value.hint == "It must be a URL such as http://127.0.0.1:8000."
    assert "\x1b" not in refused.value.message
