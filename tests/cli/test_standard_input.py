"""What becomes of standard input beside a prompt, and what is said of what is no text."""

import io
import os
import subprocess
import sys

import pytest

from pagedchat.cli import standard_input
from pagedchat.cli.standard_input import whole_prompt
from pagedchat.errors import InvalidValueError


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), errors="surrogateescape"))


def test_standard_input_is_what_the_prompt_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "Zwölf Boote.\n".encode())
    assert whole_prompt("Sum this up.") == "Sum this up.\n\nZwölf Boote."


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_empty_input_changes_nothing(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, data)
    assert whole_prompt("Hello") == "Hello"


@pytest.mark.parametrize("prompt", [None, "-", "Sum this up."])
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x89PNG\r\n", "Standard input is no text: byte 0 is not UTF-8."),
        (b"ab\x00\x01", "Standard input is no text: byte 2 is zero."),
    ],
)
def test_what_is_no_text_is_refused(
    prompt: str | None, data: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, data)
    with pytest.raises(InvalidValueError) as caught:
        whole_prompt(prompt)
    assert caught.value.message == sentence


def test_an_open_pipe_that_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe, os.fdopen(writing, "w"):
        monkeypatch.setattr(sys, "stdin", pipe)
        monkeypatch.setattr(standard_input, "PATIENCE", 0.01)
        assert whole_prompt("Hello") == "Hello"
    assert "Nothing came from standard input" in capsys.readouterr().err


def test_bytes_through_a_real_pipe_get_a_sentence() -> None:
    command = [sys.executable, "-m", "pagedchat", "-p", "What is this?"]
    result = subprocess.run(command, input=b"\xff\xfe\x00\x80", capture_output=True, check=False)
    assert result.returncode == 2
    assert result.stderr.decode().startswith("pagedchat: Standard input is no text: byte 0 is not UTF-8.\n")
