"""A decoder cut for several ranks through every chain of launches: what the whole one's modules do."""

from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from pagedchat.distributed.batches import Listener, Teller
from pagedchat.distributed.messages import Join, encoded, to_worker
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.models.decoder import Decoder
from pagedchat.models.parts.cutting import objection_to_ranks, part_of
from pagedchat.ops.ranks.company import agree_of
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.model_tensors import setting_of
from pagedchat.runtime.graphs.spare_time import SpareTime
from pagedchat.runtime.graphs.step_facts import DecodeFacts
from pagedchat.runtime.graphs.which_step import FUSED, LIBRARY, MODULES, WARPGROUPS, which_decode
from pagedchat.runtime.step.sizes import StepSizes
from tests.rank_threads import RankThread, RankThreads
from tests.runtime.drive import Driver
from tests.runtime.graphs.case import make_runner
from tests.runtime.graphs.decode.test_formed import generated
from tests.runtime.graphs.families import KINDS, family_config, family_model

CUT = [kind for kind in KINDS if not objection_to_ranks(family_config(kind), 2)]
FEW = ["opt", "gemma2", "gptj", "cohere_normed", "qwen3"]
PROMPTS = [[(7 * i + k) % 290 + 3 for i in range(length)] for k, length in enumerate((5, 40, 21))]


def part(whole: Decoder, ranks: RankThread) -> Decoder:
    """What a rank has of a model."""
    model = Decoder(part_of(whole.config, ranks.rank, ranks.size), ranks).eval()
    tensors, cuts = whole.places(), model.cuts()
    for name, place in model.places().items():
        cut = cuts.get(name)
        place.copy_(tensors[name] if cut is None else cut.of(tensors[name]))  # type: ignore[arg-type]
    return model


def replies(model: Decoder, *, captured: bool) -> list[list[int]]:
    runner = make_runner(model, 60, captured=captured, max_num_tokens=64)
    driver = Driver(runner, chunk=50)
    for prompt in PROMPTS:
        driver.add(prompt)
    found = driver.run(6)
    if captured:
        assert runner.decodes.num_replays > 0
        assert runner.prefills.num_replays > 0
    return found


def assert_ranks_agree(kind: str, size: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = next(rule for rule in which_step.DECODES if rule.name == name)
    monkeypatch.setattr(which_step, "DECODES", (replace(rule, wants=()),))
    whole = family_model(kind, "cpu", torch.float32)
    assert isinstance(whole, Decoder)
    expected = replies(whole, captured=False)
    of_ranks = RankThreads(size).run(lambda ranks: replies(part(whole, ranks), captured=True))
    assert of_ranks == [expected] * size


@pytest.mark.parametrize("kind", [kind for kind in CUT if kind != "llama_biases"])  # its gates have biases
def test_every_family_in_few_launches(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_ranks_agree(kind, 2, FUSED, monkeypatch)


@pytest.mark.parametrize("name", [WARPGROUPS, LIBRARY, MODULES])
@pytest.mark.parametrize("kind", FEW)
def test_every_chain(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_ranks_agree(kind, 2, name, monkeypatch)


@pytest.mark.parametrize("kind", FEW)
def test_more_ranks_than_kv_heads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_ranks_agree(kind, 4, FUSED, monkeypatch)


@pytest.mark.parametrize("kind", ["opt", "qwen3"])
def test_steps_that_all_ranks_have_made_in_spare_time_serve(kind: str) -> None:
    whole = family_model(kind, "cpu", torch.float32)
    assert isinstance(whole, Decoder)
    expected = replies(whole, captured=False)

    def prepared(ranks: RankThread) -> list[list[int]]:
        runner, agree = make_runner(part(whole, ranks), 60, captured=True, max_num_tokens=64), agree_of(ranks)
        prompts, sizes = partial(runner.prepare_prefill, agree), StepSizes(64, 4, 100)
        more = SpareTime(runner.decodes, prompts, sizes, runner.make_wanted, lambda: 1, 0, agree=agree)
        while more():
            pass
        stores = runner.decodes.store, runner.prefills.store
        there = [dict(store._steps) for store in stores]
        assert all(there)
        driver = Driver(runner, chunk=50)
        for prompt in PROMPTS:
            driver.add(prompt)
        found: list[list[int]] = driver.run(6)
        assert stores[0]._steps == there[0]  # none was made at first use
        return found

    assert RankThreads(2).run(prepared) == [expected] * 2


class _Telling:
    """Rank 0's runner: what it runs, rank 1 is told to run as well."""

    def __init__(self, own: Any, told: "SimpleQueue[bytes | None]") -> None:
        self._own, self._told, self._teller, self._number = own, told, Teller(), 0

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        self._number += 1
        self._told.put(encoded(self._teller.tell(batch, self._number)))
        output: ModelRunnerOutput = self._own.execute(batch)
        return output

    def check(self) -> None:
        pass


def of_forms(model: Decoder, ranks: RankThread | None, told: "SimpleQueue[bytes | None]") -> list[list[int]]:
    """Replies of which some have a form, of which rank 0 alone knows; nothing of other ranks."""
    runner = make_runner(model, 100, captured=True, max_num_tokens=64)
    if ranks is None or ranks.rank == 0:
        try:
            return [seq.token_ids for seq in generated(runner if ranks is None else _Telling(runner, told))]
        finally:
            told.put(None)
    listener = Listener()
    while (message := told.get()) is not None:
        batch = to_worker(message)
        assert not isinstance(batch, Join)
        runner.execute(listener.hear(batch))
    assert runner.decodes.num_replays > 0
    return []


@pytest.mark.parametrize("kind", ["opt", "qwen3"])
def test_replies_of_a_form_that_rank_0_alone_knows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = next(rule for rule in which_step.DECODES if rule.name == LIBRARY)
    monkeypatch.setattr(which_step, "DECODES", (replace(rule, wants=()),))
    whole = family_model(kind, "cpu", torch.float32)
    assert isinstance(whole, Decoder)
    told: SimpleQueue[bytes | None] = SimpleQueue()
    expected = of_forms(whole, None, SimpleQueue())
    found, _ = RankThreads(2).run(lambda ranks: of_forms(part(whole, ranks), ranks, told))
    assert found == expected


def test_no_step_of_one_launch_is_taken() -> None:
    whole = family_model("llama", "cpu", torch.float16)
    assert isinstance(whole, Decoder)
    model = part(whole, RankThread(RankThreads(2), 0))
    backend = make_runner(model, 4, captured=False).backend
    setting = setting_of(model, backend)
    chosen = which_decode(DecodeFacts(setting=setting, rows=1, context_len=64, choice="greedy"))
    assert chosen.name == LIBRARY  # there is no GPU for the others
    assert "other ranks have other parts of its layers" in dict(chosen.refused).values()
