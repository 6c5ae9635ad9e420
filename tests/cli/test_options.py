"""The command line without a model: commands, help, and what is wrong with an option."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagedchat import __version__
from pagedchat.cli import main as cli
from pagedchat.cli.options import parse_args


def words(line: str) -> list[str]:
    return line.split()


# --- commands and their options ------------------------------------------------------------------------


def test_bench_has_a_command_line_of_its_own() -> None:
    args = parse_args(words("bench engine --device cpu --json out.json --repeats 5 --threads 1"))
    assert (args.command, args.benchmark, args.device) == ("bench", "engine", "cpu")
    assert (args.json, args.repeats, args.threads, args.model) == (Path("out.json"), 5, 1, None)


def test_inspector_options_are_read() -> None:
    args = parse_args(words("--trace run.trace --ascii --metrics-port 0"))
    assert (args.trace, args.ascii, args.metrics_port) == (Path("run.trace"), True, 0)
    args = parse_args([])
    assert (args.trace, args.ascii, args.metrics_port) == (None, False, None)


def test_replay_options_are_read() -> None:
    args = parse_args(words("replay run.trace --step 30 --summary --json --ascii"))
    assert (args.command, args.file, args.step) == ("replay", Path("run.trace"), 30)
    assert (args.summary, args.json, args.ascii) == (True, True, True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("replay", "The following arguments are required: FILE."),
        ("replay x --step -4", "--step: '-4' is not the number of a step."),
        ("replay x --step one", "--step: 'one' is not the number of a step."),
        ("replay nothing.trace", "nothing.trace does not exist."),
        ("replay x --json", "--json needs --summary."),
        ("--metrics-port 70000", "--metrics-port: '70000' is not a port from 0 to 65535."),
        ("--metrics-port web", "--metrics-port: 'web' is not a port from 0 to 65535."),
        ("--trace no/such/folder/x", "--trace: 'no/such/folder/x' cannot be written: make its folder first."),
        (f"--trace {'x' * 300}", f"--trace: '{'x' * 300}' cannot be written: make its folder first."),
        ("-p hello --trace x", "--trace goes with the chats on the screen, not with one reply."),
        ("-p hello --metrics-port 0", "--metrics-port goes with the chats on the screen, not with one reply."),
    ],
)
def test_what_is_wrong_with_recording_options(line: str, message: str, capsys) -> None:
    assert cli.main(words(line)) in (1, 2)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"pagedchat: {message}")


@pytest.mark.parametrize("command", ["", "replay x", "stats", "bench engine", "doctor"])
def test_a_command_loads_the_options_of_no_other(command: str) -> None:
    homes = {
        "replay": "pagedchat.cli.replay",
        "stats": "pagedchat.cli.stats",
        "bench": "pagedchat.bench.arguments",
        "doctor": "pagedchat.doctor.arguments",
    }
    program = (
        "import sys\nfrom pagedchat.cli.options import parse_args\n"
        f"parse_args({command.split()!r})\nprint(*[name for name in {homes!r} if {homes!r}[name] in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == command.split()[:1]


# --- help ---------------------------------------------------------------------------------------------


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"pagedchat {__version__}\n"


def test_help_names_every_option_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    for word in ("--model", "--sessions", "--num-blocks", "--temperature", "--prompt", "bench engine"):
        assert word in text


def test_help_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('help is asked for, not an engine')")
    command = [sys.executable, "-m", "pagedchat", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"--num-blocks" in shown.stdout
