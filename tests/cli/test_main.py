"""The command without a model: where the prompt comes from, exit codes, messages."""

import gc
import io
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pagedchat.cli import main as cli
from pagedchat.cli import oneshot
from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import ModelError, PagedChatError
from pagedchat.settings.places import remembered_path
from tests.trace.recorded import RecordedEngine


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, object]]]:
    """What would have been asked of the model."""
    calls: list[tuple[str, dict[str, object]]] = []

    def record(prompt: str, config: EngineConfig, overrides: SamplingOverrides, **options: object) -> int:
        calls.append((prompt, {"config": config, "overrides": overrides, **options}))
        return 0

    monkeypatch.setattr(oneshot, "run_oneshot", record)
    return calls


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(oneshot, "run_oneshot", fail)


def words(line: str) -> list[str]:
    return line.split()


# --- where the prompt comes from ----------------------------------------------------------------------


def test_prompt_option_is_replied_to(replies: list[tuple[str, dict[str, object]]]) -> None:
    assert cli.main(["-p", "Hello", "--json", "--system", "Be brief.", "--raw"]) == 0
    [(prompt, options)] = replies
    assert prompt == "Hello"
    assert (options["as_json"], options["system"], options["raw"]) == (True, "Be brief.", True)


@pytest.mark.parametrize("argv", [[], ["-p", "-"]])
def test_standard_input_is_the_prompt(
    argv: list[str], replies: list[tuple[str, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("From a pipe.\n"))
    assert cli.main(argv) == 0
    assert replies[0][0] == "From a pipe.\n"


def test_terminal_gets_the_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedchat.tui import app

    shown: list[app.UiOptions] = []
    monkeypatch.setattr(app, "run_app", lambda _link, options: shown.append(options) or 3)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    argv = words("--model m --sessions 4 --system Brief --raw --top-k 3 --ephemeral")
    assert cli.main(argv) == 3
    [options] = shown
    assert (options.model, options.sessions, options.system, options.raw) == ("m", 4, "Brief", True)
    assert options.ephemeral
    assert options.overrides == SamplingOverrides(top_k=3)
    assert (options.theme != "", options.remember_in) == (True, remembered_path())
    cli.main([])
    assert (shown[1].keeps, shown[1].history, shown[0].keeps) == (True, None, False)


def test_garbage_is_left_alone_until_the_chats_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedchat.tui import app

    searched: list[bool] = []
    monkeypatch.setattr(app, "run_app", lambda _link, _options: searched.append(gc.isenabled()) or 0)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["--ephemeral"]) == 0
    assert searched == [False]
    assert gc.isenabled()


def test_the_command_that_is_installed_runs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module, function = project["project"]["scripts"]["pagedchat"].split(":")
    asked = f"import sys; sys.argv = ['pagedchat', '--version']; from {module} import {function}; {function}()"
    found = subprocess.run([sys.executable, "-c", asked], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stdout.split()[0]) == (0, "pagedchat")


def test_what_a_file_wants_for_the_screen_does_not_refuse_one_reply(
    replies: list[tuple[str, dict[str, object]]], tmp_path: Path
) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("metrics-port = 0\n")
    assert cli.main(["--config", str(settings), "-p", "Hello"]) == 0
    assert replies[0][0] == "Hello"
    assert cli.main(["--metrics-port", "0", "-p", "Hello"]) == cli.EXIT_USAGE


def test_what_is_gone_on_with_is_handed_to_the_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedchat.history import run
    from pagedchat.tui import app

    asked: list[dict[str, object]] = []

    def begin(**what: object) -> run.RunHistory:
        asked.append(what)
        return run.RunHistory(MagicMock(), run.Reopened())

    monkeypatch.setattr(app, "run_app", lambda _link, options: options.history is not None)
    monkeypatch.setattr(run, "begin", begin)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["--continue"])
    assert cli.main(["--resume", "12"])
    assert asked == [{"go_on": True, "number": None}, {"go_on": False, "number": 12}]


@pytest.mark.parametrize(
    ("argv", "before", "first", "second", "share"),
    [
        (["--model", "a"], (), "a", "", 0.9),
        (["--model", "a", "--beside", "b"], (), "a", "b", 0.45),
        (["--beside", "b", "--gpu-memory-utilization", "0.3"], (), "pagedchat-toy", "b", 0.3),
        (["--continue"], ("c", "d"), "c", "d", 0.45),
        (["--continue", "--beside", "b"], ("c", "d"), "c", "b", 0.45),
        (["--continue", "--model", "a"], ("c", "d"), "a", "d", 0.45),
    ],
)
def test_two_models_are_those_asked_for_or_those_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], before: tuple[str, ...], first: str, second: str, share: float
) -> None:
    from pagedchat.history import run
    from pagedchat.history.records import LayoutRecord
    from pagedchat.tui import app

    seen: list[tuple[object, ...]] = []
    history = run.RunHistory(MagicMock(), run.Reopened(LayoutRecord(models=before)))
    monkeypatch.setattr(run, "begin", lambda **_: history)
    monkeypatch.setattr(
        app, "run_app", lambda link, options: seen.append((link._config, options.model, options.beside)) or 0
    )
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(argv) == 0
    [(config, model, beside)] = seen
    assert (config.model.model, model, beside) == (first, first, second)
    assert config.cache.gpu_memory_utilization == share


