"""The benchmark of the screens: its parts, and a run from end to end with tiny sizes. No figure is judged."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from pagedchat.bench.random_checkpoint import LARGE_STD, OPT_125M, write_checkpoint, write_word_tokenizer
from pagedchat.bench.ui import attach, keys, main, slowdown, transcripts
from pagedchat.bench.ui.arguments import add_ui_options
from pagedchat.bench.ui.gpu_speed import measure_gpu_speed
from pagedchat.bench.ui.long_chats import LongChats
from pagedchat.bench.ui.main import run_ui_bench
from pagedchat.bench.ui.script import VARIABLE, Script, StepCounter, inherited_script
from pagedchat.bench.ui.slowdown import SlowdownResult
from pagedchat.bench.ui.terminal import Terminal
from pagedchat.cli.options import Parser, parse_args
from pagedchat.errors import DeviceError, InvalidValueError, PagedChatError
from pagedchat.view.engine_view import EngineView


def program(text: str) -> Terminal:
    return Terminal([sys.executable, "-c", text], os.environ)


def options(*argv: str) -> argparse.Namespace:
    parser = Parser()
    add_ui_options(parser)
    return parser.parse_args(argv)


# --- the terminal -----------------------------------------------------------------------------------


def test_key_is_echoed_by_the_terminal() -> None:
    with program("print('ready'); print('got', input())") as terminal:
        terminal.wait_for("ready")
        pressed = time.perf_counter()
        terminal.press("Ж\n")
        assert terminal.wait_for("got Ж") > pressed


def test_frames_are_counted_even_in_two_pieces() -> None:
    with program("pass") as terminal:
        for piece in (b"\x1b[?2026h one \x1b[?2026l \x1b[?20", b"26h two \x1b[?2026l", b"\x1b[?2026h"):
            terminal._take(piece)
        assert terminal.num_frames == 3


def test_program_that_asks_for_bracketed_frames_gets_them() -> None:
    ask = (
        "import sys, tty; tty.setraw(0); print('\\x1b[?2026$p', end='', flush=True);"
        "print(repr(sys.stdin.buffer.raw.read(11)), flush=True); input()"
    )
    with program(ask) as terminal:
        assert terminal.wait_for(r"\x1b[?2026;2$y") > 0
        assert terminal.num_frames == 0


def test_program_that_ends_is_reported_with_its_words() -> None:
    with (
        program("print('no screen for me')") as terminal,
        pytest.raises(PagedChatError, match="did not show") as caught,
    ):
        terminal.wait_for("┌")
    assert "no screen for me" in caught.value.hint


def test_program_that_fails_is_reported() -> None:
    with program("raise SystemExit('no')") as terminal, pytest.raises(PagedChatError, match="failed"):
        terminal.wait_for_end(20)


# --- parts ------------------------------------------------------------------------------------------


def test_steps_counted_in_one_process_are_read_in_another(tmp_path: Path) -> None:
    counter = StepCounter(tmp_path / "steps")
    counting = (
        "import sys; from pathlib import Path; from pagedchat.bench.ui.script import StepCounter;"
        "counter = StepCounter(Path(sys.argv[1])); [counter.add() for _ in range(5)]"
    )
    subprocess.run([sys.executable, "-c", counting, str(tmp_path / "steps")], check=True)
    assert counter.value == 5
    counter.close()


def test_script_goes_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        folder="/somewhere", num_chats=2, num_blocks=64, step_seconds=0.01, reply_tokens=9, screen=False
    )
    monkeypatch.setenv(VARIABLE, script.environment()[VARIABLE])
    assert inherited_script() == script


def test_long_chats_fill_half_the_pool_and_grow() -> None:
    view = EngineView()
    chats = LongChats(view, num_blocks=400, num_chats=4, steps_per_second=30)
    assert view.mirror is not None
    pool = view.history[-1].pool
    assert pool.cached == 100
    assert pool.in_use == pytest.approx(150, abs=8)  # a fork shares its 50
    assert pool.shared >= 49
    tokens = {seq_id: len(seq.token_ids) for seq_id, seq in view.mirror.sequences.items()}
    chats.step(2)
    grown = {seq_id: len(seq.token_ids) - tokens[seq_id] for seq_id, seq in view.mirror.sequences.items()}
    assert grown == {1: 2, 2: 2, 3: 2, 4: 2}


def test_slowdown_compares_medians() -> None:
    speeds = {"no screen": 300.0, "chats": 300.0, "chats and inspector": 291.0}
    result = SlowdownResult(
        num_chats=8, num_blocks=64, rounds=1, seconds=1, runs={}, steps_per_second=speeds, cpu_share={}
    )
    assert result.slowdown("chats and inspector", "chats") == pytest.approx(0.03)
    assert result.slowdown("chats", "no screen") == 0


def test_arguments_belong_to_the_bench_command() -> None:
    args = parse_args(["bench", "ui", "--only", "keys,frames", "--chats", "3"])
    assert (args.benchmark, args.only, args.chats, args.num_blocks) == ("ui", ["keys", "frames"], 3, 32_000)


@pytest.mark.parametrize("argv", [["--only", "speed"], ["--keys", "0"], ["--rounds", "many"]])
def test_wrong_arguments_are_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidValueError):
        options(*argv)


@pytest.mark.parametrize("argv", [["--device", "cuda"], ["--only", "keys,frames"]])
def test_a_model_is_for_keys_on_a_cpu(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "finds_gpu", lambda: True)
    with pytest.raises(InvalidValueError, match="--model is for keys, on the CPU"):
        run_ui_bench(options("--model", "m", *argv))


def test_without_a_gpu_nothing_is_measured_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "finds_gpu", lambda: False)
    with pytest.raises(DeviceError, match="bench ui finds no GPU"):
        run_ui_bench(options("--device", "cuda"))


def test_words_are_all_different_and_every_token_has_a_text(tmp_path: Path) -> None:
    write_word_tokenizer(tmp_path, 6000)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = [tokenizer.decode([token_id]) for token_id in range(260, 6000)]
    assert all(text.startswith(" ") and text[1:].isalpha() for text in texts)
    assert len(set(texts)) == len(texts)
    assert tokenizer.decode(tokenizer.encode("Go on.").ids) == "Go on."


def test_a_history_is_measured_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    argv = ["--only", "history", "--history-chats", "30", "--json", str(output)]
    assert run_ui_bench(options(*argv)) == 0
    figures = json.loads(output.read_text())["history"]
    assert figures["num_chats"] == 30
    assert all(figures[name] > 0 for name in ("open_ms", "list_ms", "rare_ms", "common_ms", "plain_ms", "write_ms"))
    assert "history, opened and searched" in capsys.readouterr().out


def test_a_terminal_that_attaches_is_measured_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(attach, "_REPEATS", 1)
    monkeypatch.setattr(attach, "NUM_MESSAGES", 6)
    output = tmp_path / "figures.json"
    assert run_ui_bench(options("--only", "attach", "--json", str(output))) == 0
    figures = json.loads(output.read_text())["attach"]
    assert 0 < figures["first_frame_ms"] <= figures["all_text_ms"]
    assert figures["attached_ms"] > 0


# --- end to end -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_from_end_to_end_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (  # figures need not be good ones
        (transcripts, "_SETTLE", 0.3), (transcripts, "LONG", 5_000), (transcripts, "_PAGES", 4),
        (keys, "_SETTLE", 0.3), (slowdown, "SETTLE", 0.3), (attach, "_REPEATS", 2),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    sizes = {"chats": 2, "rate": 30, "num-blocks": 256, "frames": 3, "keys": 3, "seconds": 1, "rounds": 1}
    sizes |= {"history-chats": 20}
    argv = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    output = tmp_path / "figures.json"
    assert run_ui_bench(options(*argv, "--json", str(output))) == 0
    figures = json.loads(output.read_text())
    assert set(figures) == {
        "environment",
        "terminal",
        "frames",
        "keys",
        "transcripts",
        "slowdown",
        "history",
        "attach",
        "engine",
        "load",
    }
    assert figures["frames"]["num_frames"] == 3
    assert figures["keys"]["num_keys"] == 3
    assert figures["keys"]["frames_per_second"] > 0
    assert figures["keys"]["steps_per_second"] > 0
    assert set(figures["slowdown"]["steps_per_second"]) == {"no screen", "chats", "chats and inspector"}
    assert all(speed > 0 for speed in figures["slowdown"]["steps_per_second"].values())
    assert {"by_chats", "by_inspector"} <= set(figures["slowdown"])
    assert figures["transcripts"]["keys"]["num_keys"] == 3
    assert 0 < figures["transcripts"]["long_share"] < 1
    assert set(figures["load"]) == {"frames", "keys", "transcripts", "slowdown", "history", "attach"}
    assert figures["history"]["num_chats"] == 20
    assert 0 < figures["attach"]["first_frame_ms"] <= figures["attach"]["all_text_ms"]
    table = capsys.readouterr().out
    assert "key to its echo, inspector open" in table
    assert "slower than chats" in table


TINY = OPT_125M | {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "ffn_dim": 128,
                   "num_attention_heads": 2, "word_embed_proj_dim": 64}  # fmt: skip


@pytest.mark.slow
def test_keys_are_echoed_while_a_real_model_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path, TINY, torch.float32, torch.device("cpu"), std=LARGE_STD)
    write_word_tokenizer(tmp_path, TINY["vocab_size"])
    sizes = ["--chats", "2", "--num-blocks", "400", "--keys", "3"]
    assert run_ui_bench(options("--model", str(tmp_path), "--quantize", "int8", *sizes)) == 0
    title, echo, *_ = capsys.readouterr().out.splitlines()
    assert f"2 chats, 400 blocks, {tmp_path} in int8" in title
    assert "3 keys" in echo


@pytest.mark.slow
def test_a_real_model_takes_the_same_steps_with_and_without_a_screen() -> None:
    told: list[str] = []
    result = measure_gpu_speed(TINY, "cpu", 2, 800, 1, 300, told.append)
    assert told == ["steps a second, round 1 of 1"]
    assert (result.num_chats, result.num_steps, result.seconds) == (2, 300, None)
    assert set(result.runs) == {"no screen", "chats", "chats and inspector"}
    assert all(speed > 60 for speed in result.steps_per_second.values())  # held they take 20 ms and more
    assert result.cpu_share["chats"] > 0


@pytest.mark.gpu
def test_on_a_gpu_both_slowdowns_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "figures.json"
    sizes = ["--chats", "8", "--num-blocks", "4000", "--rounds", "1", "--steps", "1500"]
    assert run_ui_bench(options("--device", "cuda", *sizes, "--json", str(output))) == 0
    slowdown = json.loads(output.read_text())["slowdown"]
    assert all(speed > 1000 for speed in slowdown["steps_per_second"].values())
    assert {"by_chats", "by_inspector"} <= set(slowdown)
    assert "slower than chats" in capsys.readouterr().out
