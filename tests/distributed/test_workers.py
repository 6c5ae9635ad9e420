"""The life of ranks, with processes that have no model: whoever is lost is named, the others end, none stays."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.distributed.messages import Join, NewBatch
from pagedchat.distributed.runner import DistributedRunner
from pagedchat.distributed.workers import Workers
from pagedchat.errors import DeviceError

ENTRY = (sys.executable, "-m", "tests.distributed.fake_worker")
BATCH = NewBatch(1, [], [], False, [])
SOON = 10.0
"""Seconds."""

Start = Callable[..., Workers]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    made: list[Workers] = []

    def start(what: str = "", size: int = 3, **arguments: object) -> Workers:
        join = Join(
            EngineConfig(model=ModelConfig(model=what or "m")),
            True,
            0,
            size,
            str(tmp_path_factory.mktemp("meeting")),
        )
        made.append(Workers(join, entry=ENTRY, **arguments))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for workers in made:
        workers.close()


def gone(pids: list[int]) -> bool:
    """Whether all processes end soon; those that are dead and not yet waited for have ended."""
    deadline = time.monotonic() + SOON
    while any(map(lives, pids)):
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.02)
    return True


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def failure_of(workers: Workers) -> str:
    error = workers.loss()
    assert isinstance(error, DeviceError)
    with pytest.raises(DeviceError):
        workers.tell(BATCH)
    return str(error)


def test_ranks_load_run_and_end(start: Start) -> None:
    workers = start()
    assert [each.device for each in workers.wait_loaded()] == ["device 1", "device 2"]
    workers.tell(BATCH)
    assert workers.wait_done(SOON)
    assert workers.step_seconds == [0.25, 0.25]
    pids = workers.pids
    workers.close()
    assert gone(pids)


def test_all_ranks_prepare_together(start: Start) -> None:
    workers = start()
    workers.wait_loaded()
    runner = DistributedRunner(Mock(), workers)
    assert [runner.prepare_more(lambda left=left: left) for left in (True, False)] == [True, False]
    assert workers.wait_done(SOON)
    assert workers.num_told == 2


def test_a_rank_that_is_lost_while_all_prepare_is_named(start: Start) -> None:
    workers = start("dies in a batch")
    workers.wait_loaded()
    runner = DistributedRunner(Mock(), workers)

    def prepare() -> bool:
        workers.loss()
        raise RuntimeError("a sum without rank 2")

    with pytest.raises(DeviceError, match=r"process \d+"):
        runner.prepare_more(prepare)
    with pytest.raises(DeviceError, match=r"process \d+"):
        runner.check()


def test_a_rank_that_is_lost_before_it_connects_is_told_at_once(start: Start) -> None:
    workers = start("never arrives")
    os.kill(workers.pids[1], signal.SIGKILL)
    with pytest.raises(DeviceError, match="Rank 2"):
        workers.wait_arrived()


def test_ranks_that_are_about_to_connect_are_waited_for(start: Start) -> None:
    workers = start()
    workers.wait_arrived()
    assert all(each.has_arrived for each in workers._watch.workers)


def test_a_rank_that_is_killed_is_named_and_the_others_end(start: Start) -> None:
    lost = threading.Event()
    workers = start()
    workers.tell_of_loss(lost.set)
    workers.wait_loaded()
    pids = workers.pids
    os.kill(pids[1], signal.SIGKILL)
    message = failure_of(workers)
    assert message.startswith(
        f"Rank 2 (process {pids[1]}, on device 2) was killed (SIGKILL), and with it a part of"
    )
    assert lost.is_set()
    assert gone(pids)


def test_a_rank_that_dies_in_a_batch(start: Start) -> None:
    workers = start("dies in a batch")
    workers.wait_loaded()
    workers.tell(BATCH)
    assert not workers.wait_done(SOON)
    assert "Rank 2" in failure_of(workers)


def test_a_rank_that_fails_says_why(start: Start) -> None:
    workers = start("fails in a batch", 2)
    workers.wait_loaded()
    workers.tell(BATCH)
    assert "failed: RuntimeError: it does not work." in failure_of(workers)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("cannot load", "could not load its part: There is no room. Free some memory."),
        ("ends", "exit code 3"),
    ],
)
def test_a_rank_that_does_not_load(start: Start, what: str, words: str) -> None:
    workers = start(what, 2)
    with pytest.raises(DeviceError) as raised:
        workers.wait_loaded()
    assert words in str(raised.value)


def test_a_rank_that_is_stopped_is_ended(start: Start) -> None:
    workers = start(silence=0.7)
    workers.wait_loaded()
    pids = workers.pids
    os.kill(pids[0], signal.SIGSTOP)
    assert "Rank 1" in (message := failure_of(workers))
    assert "has not been heard of for 1 s" in message
    assert gone(pids)


def test_a_rank_that_hangs_in_a_batch_is_ended(start: Start) -> None:
    workers = start("never ends a batch", 2, longest_step=300.0)
    assert "has been at one batch for 1000 s" in failure_of(workers)
    assert gone(workers.pids)


OWNER = f"""
import sys, time
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.distributed.messages import Join
from pagedchat.distributed.workers import Workers
if __name__ == "__main__":
    join = Join(EngineConfig(model=ModelConfig(model="m")), True, 0, 3, sys.argv[1])
    workers = Workers(join, entry={ENTRY!r})
    workers.wait_loaded()
    print(*workers.pids, flush=True)
    time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells of a parent's death")
def test_no_rank_outlives_its_engine_not_even_a_stopped_one(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    owner = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert owner.stdout is not None
    with owner.stdout as said:
        pids = [int(pid) for pid in said.readline().split()]
    assert len(pids) == 2
    assert all(map(lives, pids))
    os.kill(pids[1], signal.SIGSTOP)
    owner.kill()
    owner.wait()
    assert gone(pids)
