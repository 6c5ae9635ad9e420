"""The longest gap between two tokens: how it is found, from whom, and what is told of it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagedchat.bench.engine import cpu_sections, stutter, stutter_child
from pagedchat.bench.engine.gaps import Gaps
from pagedchat.bench.engine.stutter import StutterFigure, measure_stutter, stutter_table
from pagedchat.cli import main as cli
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.errors import PagedChatError
from pagedchat.events import (
    Counters,
    EngineEvent,
    EngineFailed,
    PoolCounts,
    QueueLengths,
    RequestFinished,
    StepReport,
    Steps,
    Timings,
)
from pagedchat.service.commands import Generate
from pagedchat.step_batch import BatchEntry
from tests.helpers_models import make_checkpoint
from tests.service.fake_engine import ready_info


def test_the_longest_gaps_of_several_chats_count_from_the_first_token() -> None:
    gaps = Gaps()
    for chat, now in (("a", 5.0), ("b", 5.0), ("a", 5.1), ("b", 5.3), ("a", 5.2), ("b", 5.35)):
        gaps.token(chat, now)
    gaps.begin("a")
    for now in (9.0, 9.2):
        gaps.token("a", now)
    assert gaps.num_tokens == 8
    assert gaps.worst == pytest.approx([0.3, 0.2])
    notes = [(5.0, "before"), (5.01, "in the second"), (5.1, "in both"), (5.3, "at the end"), (5.31, "after")]
    gaps = Gaps()
    for chat, now in (("a", 5.0), ("b", 5.05), ("a", 5.2), ("b", 5.3)):
        gaps.token(chat, now)
    assert gaps.meanwhile(notes) == [["in both", "at the end"], ["in the second", "in both"]]


def test_chats_join_in_turn_and_prompts_leave_room_for_replies() -> None:
    seconds = iter([0.1, 0.6, 0.7, 5.0, 5.0])
    joining = stutter_child._joining(lambda: next(seconds))
    assert [next(joining) for _ in range(8)] == [0, -1, 1, -1, 2, 3, -1, -1]
    prompts = stutter_child._prompts(stutter_child.NEW_TOKENS + 200)
    assert [len(next(prompts)) for _ in range(5)] == [40, 200, 120, 200, 40]


def test_every_kind_of_sampling_runs_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stutter_child, "NEW_TOKENS", 20)
    monkeypatch.setattr(stutter_child, "JOIN_SECONDS", 0.0)
    model = ModelConfig(model=str(make_checkpoint(tmp_path)), device="cpu", skip_tokenizer_init=True)
    gaps = Gaps()
    stutter_child.through_api(EngineConfig(model=model, cache=CacheConfig(num_blocks=64)), 0.0, gaps)
    assert gaps.num_tokens == 20 * len(stutter_child.KINDS)
    assert logging.getLogger("pagedchat.runtime.graphs").level == logging.NOTSET
    assert len(gaps.worst) == 2


class Client:
    """Stands for an `EngineClient`: answers each request with two tokens."""

    def __init__(self, *events: EngineEvent) -> None:
        self.sent: list[Generate] = []
        self.waiting: list[Any] = list(events)

    def send(self, command: Generate) -> None:
        self.sent.append(command)
        now, chat = float(len(self.sent)), command.session_id
        entries = [BatchEntry(chat, 9, 0, [5]), BatchEntry(chat, 0, 1, [6])]
        times = (now, now + 0.1 * chat)
        step = 2 * len(self.sent)
        reports = [
            SimpleNamespace(batch=[entry], time=at, step=step + i)
            for i, (entry, at) in enumerate(zip(entries, times, strict=True))
        ]
        self.waiting += [
            Steps(reports),  # type: ignore[arg-type]
            RequestFinished(chat, command.request_id, "length", 9, 0, 2, 0.1, 0.2),
        ]

    async def events(self) -> AsyncIterator[EngineEvent]:
        while self.waiting:
            yield self.waiting.pop(0)


def test_an_engine_process_tells_the_times_in_its_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stutter_child, "JOIN_SECONDS", 0.0)
    client, gaps = Client(ready_info()), Gaps()
    reports = asyncio.run(stutter_child._listen(client, 0.0, gaps))  # type: ignore[arg-type]
    assert sorted(reports) == [*range(2, 10)]
    assert {command.session_id for command in client.sent} == {1, 2, 3, 4}
    assert gaps.num_tokens == 8
    assert gaps.worst == pytest.approx([0.4, 0.3])


def report(step: int, **seconds: float) -> StepReport:
    batch, timings = [BatchEntry(1, 0, 1, [6])], Timings(**seconds)
    counts = PoolCounts(0, 0, 0, 0, 0, 0, 0, 0), QueueLengths(0, 0, 0, 0)
    return StepReport(step, float(step), batch, [], *counts, timings, Counters())


def test_what_held_a_step_up_is_read_from_the_log_and_the_reports() -> None:
    log = (
        "2026-11-23 05:00:00 DEBUG pagedchat.runtime.graphs.captured_runner: Step 3: trial of steps of 4: 9.1 ms.\n"
        "something else\n"
        "2026-11-23 05:00:00 DEBUG pagedchat.runtime.graphs.captured_runner: Step 9: of nobody's.\n"
    )
    notes = stutter_child.notes_of(log, {3: report(3, forward=0.004), 4: report(4, launch=0.02, forward=0.001)})
    assert notes == [
        (3.0, "trial of steps of 4: 9.1 ms"),
        (4.0, "a step of 1 took 21.0 ms (launch 20.0, forward 1.0)"),
    ]


def test_a_script_notes_what_the_runner_says(caplog: pytest.LogCaptureFixture) -> None:
    noting = stutter_child._Noting()
    said = logging.getLogger("pagedchat.runtime.graphs.captured_runner")
    caplog.set_level(logging.DEBUG, said.name)
    said.addHandler(noting)
    said.debug("Step %d: %d tokens of %d without a graph: %.1f ms.", 7, 3, 2, 1.25)
    said.debug("something else")
    said.removeHandler(noting)
    assert [what for _, what in noting.notes] == ["3 tokens of 2 without a graph: 1.2 ms"]


def test_an_engine_that_does_not_start_is_told_of() -> None:
    with pytest.raises(PagedChatError, match="No such model"):
        asyncio.run(stutter_child._listen(Client(EngineFailed("No such model.", "")), 0.0, Gaps()))  # type: ignore[arg-type]


def test_every_run_is_a_process_without_kernels_and_the_worst_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caches, asked = list[str](), list[list[str]]()

    def run(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
        caches.append(environment["PAGEDCHAT_CACHE_DIR"])
        asked.append(command[3:])
        meanwhile = [[f"piece {len(caches)}", "another"], []]
        return {"worst": [0.001 * len(caches), 0.0005], "num_tokens": 7, "meanwhile": meanwhile}

    monkeypatch.setattr(stutter, "last_words", run)
    said: list[str] = []
    api, process = measure_stutter(tmp_path, "cpu", "auto", 2, said.append)
    assert (api.worst_ms, process.worst_ms, process.second_ms, process.num_tokens) == (2.0, 4.0, 0.5, 7)
    assert len(set(caches)) == 4
    assert asked[0] == ["api", str(tmp_path), "cpu", "auto", "4.0"]
    assert said == [
        "stutter: LLMEngine in a script: 2.0 ms, then 0.5 ms",
        "stutter: LLMEngine in a script: in the longest: piece 2; another",
        "stutter: LLMEngine in a script: in the second: nothing that the engine took note of",
        "stutter: engine process: 4.0 ms, then 0.5 ms",
        "stutter: engine process: in the longest: piece 4; another",
        "stutter: engine process: in the second: nothing that the engine took note of",
    ]


def test_on_a_cpu_it_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = StutterFigure(name="engine process", worst_ms=12.34, second_ms=8.0, num_tokens=99, meanwhile=[])
    monkeypatch.setattr(cpu_sections, "measure_stutter", lambda *_: [figure])
    argv = ["bench", "engine", "--only", "stutter", "--model", "some/model", "--json", str(tmp_path / "x.json")]
    assert cli.main(argv) == 0
    assert "engine process" in capsys.readouterr().out
    assert json.loads((tmp_path / "x.json").read_text())["stutter"][0]["worst_ms"] == 12.34
    assert stutter_table([figure]).rows == (("engine process", "12.3", "8.0", "99"),)
    assert cli.main(["bench", "engine", "--only", "stutter,shapes"]) == 2
    assert "'shapes' is measured on a GPU alone" in capsys.readouterr().err
