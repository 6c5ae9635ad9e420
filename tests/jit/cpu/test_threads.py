import os
import sys
from pathlib import Path

import pytest

from pagedchat.jit.cpu import threads


def test_user_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert threads.num_compute_threads() == 3
    for nonsense in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", nonsense)
        assert 1 <= threads.num_compute_threads() <= (os.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's files")
def test_two_threads_of_a_core_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3", "4"]):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 4, 9})
    assert threads._physical_cores(tmp_path) == 4  # 0 with 2, 1, 4, and 9, of which nothing is known


@pytest.mark.parametrize(
    ("text", "cores"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", sys.maxsize), ("?", sys.maxsize)]
)
def test_quota_is_in_whole_cores(text: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert threads._quota(tmp_path) == cores


def test_older_control_groups_say_it_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    for quota, cores in (("300000", 3), ("-1", sys.maxsize)):
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text(quota + "\n")
        assert threads._quota(tmp_path) == cores
    assert threads._quota(tmp_path / "nowhere") == sys.maxsize
