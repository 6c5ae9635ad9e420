"""`pagedchat stats` over real sockets: what a program answers, and what is said when there is none or several."""

import argparse
import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from pagedchat.cli import stats as stats_command
from pagedchat.cli.stats import add_stats_options, run_stats, stats_text
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.events import ServerInfo, Steps
from pagedchat.metrics import runtime_folder
from pagedchat.metrics.fold import MetricsFold
from pagedchat.metrics.runtime_folder import socket_path
from pagedchat.metrics.stats_socket import ask_stats, serve_stats
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.stats_answer import StatsAnswer, answer_of_all
from tests.fakes_tui import READY
from tests.scripted_reports import ScriptedEngine, ready, story

URL = "http://127.0.0.1:9100/metrics"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: a test's own folder is too long for a socket on some systems."""
    with tempfile.TemporaryDirectory(prefix="pc") as name:
        monkeypatch.setattr(runtime_folder, "_candidates", lambda: [Path(name) / "run"])
        yield Path(name) / "run"


def answer_of_a_story(num_chats: int = 2) -> StatsAnswer:
    engine = story()
    desk = ChatDesk(lambda command: None, UiOptions())
    for _ in range(num_chats):
        desk.new()
    return StatsAnswer(engine.view, desk, lambda: "asked/for", URL)


def awaited(answer: StatsAnswer) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def later() -> dict[str, Any]:
        return answer()

    return later


