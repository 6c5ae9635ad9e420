"""The command line without a model: arguments, exit codes, messages."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagedchat import __version__
from pagedchat.cli import main as cli
from pagedchat.cli import oneshot
from pagedchat.cli.options import engine_config, parse_args, sampling_overrides
from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import ModelError, PagedChatError
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


# --- arguments ----------------------------------------------------------------------------------------


def test_no_arguments_give_the_default_config() -> None:
    args = parse_args([])
    assert engine_config(args) == EngineConfig()
    assert sampling_overrides(args) == SamplingOverrides()
    assert (args.command, args.sessions, args.prompt, args.raw) == ("chat", 1, None, False)


def test_every_engine_option_reaches_its_field() -> None:
    argv = words(
        "--model m --tokenizer t --device cpu --dtype float16 --attention-backend torch"
        " --block-size 32 --num-blocks 7 --kv-cache-memory 2GiB --gpu-memory-utilization 0.5 --swap-space 1MiB"
        " --no-prefix-caching --max-num-seqs 3 --max-num-batched-tokens 64 --preemption-mode swap --seed 9"
    )
    config = engine_config(parse_args(argv))
    assert (config.model.model, config.model.tokenizer, config.seed) == ("m", "t", 9)
    assert (config.model.device, config.model.dtype) == ("cpu", "float16")
    assert config.model.attention_backend == "torch"
    assert (config.cache.block_size, config.cache.num_blocks) == (32, 7)
    assert (config.cache.kv_cache_memory, config.cache.swap_space) == (2 * 1024**3, 1024**2)
    assert (config.cache.gpu_memory_utilization, config.cache.enable_prefix_caching) == (0.5, False)
    assert (config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens) == (3, 64)
    assert config.scheduler.preemption_mode == "swap"


def test_every_sampling_option_reaches_its_field() -> None:
    argv = words(
        "--temperature 0 --top-p 0.9 --top-k 5 --min-p 0.1 --repetition-penalty 1.2 --presence-penalty 0.5"
        " --frequency-penalty -0.5 --max-tokens 8 --stop a --stop b"
    )
    assert sampling_overrides(parse_args(argv)) == SamplingOverrides(
        temperature=0,
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        max_tokens=8,
        stop=["a", "b"],
    )


def test_seed_belongs_to_the_engine_so_that_panes_differ() -> None:
    assert sampling_overrides(parse_args(["--seed", "3"])).seed is None


def test_bench_has_a_command_line_of_its_own() -> None:
    args = parse_args(words("bench engine --device cpu --json out.json --repeats 5 --threads 1"))
    assert (args.command, args.benchmark, args.device) == ("bench", "engine", "cpu")
    assert (args.json, args.repeats, args.threads, args.model) == (Path("out.json"), 5, 1, None)


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
    argv = words("--model m --sessions 4 --system Brief --raw --top-k 3")
    assert cli.main(argv) == 3
    assert shown == [
        app.UiOptions(model="m", sessions=4, overrides=SamplingOverrides(top_k=3), system="Brief", raw=True)
    ]


def test_prompt_option_leaves_standard_input_alone(
    replies: list[tuple[str, dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.StringIO("not read")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli.main(["-p", "Hello"]) == 0
    assert (replies[0][0], stdin.tell()) == ("Hello", 0)


# --- what is wrong, in one sentence -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--num-blocks", "0"], "--num-blocks is 0, but must be at least 1."),
        (["--num-blocks", "many"], "--num-blocks: invalid int value: 'many'."),
        (["--sessions", "0"], "--sessions: '0' is not a number from 1 to 9."),
        (["--sessions", "10"], "--sessions: '10' is not a number from 1 to 9."),
        (["--swap-space", "4 boxes"], "--swap-space: '4 boxes' is not a size."),
        (["--device", "tpu"], "--device is 'tpu'."),
        (["--temperature", "-1", "-p", "x"], "temperature is -1.0."),
        (["--top-p", "0", "-p", "x"], "top_p is 0.0."),
        (["-p", "  "], "The prompt is empty."),
        (["--nonsense"], "Unrecognized arguments: --nonsense."),
        (["hello"], "Unrecognized arguments: hello."),
        (["bench"], "The following arguments are required: NAME."),
        (["bench", "engine", "--repeats", "0"], "--repeats: '0' is not a number of at least 1."),
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


def test_chats_need_a_terminal_to_be_drawn_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert cli.main([]) == 2
    assert "Standard output is not a terminal" in capsys.readouterr().err


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


# --- recordings ---------------------------------------------------------------------------------------


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
        ("-p hello --trace x", "--trace goes with the chats on the screen, not with one reply."),
        ("-p hello --metrics-port 0", "--metrics-port goes with the chats on the screen, not with one reply."),
    ],
)
def test_what_is_wrong_with_recording_options(line: str, message: str, capsys) -> None:
    assert cli.main(words(line)) in (1, 2)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"pagedchat: {message}")


def test_a_trace_is_never_written_over(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "run.trace"
    path.write_text("mine")
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert cli.main(["--trace", str(path)]) == 1
    assert f"{path} exists already." in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_the_summary_of_a_recording(tmp_path, capsys) -> None:
    run = RecordedEngine(tmp_path / "run.trace", num_blocks=64)
    run.view.labels = {1: "1 tale\x1b[2J"}
    run.ask(1, 20)
    run.run(40)
    run.recorder.close()
    assert cli.main(["replay", str(tmp_path / "run.trace"), "--summary"]) == 0
    text = capsys.readouterr().out
    assert "steps     0 to 40, 40 reports" in text
    assert "chats     1 tale\n" in text
    assert "state     whole" in text
    (tmp_path / "cut.trace").write_bytes((tmp_path / "run.trace").read_bytes()[:-9])
    assert cli.main(["replay", str(tmp_path / "cut.trace"), "--summary", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["damage"] == "The file was cut after step 40."
    assert (summary["whole"], summary["last_step"], summary["seconds"]) == (False, 40, 1.95)
    assert summary["chats"] == {"1": "1 tale\x1b[2J"}
    assert summary["bytes_per_step"] == round(summary["num_bytes"] / 40, 1)


def test_a_replay_needs_a_terminal(tmp_path, capsys) -> None:
    RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
    assert cli.main(["replay", str(tmp_path / "run.trace")]) == 2
    assert "For its figures use --summary." in capsys.readouterr().err


def test_a_replay_loads_no_torch(tmp_path) -> None:
    RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
    check = "import sys, pagedchat.tui.replay.app, pagedchat.cli.replay; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
