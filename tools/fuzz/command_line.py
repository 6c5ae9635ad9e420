"""The command line: whatever the arguments are, they are read, or refused in one sentence with an exit code."""

import contextlib
import io
from argparse import Action, Namespace
from functools import cache
from unittest.mock import patch

from hypothesis import strategies as st

from pagedchat.cli import main as cli
from pagedchat.cli.engine_options import sampling_overrides
from pagedchat.cli.options import Parser, _chat_parser, _command_parser
from tools.fuzz.bent_trees import any_of
from tools.fuzz.target import Target

_COMMANDS = ("chat", "replay", "stats", "bench engine", "bench step", "bench kernels", "bench ui", "doctor")
_VALUES = st.one_of(
    any_of([
        "", " ", "-", "--", "0", "-0", "-1", "1", "7", "1e9", "1e308", "1e999", "-1e999", "nan", "NaN", "inf",
        "-inf", "9" * 25, "-" + "9" * 25,
        "9" * 5000, "0x10", "1_000", "1.5", ".5", "1.", "4GiB", "1e5GiB", "9" * 400 + "TiB", "0B", "-1GiB",
        "1.5.5k", "٣", "²", "½", "①", "\x00", "\n", "a\nb",
        "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\ud800", "é", "日本", "🏻", "@file", "@", "%s", "{}", "[red]", "~",
        "/", ".", "..", "/dev/null", "/dev/full",
        "/proc/self/mem", "../" * 300, "a" * 5000, "auto", "cpu", "cuda", "float32", "swap", "64", ",", "1,,2",
        "1,2", ",".join(["1"] * 3000), "live", "all",
    ]),
    st.text(max_size=8),
    st.integers().map(str),
    st.floats().map(str),
)  # fmt: skip


def _parser(command: str) -> Parser:
    return _chat_parser() if command == "chat" else _command_parser(command.partition(" ")[0])


@cache
def _options(command: str) -> tuple[str, ...]:
    """Every option of a command, those of its benchmark included."""
    actions: list[Action] = list(_parser(command)._actions)
    for action in _parser(command)._actions:
        if isinstance(action.choices, dict):
            actions += action.choices[command.partition(" ")[2]]._actions
    return tuple(name for action in actions for name in action.option_strings)


@st.composite
def _arguments(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(_COMMANDS))
    words = [] if command == "chat" else command.split(" ")
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(_options(command)))
        value = draw(_VALUES)
        how = draw(st.integers(0, 5))
        words += [name, value] if how < 3 else [f"{name}={value}"] if how == 3 else [name] if how == 4 else [value]
    return words


def _check(words: list[str]) -> None:
    """As `pagedchat` does it, but for what would then be started."""
    out, complaint = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(complaint))
        stack.enter_context(patch.object(cli, "_run_terminal", _begun))
        stack.enter_context(patch.object(cli, "_prompt", lambda args: None if args.prompt is None else args.prompt))
        for heavy in (
            "pagedchat.cli.oneshot.run_oneshot",
            "pagedchat.bench.main.run_bench",
            "pagedchat.doctor.main.run_doctor",
        ):
            stack.enter_context(patch(heavy, _nothing))
        stack.enter_context(patch("pagedchat.cli.stats.ask_stats", _nothing))
        stack.enter_context(patch("pagedchat.cli.stats.running", dict))
        code = _exit_code(words)
    said = complaint.getvalue()
    assert code in (0, cli.EXIT_FAILURE, cli.EXIT_USAGE), code
    assert "Traceback" not in said
    assert bool(said) == (code != 0), (code, said)
    assert all(line.isprintable() for line in said.splitlines()), said
    assert len(said.splitlines()) <= 2, said
    assert len(said) < 12_000, len(said)
    said.encode()


def _exit_code(words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as error:  # --help and --version
        return int(error.code or 0)


def _begun(args: Namespace, _config: object, _attach: object) -> int:
    """In place of the screen: what it would be given is read."""
    sampling_overrides(args)
    return 0


def _nothing(*_args: object, **_options: object) -> int:
    return 0


TARGETS = (Target("arguments", _arguments(), _check),)
