"""Settings as people write them: where each key stands, and what is no TOML."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.errors import InvalidValueError
from pagedchat.settings.toml_text import read_toml, toml_value

TRICKY = '''# model = "in a comment"
stop = ["a",
  "model = 1", """
model = 2
"""]
'a b' = 1
model = "x"

[keymap]
"chat.new" = "ctrl+x"
chat.fork = "f7"
[keymap.app]
help = "f5"
'''


@pytest.fixture
def write(tmp_path):
    def write_file(data):
        path = tmp_path / "config.toml"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write_file


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("stop", 2),
        ("a b", 6),
        ("model", 7),
        ("keymap.chat.new", 10),
        ("keymap.chat.fork", 11),
        ("keymap.app.help", 13),
    ],
)
def test_the_line_of_a_key_is_where_it_is_given_a_value_and_not_where_a_text_has_it(write, key, line):
    file = read_toml(write(TRICKY))
    assert file.where(*key.split(".")).endswith(f"config.toml, line {line}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = 1\nb =\n", "config.toml, line 2: this is not TOML (invalid value)."),
        (b'a = "x', "config.toml, line 1: this is not TOML ("),
        (b'a = 1\nb = "\xff"', "config.toml, line 2: this is not text in UTF-8."),
        (b"a = " + b"[" * 100_000, "is nested too deeply."),
        (b"#" * (1 << 20) + b"\n", "is larger than settings ever are (1 MiB)."),
        (b"a = 1\na = 2", "config.toml, line 2: this is not TOML (cannot overwrite a value)."),
    ],
)
def test_what_is_no_toml_is_one_sentence_with_its_line(write, data, message):
    with pytest.raises(InvalidValueError) as caught:
        read_toml(write(data))
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_of_windows_is_read(write):
    assert read_toml(write(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")).tables == {"a": 1, "b": 2}


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidValueError, match=r"cannot be read: No such file or directory\."):
        read_toml(tmp_path / "none.toml")


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.booleans() | st.integers(-(2**63), 2**63 - 1))
def test_a_value_that_is_written_is_read_as_it_was(value):
    text = toml_value(value)
    assert tomllib.loads(f"x = {text}") == {"x": value}
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in text)