def test_a_second_model_needs_a_name_and_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--beside", "b", "-p", "Hello"]) == cli.EXIT_USAGE
    assert capsys.readouterr().err.startswith("pagedchat: --beside goes with the chats on the screen")
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["--beside", ""]) == cli.EXIT_USAGE


def test_standard_input_is_appended_to_the_prompt_option(
    replies: list[tuple[str, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("From a pipe.\n"))
    assert cli.main(["-p", "Hello"]) == 0
    assert replies[0][0] == "Hello\n\nFrom a pipe."


# --- what is wrong, in one sentence -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--num-blocks", "0"], "--num-blocks is 0.\nIt must be a whole number from 1 to 2147483647."),
        (["--num-blocks", "many"], "--num-blocks: invalid int value: 'many'."),
        (["--sessions", "0"], "--sessions: '0' is not a number from 1 to 9."),
        (["--sessions", "10"], "--sessions: '10' is not a number from 1 to 9."),
        (["--swap-space", "4 boxes"], "--swap-space: '4 boxes' is not a size."),
        (["--device", "tpu"], "--device is 'tpu'."),
        (["--temperature", "-1", "-p", "x"], "temperature is -1.0."),
        (["--top-p", "0", "-p", "x"], "top_p is 0.0."),
        (["-p", "  "], "The prompt is empty."),
        (["--resume", "one"], "--resume: 'one' is not the number of a chat."),
        (["--resume", "1", "--continue"], "--continue and --resume name different chats."),
        (["--ephemeral", "--continue"], "--ephemeral keeps nothing, and what it goes on with would be kept."),
        (["-p", "x", "--raw", "--continue"], "--raw continues a text, not a chat."),
        (["--nonsense"], "Unrecognized arguments: --nonsense."),
        (["hello"], "Unrecognized arguments: hello."),
        (["bench"], "The following arguments are required: NAME."),
        (["bench", "engine", "--repeats", "0"], "--repeats: '0' is not a number from 1 to 10000000."),
        (
            ["bench", "engine", "--json", "no/such/folder/x.json"],
            "--json: 'no/such/folder/x.json' cannot be written: make its folder first.",
        ),
    ],
)
def test_wrong_argument_is_one_sentence_and_exit_code_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("pagedchat: ")
    assert sentence in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_empty_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert cli.main([]) == 2
    assert capsys.readouterr().err == (
        'pagedchat: The prompt is empty.\nGive one with -p "TEXT" or on standard input.\n'
    )


def test_json_without_a_prompt_is_refused_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert cli.main(["--json"]) == 2
    assert "--json needs a prompt." in capsys.readouterr().err


def test_a_trace_is_never_written_over(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "run.trace"
    path.write_text("mine")
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert cli.main(["--trace", str(path)]) == 1
    assert f"{path} exists already." in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_chats_need_a_terminal_to_be_drawn_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert cli.main([]) == 2
    assert "Standard output is not a terminal" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
@pytest.mark.parametrize("argv", [[], ["replay"]])
def test_a_terminal_that_cannot_place_a_cursor_is_refused(
    kind: str, argv: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    if argv:
        RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
        argv = [*argv, str(tmp_path / "run.trace")]
    assert cli.main(argv) == 2
    assert f"This terminal cannot show screens (TERM={kind})." in capsys.readouterr().err


def test_error_meant_for_people_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, ModelError("There is no model x.", "Check the name."))
    assert cli.main(["-p", "x"]) == 1
    assert capsys.readouterr().err == "pagedchat: There is no model x.\nCheck the name.\n"


def test_names_in_errors_cannot_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, PagedChatError("Folder \x1b[2J\x07\x9bevil\nis odd."))
    assert cli.main(["-p", "x"]) == 1
    error = capsys.readouterr().err
    assert error.rstrip("\n").isprintable()
    assert "evil is odd." in error


def test_interrupt_ends_quietly_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert cli.main(["-p", "x"]) == 130
    assert capsys.readouterr().err == ""


def test_reader_that_leaves_ends_it_quietly() -> None:
    program = (
        "import sys; from pagedchat.cli import main as cli, oneshot\n"
        "oneshot.run_oneshot = lambda *_, **__: [print('line', flush=True) for _ in range(100000)]\n"
        "sys.exit(cli.main(['-p', 'x']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141


def test_json_of_a_file_is_for_one_reply_and_the_chats_open_all_the_same(
    replies: list[tuple[str, dict[str, object]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pagedchat.tui import app

    settings = tmp_path / "config.toml"
    settings.write_text("json = true\n")
    monkeypatch.setattr(app, "run_app", lambda _link, _options: 3)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["--config", str(settings)]) == 3
    assert cli.main(["--config", str(settings), "-p", "Hello"]) == 0
    assert replies[0][1]["as_json"] is True
