"""The benchmark of several ranks: its tables, with figures that are made up, and one sum of two real processes."""

import json
from pathlib import Path

import pytest

from pagedchat.bench.ranks import main as bench
from pagedchat.bench.ranks import sums
from pagedchat.bench.ranks.speed import Speed
from pagedchat.bench.ranks.sums import GLOO, NUMS_ROWS, OURS, Sum
from pagedchat.cli import main as cli


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_speed(config: object, size: int, args: object, say: object) -> list[Speed]:
        return [Speed(size, 1, 8.0 / size, [8.0 / size]), Speed(size, 64, 16.0, [16.0])]

    monkeypatch.setattr(bench, "measure_speed", measure_speed)
    monkeypatch.setattr(
        bench,
        "measure_sums",
        lambda size, device: [
            Sum(size, OURS, 2, 4.2),
            Sum(size, GLOO, 2, 0.0, "failed: alas"),
            Sum(size, OURS, 64, 9),
        ],
    )


def run(*options: str) -> int:
    return cli.main(["bench", "ranks", "--device", "cpu", *options])


def test_ranks_stand_beside_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    assert run("--ranks", "2,1", "--json", str(file)) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "CPU: rows of all ranks summed, added to a stream and normed"
    assert lines[1:4] == [
        "2 ranks, 32 KiB, gathered over gloo and summed in order 4.2 us",
        "2 ranks, 32 KiB, gloo, then torch - failed: alas",
        "2 ranks, 1 MiB, gathered over gloo and summed in order 9.0 us",
    ]
    assert lines[5:] == [
        "1 chat, 1 rank 125.0 tok/s a step 8.000 ms",
        "1 chat, 2 ranks 250.0 tok/s a step 4.000 ms; 2.00 times one rank",
        "64 chats, 1 rank 4000.0 tok/s a step 16.000 ms",
        "64 chats, 2 ranks 4000.0 tok/s a step 16.000 ms; 1.00 times one rank",
    ]
    told = json.loads(file.read_text())
    assert [each["size"] for each in told["speed"]] == [1, 1, 2, 2]
    assert told["sums"][0] == {"size": 2, "way": OURS, "num_rows": 2, "us": 4.2, "failed": ""}


def test_there_are_as_many_ranks_as_gpus_where_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench._usual_sizes(on_cpu=True) == [1, 2]
    for num_gpus, sizes in ((0, [1]), (1, [1]), (2, [1, 2]), (3, [1, 2]), (8, [1, 2, 4])):
        monkeypatch.setattr(bench.torch.cuda, "device_count", lambda number=num_gpus: number)
        assert bench._usual_sizes(on_cpu=False) == sizes


def test_one_section_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--ranks", "1", "--only", "sums") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  one rank has nothing to sum"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--new-tokens", "1"], "The first token is left out"),
        (["--ranks", "65"], "--tensor-parallel-size is 65."),
        (["--device", "cuda"], "tensor_parallel_size is 2, but there is no GPU that torch can use."),
    ],
)
def test_what_cannot_be_measured_is_said_before(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--ranks", "2", *options) != 0
    assert words in capsys.readouterr().err


def test_two_processes_sum() -> None:
    measured = sums._measure(2, "cpu", OURS)
    assert [(each.size, each.way, each.failed) for each in measured] == [(2, OURS, "")] * len(NUMS_ROWS)
    assert all(each.us > 0 for each in measured)


def test_a_way_that_does_not_run_here_says_why() -> None:
    [measured] = sums._measure(1, "nowhere", OURS)
    assert measured.us == 0
    assert measured.failed.startswith("failed: ")
