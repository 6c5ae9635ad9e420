"""The command with standard streams that are closed, full, or that nobody reads: real processes without a model."""

import subprocess
import sys

import pytest

REPLY = """
import sys
from pagedchat.cli import main as cli, oneshot
oneshot.run_oneshot = lambda *_, **__: print("A reply.", flush={flush}) or 0
sys.exit(cli.main(sys.argv[1:]))
"""


def run(redirection: str, argv: str = "-p hi", *, flush: bool = True) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it with these redirections."""
    program = ["sh", "-c", f'exec "$@" {argv} {redirection}', "sh", sys.executable, "-c", REPLY.format(flush=flush)]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("flush", [True, False], ids=["streamed", "at the end"])
def test_full_disk_is_one_sentence(flush: bool) -> None:
    done = run("> /dev/full", flush=flush)
    assert (done.returncode, done.stderr) == (
        1,
        "pagedchat: Standard output cannot be written: no space left on device.\nWrite to another place.\n",
    )


def test_help_onto_a_full_disk_is_one_sentence() -> None:
    done = run("> /dev/full", "--help")
    assert done.returncode == 1
    assert done.stderr.startswith("pagedchat: Standard output cannot be written")


def test_closed_output_is_one_sentence() -> None:
    done = run(">&-")
    assert (done.returncode, done.stderr) == (
        1,
        "pagedchat: Standard output is closed.\nLeave out >&-, or write to a file.\n",
    )


def test_closed_input_is_no_prompt() -> None:
    done = run("<&-", argv="")
    assert (done.returncode, done.stdout) == (2, "")
    assert "The prompt is empty." in done.stderr


def test_closed_input_and_errors_do_no_harm_to_a_reply() -> None:
    done = run("<&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "A reply.\n", "")


def test_where_nothing_can_be_said_the_exit_code_says_it() -> None:
    assert run("> /dev/full 2> /dev/full").returncode == 1
    assert run("2> /dev/full", argv="--nonsense").returncode == 2


def test_characters_that_the_output_does_not_know_are_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert run("", "--help").stdout.isascii()
    program = (
        "import sys; from pagedchat.cli import main as cli, oneshot\n"
        "oneshot.run_oneshot = lambda *_, **__: print('a \\u6d77') or 0\n"
        "sys.exit(cli.main(['-p', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a ?\n")


def test_an_error_that_is_not_the_outputs_is_not_taken_for_one() -> None:
    program = (
        "import sys; from pagedchat.cli import main as cli, oneshot\n"
        "def fail(*_, **__): raise OSError(5, 'odd')\n"
        "oneshot.run_oneshot = fail\n"
        "sys.exit(cli.main(['-p', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "OSError: [Errno 5] odd" in done.stderr
