"""The benchmark's tables and figures, with streams that are made up."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagedchat.bench.serve import main as bench
from pagedchat.bench.serve.streams import Stream
from pagedchat.cli import main as cli

PROMPTS: list[list[list[int]]] = []


class FakeOffline:
    """A token every 10 ms."""

    vocab_size = 50
    seconds_a_token = 0.010

    def __init__(self, config: object) -> None:
        self.closed = False

    def run(self, prompts: list[list[int]], new_tokens: int) -> list[Stream]:
        PROMPTS.append(prompts)
        return [
            Stream(new_tokens, [self.seconds_a_token * (count + 1) for count in range(new_tokens)]) for _ in prompts
        ]

    def seconds(self, prompts: list[list[int]], new_tokens: int) -> float:
        return self.seconds_a_token * new_tokens

    def settle(self) -> None:
        """Everything is ready."""

    def close(self) -> None:
        self.closed = True


class FakeServer(FakeOffline):
    """A token every 10.5 ms, and 2 ms of the processor for each run."""

    seconds_a_token = 0.0105
    _used = 0.0
    client_seconds = 0.0021

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def processor_seconds(self) -> float:
        self._used += 0.001
        return self._used


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Offline", FakeOffline)
    monkeypatch.setattr(bench, "ServerProcess", FakeServer)
    PROMPTS.clear()


def run(*argv: str) -> int:
    return cli.main(["bench", "serve", "--clients", "1,3", "--prompt-tokens", "4", "--new-tokens", "8", *argv])


def test_both_are_asked_the_same_and_told_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert run("--repeats", "2", "--json", str(file)) == 0
    assert PROMPTS[::2] == PROMPTS[1::2]  # by turns
    assert [len(prompts) for prompts in PROMPTS[::2]] == [1, 1, 1, 1, 3, 3, 3, 3]
    output = capsys.readouterr().out
    assert "pagedchat-toy, 3 x 4 + 8 tokens, medians of 2 runs" in output
    assert "+5.0 %; slowest stream 10.50 ms" in output
    assert "+0.5 ms; 99 %: 10.50 ms" in output
    assert "told after each step 10.00 ms" in output
    assert "first runs: 10.00 ms offline, 10.50 ms served" in output
    assert "2 %  of the busiest process of them" in output  # of eight times 10.5 ms
    told: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["streams"]
    assert [each["clients"] for each in told] == [1, 3]
    assert told[0]["offline"]["warm"]["per_token"] == pytest.approx(0.010)
    assert told[0]["served"]["warm"]["per_token"] == pytest.approx(0.0105)


def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--repeats", "0") == 2
    assert "'0' is not a number from 1 to" in capsys.readouterr().err
