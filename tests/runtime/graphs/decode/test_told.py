"""How likely tokens were, told by captured steps: the same as by eager ones, and no step less is begun ahead."""

import random
from typing import Any

import pytest
import torch

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import VOCAB_SIZE, make_engine, make_runner, tiny_model

KINDS: list[dict[str, Any]] = [
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0},
    {"temperature": 0.9, "seed": 4, "presence_penalty": 1.0, "logprobs": 0},
    {"temperature": 1.2, "top_p": 0.8, "seed": 5, "logprobs": 20, "prompt_logprobs": 1},
]


def generated(
    runner: Any, kinds: list[dict[str, Any]], lengths: list[int]
) -> list[tuple[list[int], list[TokenLogprobs], list[TokenLogprobs]]]:
    """Tokens of chats that come one after the other, and what was told of them."""
    core, source = make_engine(runner, max_num_batched_tokens=64), random.Random(3)
    for i, length in enumerate(lengths):
        prompt = source.choices(range(VOCAB_SIZE), k=source.choice([1, 5, 40, 90]))
        core.extend(
            core.open(), prompt, SamplingParams(**kinds[i % len(kinds)], max_tokens=length, ignore_eos=True)
        )
        for _ in range(source.randrange(4)):
            core.step()
        if i == 5:
            core.fork(3)
    while core.has_work:
        core.step()
    core.check_integrity()
    return [(seq.token_ids, seq.logprobs, seq.prompt_logprobs) for seq in core.sequences.values()]


def check_same(found: list[TokenLogprobs], others: list[TokenLogprobs]) -> None:
    assert [(each.token_ids, each.rank) for each in found] == [(each.token_ids, each.rank) for each in others]
    for each, other in zip(found, others, strict=True):
        assert each.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_chats_that_come_and_go_are_told_the_same(family: str, device: str) -> None:
    model, results = tiny_model(family, device, torch.float32), []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured, max_num_tokens=64 if captured else 0)
        results.append(generated(runner, KINDS, [16, 9, 14, 18, 6, 20, 3, 11, 8]))
    assert runner.decodes.num_ahead > 10
    assert runner.prefills.num_replays > 2
    for (tokens, told, of_prompt), (other_tokens, other_told, other_of_prompt) in zip(*results, strict=True):
        assert tokens == other_tokens
        check_same(told, other_told)
        check_same(of_prompt, other_of_prompt)
    told = [len(told) for _, told, _ in results[1]]
    assert told[:4] == [16, 0, 14, 18]
    assert len(results[1][3][2]) == len(results[1][3][0]) - 18 - 1


@pytest.mark.parametrize("device", DEVICES)
def test_steps_are_begun_ahead_as_without(device: str) -> None:
    model = tiny_model("opt", device, torch.float32)
    for kind in ({}, {"logprobs": 4}):
        runner = make_runner(model, 100, captured=True, max_num_tokens=64)
        generated(runner, [{"temperature": 0, **kind}], [20])
        assert (runner.decodes.num_replays, runner.decodes.num_ahead) == (19, 18)


@pytest.mark.parametrize("asked", [[2, 2, 2], [2, 0, 2], [2, None, 2]])
def test_only_of_sequences_that_all_ask_for_as_much_it_is_read_later(asked: list[int | None]) -> None:
    """The same is told, and what is read late is not what later steps have written there."""
    model, results = tiny_model("opt", "cpu", torch.float32), []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured, max_num_tokens=64 if captured else 0)
        core = make_engine(runner, max_num_batched_tokens=64)
        params = [SamplingParams(temperature=0, logprobs=each, max_tokens=30, ignore_eos=True) for each in asked]
        for i, each in enumerate(params):
            core.extend(core.open(), [3 + i, 9, 5], each)
        for _ in range(20):
            core.step()
        unread = [len(seq._unread) for seq in core.sequences.values()]
        assert all(unread) == (captured and len({*asked}) == 1)
        assert any(unread) == all(unread)
        while core.has_work:
            core.step()
        results.append([seq.logprobs for seq in core.sequences.values()])
    for eager, late, each in zip(*results, asked, strict=True):
        assert len(late) == (0 if each is None else 30)
        check_same(late, eager)


def test_step_without_logits_makes_way_for_one_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a greedy step that keeps none, that for drawn tokens is taken."""
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 100, captured=True)
    wanted: list[str] = []
    get = runner.decodes.store.get

    def getting(bucket: Any, choice: Any) -> Any:
        wanted.append(choice)
        serving = get(bucket, choice)
        if choice == "greedy":
            serving.step.logits = torch.empty(bucket.num_seqs, 0)
        return serving

    assert isinstance(runner.decodes, DecodeSteps)
    monkeypatch.setattr(runner.decodes.store, "get", getting)
    [(_, told, _)] = generated(runner, [{"temperature": 0, "logprobs": 1}], [4])
    assert wanted == ["greedy", "drawn"]
    assert len(told) == 4
    assert all(each.token_ids[0] == each.token_ids[1] and each.rank == 1 for each in told)


@pytest.mark.gpu
@pytest.mark.parametrize("num_chats", [1, 4, 20])
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_steps_of_half_precision_tell_what_eager_ones_do(family: str, num_chats: int) -> None:
    """Whichever kind of step serves so many chats. Where rounding has chosen another token the texts part."""
    model, results = tiny_model(family, "cuda", torch.float16), []
    for captured in (False, True):
        runner = make_runner(model, 200, captured=captured, max_num_tokens=64 if captured else 0)
        results.append(generated(runner, [{"temperature": 0, "logprobs": 3}], [20] * num_chats))
    num_same = 0
    for (tokens, told, _), (other_tokens, other_told, _) in zip(*results, strict=True):
        start = len(tokens) - 20
        for i, (each, other) in enumerate(zip(told, other_told, strict=True)):
            if tokens[: start + i + 1] != other_tokens[: start + i + 1]:
                break
            num_same += 1
            assert each.token_ids[0] == tokens[start + i]
            assert each.rank <= 2  # of two logits that are rounded to the same number the sums behind them decide
            assert each.logprobs == pytest.approx(other.logprobs, abs=0.5)
    assert num_same > 10 * num_chats
