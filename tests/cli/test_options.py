"""The command line without a model: commands, help, and what is wrong with an option."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagedchat import __version__
from pagedchat.bench.readers import new_file
from pagedchat.bounds import shown
from pagedchat.cli import main as cli
from pagedchat.cli.engine_options import engine_config, sampling_overrides
from pagedchat.cli.options import _chat_parser, _text, parse_args
from pagedchat.errors import InvalidValueError


def read_all(argv: list[str]) -> tuple[object, object]:
    args = parse_args(argv)
    return engine_config(args), sampling_overrides(args)


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
        (f"--trace {'x' * 300}", f"--trace: {shown('x' * 300)} cannot be written: make its folder first."),
        ("-p hello --trace x", "--trace goes with the chats on the screen, not with one reply."),
        ("-p hello --metrics-port 0", "--metrics-port goes with the chats on the screen, not with one reply."),
    ],
)
def test_what_is_wrong_with_recording_options(line: str, message: str, capsys) -> None:
    assert cli.main(words(line)) in (1, 2)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"pagedchat: {message}")


@pytest.mark.parametrize("command", ["", "replay x", "stats", "models", "bench engine", "doctor"])
def test_a_command_loads_the_options_of_no_other(command: str) -> None:
    homes = {
        "replay": "pagedchat.cli.replay",
        "stats": "pagedchat.cli.stats",
        "models": "pagedchat.cli.models",
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


HUGE = [str(2**64), "9" * 23, "9" * 5000, "-" + "9" * 23]
NO_NUMBERS = ["nan", "inf", "-inf", "1e999", "x", ""]
NUMBERS = {
    "--seed": "-9223372036854775808 to 18446744073709551615",
    "--top-k": "-1 to 2147483647",
    "--max-tokens": "1 to 2147483647",
    "--num-blocks": "1 to 2147483647",
    "--max-num-seqs": "1 to 65536",
    "--max-model-len": "1 to 2147483647",
    "--tensor-parallel-size": "1 to 64",
    "--max-num-batched-tokens": "1 to 1048576",
    "--block-size": "1, 2, 4",
    "--sessions": "1 to 9",
    "--metrics-port": "0 to 65535",
    "--resume": "is not the number of a chat",
    "--kv-cache-memory": "1 to 1152921504606846976",
    "--swap-space": "0 to 1152921504606846976",
    "--kv-events-buffer": "0 to 1000000",
    "--kv-events-hwm": "1 to 1000000",
    "--temperature": "0 to 2",
    "--logprobs": "0 to 20",
    "--top-p": "0, up to 1",
    "--min-p": "0 to 1",
    "--repetition-penalty": "0.1 to 2",
    "--presence-penalty": "-2 to 2",
    "--frequency-penalty": "-2 to 2",
    "--gpu-memory-utilization": "0, up to 1",
}
UNREADABLE = ("invalid", "is not a size", "is not a number", "is not a port", "is not the number")


@pytest.mark.parametrize("option", NUMBERS)
def test_no_number_out_of_bounds_gets_past_the_command_line(option: str) -> None:
    """Those that can be read as numbers are refused with the range, the others by what they are not."""
    for text in HUGE + NO_NUMBERS:
        with pytest.raises(InvalidValueError) as caught:
            read_all([f"{option}={text}"])
        said = str(caught.value)
        assert NUMBERS[option] in said or any(words in said for words in UNREADABLE), (text, said)
        assert len(said) < 500


@pytest.mark.parametrize("argv", [["replay", "f", "--step"], ["stats", "--pid"], ["bench", "step", "--context"]])
def test_numbers_of_other_commands_have_bounds_too(argv: list[str]) -> None:
    for text in ["9" * 23, "9" * 5000, "-1", "1.5", "nan"]:
        with pytest.raises(InvalidValueError):
            parse_args([*argv[:-1], f"{argv[-1]}={text}"])


def test_every_option_that_takes_a_number_is_tried() -> None:
    actions = _chat_parser()._actions
    typed = {action.option_strings[-1] for action in actions if action.type not in (None, _text, new_file)}
    assert typed == set(NUMBERS)


@pytest.mark.parametrize("argv", [["--system", "caf\udce9"], ["--model", "caf\udce9"], ["--stop", "\udce9"]])
def test_argument_that_is_no_text_is_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidValueError, match="valid Unicode"):
        read_all(argv)
