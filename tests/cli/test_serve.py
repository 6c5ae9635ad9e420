"""`pagedchat serve`: its options, its key, its mistakes, and the program as it runs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pagedchat.cli import main as cli
from pagedchat.cli import serve
from pagedchat.cli.options import parse_args
from pagedchat.server.options import ServeOptions
from pagedchat.server.replies.tool_formats import TOOL_FORMATS


def options(*argv: str) -> ServeOptions:
    return serve.serve_options(parse_args(["serve", *argv]))


def test_without_options_it_listens_on_this_machine_alone() -> None:
    made = options()
    assert (made.host, made.port, made.api_key, made.is_local) == ("127.0.0.1", 8000, "", True)
    assert made == ServeOptions()


def test_options_are_passed_on() -> None:
    made = options(
        "--port",
        "0",
        "--served-model-name",
        "a",
        "--served-model-name",
        "b",
        "--max-queued",
        "3",
        "--max-body",
        "1MiB",
        "--shutdown-seconds",
        "2.5",
        "--cors-origin",
        "https://example.org",
        "--log-requests",
        "--tool-call-parser",
        "hermes",
        "--no-reasoning-content",
    )
    assert made == ServeOptions(
        port=0,
        names=("a", "b"),
        max_queued=3,
        max_body=1024**2,
        shutdown_seconds=2.5,
        origins=("https://example.org",),
        log_requests=True,
        tool_format="hermes",
        thoughts=False,
    )


def test_formats_of_tool_calls_are_those_that_there_are() -> None:
    assert serve._TOOL_FORMATS == TOOL_FORMATS


def test_the_key_is_from_the_option_the_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\nmore\n")
    monkeypatch.setenv(serve.KEY_VARIABLE, "from-environment")
    assert options("--api-key", "given", "--api-key-file", str(file)).api_key == "given"
    assert serve.KEY_VARIABLE not in os.environ  # no other process inherits it
    monkeypatch.setenv(serve.KEY_VARIABLE, "from-environment")
    assert options("--api-key-file", str(file)).api_key == "from-file"
    monkeypatch.setenv(serve.KEY_VARIABLE, "from-environment")
    assert options().api_key == "from-environment"


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--host", "0.0.0.0"], 2, "--host '0.0.0.0' can be reached by other machines, and there is no API key."),
        (["--port", "x"], 2, "--port: invalid int value: 'x'."),
        (["--port", "70000"], 2, "--port is 70000."),
        (["--api-key", ""], 2, "--api-key is empty."),
        (
            ["--api-key-file", "nothing/here"],
            1,
            "--api-key-file nothing/here cannot be read: no such file or directory.",
        ),
        (["--max-body", "lots"], 2, "--max-body: 'lots' is not a size."),
        (["--beside", "b"], 2, "Unrecognized arguments: --beside b."),
        (["--temperature", "9"], 2, "temperature is 9.0."),
    ],
)
def test_mistakes_are_one_sentence(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *argv]) == code
    assert said.lower() in capsys.readouterr().err.lower()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert cli.main(["serve"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "pagedchat: A server needs packages that are not installed.",
        "Install them: pip install 'pagedchat[serve]'.",
    ]


def test_the_program_says_where_it_listens_and_ends_in_order_by_a_signal() -> None:
    command = [sys.executable, "-m", "pagedchat", "serve", "--port", "0", "--num-blocks", "50", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=30)
    assert re.fullmatch(r"Serving pagedchat-toy at http://127\.0\.0\.1:\d+/v1\n", line)
    assert (process.returncode, rest, errors) == (0, "", "")
