"""The figure of beam search: a step beside a token of one sequence, over an `LLM` that takes a known time."""

import argparse
import time
from types import SimpleNamespace

import pytest

from pagedchat import BeamSearchParams, SamplingParams
from pagedchat.bench.engine import beams, cpu_sections
from pagedchat.bench.engine.beams import BeamFigure, beam_table, measure_beams


class TimedLLM:
    """A token takes a millisecond, a step of a search as many as it has beams and a half; a prompt takes twenty.
    Before it is prepared twice everything takes longer."""

    info = SimpleNamespace(vocab_size=100)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.copies, self.num_prepared = 0.0, 0, 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def generate(self, _prompt: object, params: SamplingParams, *, use_tqdm: bool) -> None:
        assert not use_tqdm
        self.now += 0.020 + self._slower() * 0.001 * (params.max_tokens or 0)

    def beam_search(self, _prompt: object, params: BeamSearchParams) -> None:
        self.now += 0.020 + self._slower() * 0.0005 * params.beam_width * params.max_tokens
        self.copies += params.max_tokens

    def prepare(self) -> None:
        self.num_prepared += 1

    def _slower(self) -> int:
        return 1 if self.num_prepared >= 2 else 3

    def stats(self) -> SimpleNamespace:
        return SimpleNamespace(copies=self.copies)


def test_a_step_is_held_against_as_many_sequences_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    figures = measure_beams(TimedLLM(monkeypatch), "cpu", 2, said.append, (2, 4))  # type: ignore[arg-type]
    assert [figure.width for figure in figures] == [2, 4]
    assert [figure.single_ms for figure in figures] == pytest.approx([1, 1])
    assert [figure.step_ms for figure in figures] == pytest.approx([1, 2])
    assert [figure.times for figure in figures] == pytest.approx([2, 2])
    assert figures[0].copies == 1 + beams.NEW_TOKENS["cpu"]
    assert len(said) == 2


def test_the_table_says_how_many_times() -> None:
    table = beam_table([BeamFigure(width=4, single_ms=10.0, step_ms=16.0, copies=3)])
    assert table.rows == (("4 beams", "10.000", "16.000", "2.50", "3"),)


def test_a_cpu_has_the_section_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figure = BeamFigure(width=4, single_ms=10.0, step_ms=16.0, copies=3)
    monkeypatch.setattr(cpu_sections, "LLM", lambda *_, **__: None)
    monkeypatch.setattr(cpu_sections, "measure_beams", lambda *_: [figure])
    args = argparse.Namespace(
        only=["beams"], model="some/model", dtype="auto", repeats=1, json=None, markdown=False, device="cpu"
    )
    assert cpu_sections.run_cpu_sections(args) == 0
    assert "2.50" in capsys.readouterr().out
