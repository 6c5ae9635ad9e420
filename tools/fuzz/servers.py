"""Foreign servers: what they stream is text, their figures are figures or none; an address is one, or refused."""

import json
from typing import Any

from hypothesis import strategies as st

from pagedchat.errors import InvalidValueError
from pagedchat.remote.openai.address import server_address
from pagedchat.remote.openai.figures import read_figures
from pagedchat.remote.openai.reply import ReplyReader
from tests.misbehaving_server import VLLM_METRICS
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.target import Target

_PIECE: dict[str, Any] = {
    "id": "x",
    "choices": [{"index": 0, "delta": {"content": "Hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
    "timings": {"cache_n": 1},
}
_LINES = VLLM_METRICS.splitlines()


def _check_reply(pieces: list[Any]) -> None:
    reader = ReplyReader()
    text = "".join(reader.take(json.loads(json.dumps(piece))) for piece in pieces) + reader.end()
    text.encode()
    assert 0 <= reader.num_cached_tokens <= reader.num_prompt_tokens
    assert reader.num_tokens >= 0
    assert reader.reason in (None, "stop", "length", "abort", "error")


@st.composite
def _figures(draw: st.DrawFn) -> str:
    """Lines of real figures, each maybe with something of it replaced."""
    lines = []
    for line in draw(st.lists(st.sampled_from(_LINES), max_size=12)):
        start = draw(st.integers(0, len(line)))
        end = draw(st.integers(start, len(line)))
        junk = draw(any_of(["", "{", "}", '"', "\\", "NaN", "-1e999", "\x00", "é", "\u2028", " ", "=", "9" * 400]))
        lines.append(line[:start] + junk + line[end:])
    return "\n".join(lines)


def _check_figures(text: str) -> None:
    figures = read_figures(text)
    for name in figures.__struct_fields__:
        value = getattr(figures, name)
        assert name == "problem" or value is None or 0 <= value < 1e19


def _check_address(text: str) -> None:
    try:
        address = server_address(text, {})
    except InvalidValueError as error:
        assert error.hint
        return
    assert address.url.startswith(("http://", "https://"))
    assert "@" not in address.url
    assert server_address(address.text, {}).url == address.url


_ADDRESSES = st.lists(
    any_of(["http://", "https://", "ftp://", "//", "a", "host", ":", "8000", "99999", "/v1", "/", "#", "?", "@",
            "[::1]", "[", "]", "\x1b", " ", "é", "%", "..", "\ud800", "key:secret@"]),
    max_size=7,
).map("".join)  # fmt: skip

TARGETS = (
    Target("replies of servers", st.lists(bent(_PIECE), max_size=4), _check_reply),
    Target("figures of servers", _figures(), _check_figures),
    Target("addresses of servers", _ADDRESSES, _check_address),
)