@contextmanager
def serving(answer: StatsAnswer) -> Iterator[Path]:
    """On a loop in a thread, so that a test may wait for it like any other program does."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    task = asyncio.run_coroutine_threadsafe(serve_stats(awaited(answer)), loop)
    path = wait_until(lambda: runtime_folder.running().get(os.getpid()))
    yield path
    task.cancel()
    wait_until(lambda: not path.exists())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def wait_until(condition: Callable[[], Any]) -> Any:
    for _ in range(500):
        if result := condition():
            return result
        time.sleep(0.01)
    raise TimeoutError


def options(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_stats_options(parser)
    return parser.parse_args(argv)


def test_answer_over_the_socket_is_the_one_made(folder: Path) -> None:
    answer = answer_of_a_story()
    with serving(answer) as path:
        told = ask_stats(path)
    assert told | {"uptime": 0} == json.loads(json.dumps(answer())) | {"uptime": 0}


def test_socket_is_gone_afterwards(folder: Path) -> None:
    with serving(answer_of_a_story()) as path:
        assert path.exists()
    assert not path.exists()


def test_client_that_reads_nothing_keeps_nobody_waiting(folder: Path) -> None:
    with serving(answer_of_a_story()) as path, socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(path))
        told = ask_stats(path)
    assert told["pid"] == os.getpid()


def test_no_place_for_a_socket_is_no_harm(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    assert asyncio.run(serve_stats(awaited(answer_of_a_story()))) is None


@pytest.mark.parametrize("num_turns", range(4))
def test_whoever_ends_it_at_its_very_beginning_leaves_no_socket(folder: Path, num_turns: int) -> None:
    async def begin_and_end() -> None:
        task = asyncio.ensure_future(serve_stats(awaited(answer_of_a_story())))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(begin_and_end())
        gc.collect()
    assert [warning for warning in told if warning.category is ResourceWarning] == []
    assert runtime_folder.running() == {}


def test_figures_are_those_of_the_last_report() -> None:
    engine = story()
    told = answer_of_a_story()()
    last = engine.reports[-1]
    assert told["pool"]["in_use"] == last.pool.in_use
    assert told["pool"]["saved_bytes"] == (last.pool.table_entries - last.pool.in_use) * 589_824
    assert told["counters"]["steps"] == last.counters.steps
    assert told["queues"] == {"waiting": 0, "running": 3, "swapped": 0, "parked": 1}
    assert told["model"] == "tiny/opt"
    assert told["state"] == "running"
    assert told["metrics_url"] == URL


def test_every_chat_has_its_tokens_and_blocks() -> None:
    engine = story()
    first, second = answer_of_a_story()()["chats"]
    assert first["tokens"] == len(engine.core.sequences[1])
    assert (first["blocks_own"], first["blocks_shared"]) == engine.view.blocks_of(1)
    assert first["blocks_shared"] == second["blocks_shared"] > 0


def test_a_look_at_the_past_changes_nothing() -> None:
    engine = story()
    answer = StatsAnswer(engine.view, ChatDesk(lambda command: None, UiOptions()), lambda: "asked/for")
    before = answer()["pool"]
    engine.view.show_past(story(64).view.live)
    assert answer()["pool"] == before


def test_before_the_engine_is_ready_there_are_no_figures() -> None:
    told = StatsAnswer(EngineView(), ChatDesk(lambda command: None, UiOptions()), lambda: "asked/for")()
    assert told["state"] == "loading"
    assert told["model"] == "asked/for"
    assert told["engine"] is told["pool"] is told["counters"] is None
    assert "there is no engine yet" in stats_text(told)


def test_before_the_first_step_the_pool_is_as_large_as_it_is() -> None:
    engine = ScriptedEngine(num_blocks=48)
    told = StatsAnswer(engine.view, ChatDesk(lambda command: None, UiOptions()), "asked/for")()
    assert (told["pool"]["total"], told["pool"]["free"], told["pool"]["in_use"]) == (48, 48, 0)
    assert told["queues"]["running"] == told["counters"]["steps"] == told["rates"]["batch"] == 0
    assert "0/48 in use, 48 free" in stats_text(told)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"kernels": "cpu"}, "float32, CPU kernels, 48"),
        ({"kernels": "cuda"}, "float32, CUDA kernels, 48"),
        ({"kernels": "torch"}, "float32, torch, 48"),
        ({"kernels": "", "attention_backend": "cuda"}, "float32, cuda attention, 48"),
        ({"kernels": ["\x1b[2J"], "attention_backend": "torch"}, "float32, torch attention, 48"),
        ({"attention_backend": "torch"}, "float32, torch attention, 48"),
    ],
)
def test_what_steps_are_made_of_is_told_by_older_programs_too(told: dict[str, object], words: str) -> None:
    engine = ScriptedEngine(num_blocks=48)
    answer = StatsAnswer(engine.view, ChatDesk(lambda command: None, UiOptions()), "asked/for")()
    older = {name: value for name, value in answer["engine"].items() if name != "kernels"}
    assert words in stats_text(answer | {"engine": older | {"dtype": "float32"} | told})


def test_of_two_models_both_are_told() -> None:
    first, second = answer_of_a_story(), answer_of_a_story(num_chats=1)
    assert answer_of_all([first])["beside"] is None
    told = answer_of_all([first, second])
    assert (len(told["chats"]), len(told["beside"]["chats"])) == (2, 1)
    alone = stats_text(first())
    assert stats_text(told).startswith(alone)
    assert "beside: pagedchat " in stats_text(told)


def test_a_chat_that_waits_is_not_said_to_run() -> None:
    engine = ScriptedEngine(num_blocks=48)
    desk = ChatDesk(lambda command: None, UiOptions())
    chat = desk.new("tale")
    desk.submit(chat, "Go on.")
    chat.start()
    engine.core.controls.set_limit(1)
    engine.ask(1, 370)
    engine.run()
    told = StatsAnswer(engine.view, desk, "asked/for")()
    assert (told["state"], told["queues"]["running"], told["queues"]["waiting"]) == ("waiting", 0, 1)
    assert told["rates"] == {"tokens_per_second": 0, "batch": 0}
    [one] = told["chats"]
    assert (one["status"], one["waits_because"]) == ("waiting", "needs 24 blocks, the limit is 1")
    assert stats_text(told).splitlines()[-1].endswith("  needs 24 blocks, the limit is 1")


def test_preemptions_and_the_pool_s_share_are_those_of_the_events_and_the_metrics() -> None:
    engine = ScriptedEngine(num_blocks=48, block_size=4)
    for seq_id in (1, 2, 3):
        engine.ask(seq_id, 39, max_tokens=1)
        engine.run()
    engine.core.controls.set_limit(25)
    engine.flush()
    told = StatsAnswer(engine.view, ChatDesk(lambda command: None, UiOptions()), "asked/for")()
    lines = [line for line in engine.view.lines if line.kind == "PREEMPT"]
    fold = MetricsFold()
    fold.fold(ready(engine.core.limits))
    fold.fold(Steps(engine.reports))
    assert len(lines) == told["counters"]["preemptions"] == fold.counters.preemptions == 1
    assert told["pool"]["usage"] == round(engine.view.present.pool.usage, 4) == round(20 / 25, 4)


def test_text_has_a_line_for_each_concern(capsys: pytest.CaptureFixture[str]) -> None:
    lines = stats_text(answer_of_a_story()()).splitlines()
    assert [line.split()[0] for line in lines if line][1:] == [
        "engine", "pool", "queues", "work", "cache", "metrics", "chat", "1", "2",
    ]  # fmt: skip
    assert "40/256 in use, 216 free, 0 cached, 24 shared (saves 13.5 MiB)" in lines[2]


def test_withheld_blocks_are_told_when_there_are_any() -> None:
    told = answer_of_a_story()()
    told["pool"]["withheld"] = 7
    assert "7 withheld" in stats_text(told)


def test_a_small_cache_is_named() -> None:
    told = answer_of_a_story()()
    assert told["engine"]["kv_cache_dtype"] == ""
    assert "tokens in fp8" not in stats_text(told)
    told["engine"]["kv_cache_dtype"] = "fp8"
    assert "tokens in fp8" in stats_text(told)


def test_names_never_reach_the_terminal_as_escapes() -> None:
    told = answer_of_a_story()()
    told["model"] = "evil\x1b[2J"
    told["chats"][0]["name"] = "\x1b]0;title\x07chat"
    assert "\x1b" not in stats_text(told)


# --- the command ------------------------------------------------------------------------------------


def test_whatever_is_answered_is_printed_safely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = answer_of_a_story()()
    told["state"] = told["engine"]["dtype"] = told["metrics_url"] = "\x9b31m\u202eodd"
    monkeypatch.setattr("pagedchat.cli.stats._ask", lambda _: told)
    for argv in ([], ["--json"]):
        assert run_stats(options(*argv)) == 0
        shown = capsys.readouterr().out
        assert "odd" in shown
        assert shown.replace("\n", "").isprintable()


def test_none_running_is_said(folder: Path) -> None:
    with pytest.raises(PagedChatError, match="No pagedchat is running") as caught:
        run_stats(options())
    assert not isinstance(caught.value, InvalidValueError)  # exit code 1, not 2


def test_the_only_one_is_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answer_of_a_story()):
        assert run_stats(options("--json")) == 0
    assert json.loads(capsys.readouterr().out)["pid"] == os.getpid()


def test_unknown_process_is_refused_with_those_that_run(folder: Path) -> None:
    with serving(answer_of_a_story()), pytest.raises(PagedChatError, match="No pagedchat of yours") as caught:
        run_stats(options("--pid", "4194304"))
    assert str(os.getpid()) in caught.value.hint


SECOND = """
import asyncio, sys
from pathlib import Path
from pagedchat.metrics import runtime_folder
from pagedchat.metrics.stats_socket import serve_stats
runtime_folder._candidates = lambda: [Path(sys.argv[1])]
async def answer():
    return {"pid": 0, "model": "other", "uptime": 200, "chats": []}
