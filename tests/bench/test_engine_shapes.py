"""The larger shapes: what is asked, what is read, and a tiny one through all rows on a CPU."""

from pathlib import Path
from statistics import median

import pytest
import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.engine import measure_shapes
from pagedchat.bench.engine.arguments import MIXTURE_NAMES, SHAPE_NAMES
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.measures import Meter
from pagedchat.bench.engine.shapes import MIXTURES, SHAPES, STEPS, CrowdWork, bytes_read
from pagedchat.bench.engine.workloads import SHAPE_ROWS, DecodeWork, Prompts
from pagedchat.bench.random_checkpoint import write_checkpoint
from tests.bench.engine_fakes import TINY_LLAMA, FakeEngine


def test_a_crowd_has_the_same_lengths_every_time_and_never_the_same_prompts() -> None:
    prompts = Prompts(1000)
    asked, lengths = CrowdWork().draw(prompts)
    again, same_lengths = CrowdWork().draw(prompts)
    assert lengths == same_lengths
    assert list(map(len, asked)) == list(map(len, again))
    assert asked != again
    assert max(lengths) <= 604
    assert 50 < median(lengths) < 200
    with_system = max(sum(one[:400] == other[:400] for other in asked) for one in asked)
    assert 40 < with_system < 90, "a third of 200"


def test_a_head_of_its_own_is_read_and_the_embedding_is_not() -> None:
    untied = {"tie_word_embeddings": False, "vocab_size": 10, "hidden_size": 4}
    assert bytes_read(1000, untied, 2) == 920
    assert bytes_read(1000, untied | {"tie_word_embeddings": True}, 2) == 1000


def test_a_step_is_what_a_call_takes_beyond_its_first_tokens() -> None:
    engine = FakeEngine()
    meter = Meter(engine, Prompts(100), 2, engine.clock)
    figure = meter.step("step_8_ms", DecodeWork(num_chats=8, prompt_tokens=4, new_tokens=11))
    assert figure.runs == pytest.approx([100.0, 100.0])
    fresh, again = meter.again(("first_1500_ms", "first_1500_again_ms"), 5)
    assert (fresh.runs, again.runs) == (pytest.approx([1000.0] * 2), pytest.approx([1000.0] * 2))
    assert engine.asked[-1][0] == engine.asked[-2][0] != engine.asked[-3][0]
    meter.again(("first_8000_ms", "next_turn_ms"), 5, 3)
    [[chat], _], [[turn], _] = engine.asked[-2:]
    assert (turn[:5], len(turn)) == (chat, 8)


def test_names_are_those_of_the_shapes_and_every_row_is_known() -> None:
    assert tuple(SHAPES) == SHAPE_NAMES
    assert tuple(MIXTURES) == MIXTURE_NAMES
    assert STEPS.keys() <= SHAPE_ROWS.keys()


def test_every_row_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, TINY_LLAMA, torch.float32, torch.device("cpu"))
    monkeypatch.setattr(
        measure_shapes, "STEPS", {row: DecodeWork(num_chats=2, prompt_tokens=3, new_tokens=3) for row in STEPS}
    )
    for name, length in (("LONG_PROMPT", 20), ("LONG_CHAT", 40), ("NEXT_TURN", 4)):
        monkeypatch.setattr(measure_shapes, name, length)
    monkeypatch.setattr(measure_shapes, "NUM_DRAWN", 2)
    few = CrowdWork(num_requests=3, system_tokens=5, prompt=(2.0, 0.5, 20), reply=(1.0, 0.5, 5))
    monkeypatch.setattr(measure_shapes, "CrowdWork", lambda: few)
    said = []
    with LLM(str(tmp_path), device="cpu", num_blocks=64, skip_tokenizer_init=True) as llm:
        engine = OurEngine(llm)
        figures = measure_shapes.run_shape(Meter(engine, Prompts(304), 1), engine, said.append)
    assert [figure.row for figure in figures] == list(SHAPE_ROWS)
    assert all(len(figure.runs) == 1 and figure.runs[0] != 0 for figure in figures)
    assert said == figures
