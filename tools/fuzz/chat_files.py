"""Chats of files and settings of files: read and written again as they were, or refused in one sentence."""

import json
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pagedchat.chat.formats.files import WRITERS, read_chats, write_chat
from pagedchat.cli.options import parse_args
from pagedchat.errors import PagedChatError
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.target import Target

_DEEP = any_of([b"[" * 50, b"[" * 5_000, b'{"a":' * 50, b'{"a":' * 5_000, b"a." * 50, b"a." * 1_500])
"""Half of them deeper than Python recurses. Dots take time by the square of their number, so there are fewer."""
_TEXTS = any_of(["<script>", "]]>", "\x1b[2J", "\u202e", "\ud800", "```", "a" * 5000, "\x00", "\r", "日", "](x)"])
_OURS = {
    "format": "pagedchat chat", "version": 1, "title": "t", "system": "s", "sampling": {"top_k": 3, "stop": ["x"]},
    "turns": [{"role": "user", "text": "a"}, {"role": "assistant", "text": "b", "ending": "length"}],
}  # fmt: skip
_CHATGPT = [
    {
        "title": "t",
        "current_node": "b",
        "mapping": {
            "a": {"message": {"author": {"role": "user"}, "content": {"parts": ["x"]}}, "children": ["b"]},
            "b": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["y", {}]}}, "parent": "a"},
        },
    }
]
_LLAMA = {
    "conv": {"name": "t", "currNode": "2"},
    "messages": [
        {"id": "1", "role": "user", "content": "x", "parent": None, "type": "text"},
        {"id": "2", "role": "assistant", "content": "y", "parent": "1", "type": "text"},
    ],
}
_SETTINGS = 'temperature = 0.5\nstop = ["a", """b\n"""]\n[keymap]\n"chat.new" = "ctrl+x"\n'


@st.composite
def _chat_files(draw: st.DrawFn) -> bytes:
    tree = draw(any_of((_OURS, _CHATGPT, _LLAMA)))
    text = json.dumps(draw(bent(tree, _TEXTS)))
    return _broken(draw, text.encode("utf-8", "surrogatepass"))


@st.composite
def _settings_files(draw: st.DrawFn) -> bytes:
    words = st.sampled_from(["=", "[", "]", '"', "'''", "\n", "keymap", "top-p", "2", "nan", "{", ".", "#", "true"])
    text = _SETTINGS + "".join(draw(st.lists(words | st.text(max_size=4), max_size=6)))
    return _broken(draw, text.encode("utf-8", "surrogatepass"))


def _broken(draw: st.DrawFn, data: bytes) -> bytes:
    """Mostly whole; or cut, with other bytes in it, or deep inside others."""
    match draw(st.integers(0, 5)):
        case 0:
            at = draw(st.integers(0, len(data)))
            return data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
        case 1:
            return draw(_DEEP) + data
    return data


def _check_chat(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.json")
        path.write_bytes(data)
        try:
            chats = read_chats(path)
        except PagedChatError as error:
            assert error.message.isprintable() or "\x1b" not in error.message
            return
        for chat in chats:
            for ending, writer in WRITERS.items():
                written = writer(chat)
                assert "\x1b" not in written
                assert "\u202e" not in written
                if ending == ".svg":
                    ET.fromstring(written)  # noqa: S314 - our own
            again = Path(name, "again.json")
            write_chat(again, chat, overwrite=True)
            _check_same(chat, read_chats(again))


def _check_same(chat: Any, read: list[Any]) -> None:
    assert [(each.title, each.system, each.entries, each.unanswered) for each in read] == [
        (chat.title, chat.system, chat.entries, chat.unanswered)
    ]


def _check_settings(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "config.toml")
        path.write_bytes(data)
        try:
            parse_args(["--config", str(path)])
        except PagedChatError as error:
            assert str(path) in error.message
        assert path.read_bytes() == data


TARGETS = (
    Target("chat files", _chat_files(), _check_chat),
    Target("settings files", _settings_files(), _check_settings),
)