asyncio.run(serve_stats(answer))
"""


def test_several_running_are_listed_and_one_must_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answer_of_a_story()), subprocess.Popen([sys.executable, "-c", SECOND, str(folder)]) as other:
        try:
            wait_until(lambda: answers(folder, other.pid))
            with pytest.raises(InvalidValueError, match=r"2 are running: .*other, 0 chats, up 3 min") as caught:
                run_stats(options())
            assert "--pid" in caught.value.hint
            assert run_stats(options("--json", "--pid", str(other.pid))) == 0
        finally:
            other.kill()
    assert json.loads(capsys.readouterr().out)["model"] == "other"


def answers(folder: Path, pid: int) -> bool:
    try:
        return bool(ask_stats(socket_path(folder, pid)))
    except PagedChatError:
        return False


def test_one_that_left_a_socket_to_a_stranger_is_not_counted(folder: Path) -> None:
    with serving(answer_of_a_story()):
        socket_path(folder, os.getppid()).touch()  # a live process that listens to nothing there
        told: list[dict[str, Any]] = stats_command._ask_all(runtime_folder.running())
    assert [answer["pid"] for answer in told] == [os.getpid()]


def test_a_server_in_an_engines_place_is_told_as_one() -> None:
    view = EngineView()
    server = ServerInfo("lab", "http://lab:8000/v1", "vLLM", ("org/tiny",), True)
    view.apply(msgspec.structs.replace(READY, model="org/tiny", num_blocks=0, server=server))
    answer = StatsAnswer(view, ChatDesk(lambda command: None, UiOptions()), lambda: "asked/for")
    told = answer_of_all([answer, answer, answer])
    assert (told["model"], told["state"], told["server"], told["engine"]) == (
        "org/tiny", "idle", "http://lab:8000/v1", None,
    )  # fmt: skip
    assert told["beside"]["beside"]["beside"] is None
    assert stats_text(told).count("server   http://lab:8000/v1, which does not tell its blocks") == 3
