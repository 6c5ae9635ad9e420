"""Captured prefills: same tokens as without, whatever comes and goes. On a CPU they are run, not captured."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.ops.products.deferred_norm import DeferredRows
from pagedchat.ops.products.model_tensors import Product
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.layer_chain import WarpgroupProducts
from pagedchat.runtime.graphs.prefill import attention
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket, all_buckets
from pagedchat.runtime.graphs.prefill.step import PrefillStep
from pagedchat.runtime.graphs.step_facts import Setting
from pagedchat.runtime.graphs.step_wants import tables_for_tokens
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.sampler import sample
from pagedchat.runtime.step.sampling_row import rows_of
from pagedchat.runtime.step.sizes import StepSizes
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import (
    BLOCK_SIZE,
    DESCRIBED,
    MAX_NUM_SEQS,
    MIXTURES,
    MODEL_LEN,
    VOCAB_SIZE,
    batch_of,
    chunk,
    make_engine,
    make_runner,
    tiny_model,
)

FAMILIES = ["opt", "llama", "qwen3"]
MAX_NUM_TOKENS = 256
SIZES = StepSizes(MAX_NUM_TOKENS, MAX_NUM_SEQS, MODEL_LEN)


def runner_with_prefills(*args: object, **options: int) -> CapturedRunner:
    return make_runner(*args, captured=True, max_num_tokens=MAX_NUM_TOKENS, **options)  # type: ignore[arg-type]


# --- one step -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_but_the_slots_of_the_chunks_is_written(family: str, device: str) -> None:
    runner = runner_with_prefills(tiny_model(family, device, torch.float32), 12)
    prefills, backend = runner.prefills, runner.eager.backend  # type: ignore[attr-defined]
    assert prefills is not None
    backend.cache.normal_()  # type: ignore[attr-defined]
    before = [slots_of_layer(backend, index) for index in (0, 1)]
    parts = [chunk(list(range(37)), [3, 9, 4], 5), chunk(list(range(50)), [7, 1, 2, 8], 0, 20)]
    begun = prefills.begin(batch_of(*parts))
    assert begun is not None
    prefills.finish(begun)
    written = [(3, range(5, 16)), (9, range(16)), (4, range(5)), (7, range(16)), (1, range(4))]
    slots = [block * BLOCK_SIZE + offset for block, offsets in written for offset in offsets]
    kept = sorted(set(range(12 * BLOCK_SIZE)) - set(slots))
    for index, old in enumerate(before):
        new = slots_of_layer(backend, index)
        assert torch.equal(new[kept], old[kept])
        assert not (new[slots] == old[slots]).all(dim=1).any()


def slots_of_layer(backend: object, index: int) -> torch.Tensor:
    """Layer 0's keys (index 0) or values (1), slot by slot: `[num_slots, elements]`."""
    cache: torch.Tensor = backend.layer_cache(0)[index]  # type: ignore[attr-defined]
    if index == 0:  # [num_blocks, num_kv_heads, chunks, block_size, x]
        return cache.permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1).clone()
    return cache.permute(0, 3, 1, 2).flatten(2).flatten(0, 1).clone()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", [*FAMILIES, "biased", "llama_scaled", *DESCRIBED, *MIXTURES])
def test_logits_are_those_of_the_eager_pass(family: str, device: str) -> None:
    dtypes = (
        (torch.float32,)
        if device == "cpu" or family in MIXTURES
        else (torch.float32, torch.float16, torch.bfloat16)
    )
    for dtype in dtypes:
        model = tiny_model(family, device, dtype)
        plain, captured = make_runner(model, 120, captured=False), runner_with_prefills(model, 120)
        assert captured.prefills is not None
        source, next_block, parts = random.Random(2), 0, []
        for length in (2, 70, 16, 33, 100):
            num_blocks = -(-length // BLOCK_SIZE)
            table = list(range(next_block, next_block + num_blocks))
            parts.append(chunk(source.choices(range(VOCAB_SIZE), k=length), table))
            next_block += num_blocks
        for cut in (False, True, False):  # from the beginning, after a part of it, and again
            todo = [half(part) for part in parts] if cut else parts
            begun = captured.prefills.begin(batch_of(*todo))
            assert begun is not None
            output = captured.prefills.finish(begun)
            computed = captured.prefills.logits[: len(todo)].float()
            expected = plain.forward(flatten(todo, BLOCK_SIZE, plain.device)).float()
            error = (computed - expected).norm() / expected.norm()
            assert float(error) < 16 * torch.finfo(dtype).eps
            assert [tokens[0] for tokens in output.token_ids] == computed.max(dim=-1).indices.tolist()


@pytest.mark.parametrize(("family", "adds"), [("llama", True), ("qwen3", True), ("opt", False)])
def test_products_that_add_to_the_residual_stream_change_nothing(
    family: str, adds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU that multiplies by warpgroups, without biases."""
    added: list[torch.Tensor] = []
    add = WarpgroupProducts.add

    def noted_add(
        products: WarpgroupProducts,
        rows: torch.Tensor,
        product: Product,
        hidden: torch.Tensor,
        ahead: DeferredRows | None = None,
    ) -> None:
        added.append(rows)
        add(products, rows, product, hidden, ahead)

    monkeypatch.setattr(WarpgroupProducts, "add", noted_add)
    monkeypatch.setattr(Setting, "missing_warpgroups", "")
    test_logits_are_those_of_the_eager_pass(family, "cpu")
    assert bool(added) == adds


def test_heads_are_turned_by_the_modules_where_a_table_for_every_token_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turned: list[object] = []
    monkeypatch.setattr(attention, "heads_to_cache", lambda *_args, **_options: turned.append(1))
    narrow = replace(which_step.PREFILLS[0], wants=(tables_for_tokens(0),))
    monkeypatch.setattr(which_step, "PREFILLS", (narrow, *which_step.PREFILLS[1:]))
    test_logits_are_those_of_the_eager_pass("llama", "cpu")
    assert not turned


def half(part: ScheduledSequence) -> ScheduledSequence:
    end = part.start + part.num_tokens
    return ScheduledSequence(part.sequence, end // 2, end - end // 2, True)


# --- engines --------------------------------------------------------------------------------------------


def chats(core: EngineCore, seed: int, num_steps: int) -> Iterator[tuple[int, list[int]]]:
    """Long and short prompts, the same ones again, forks, rewinds and stops; yields what they came to."""
    source = random.Random(seed)
    texts = [source.choices(range(VOCAB_SIZE), k=length) for length in (2, 17, 64, 130, 300, 450)]
    for _ in range(num_steps):
        ids = list(core.sequences)
        action = source.random()
        if action < 0.25 or not ids:
            text = source.choice(texts)
            params = SamplingParams(temperature=0, max_tokens=source.choice([1, 4, 60]), ignore_eos=True)
            core.extend(core.open(), text[: source.choice([len(text), source.randint(1, len(text))])], params)
        elif action < 0.32:
            core.fork(source.choice(ids))
        elif action < 0.40:
            seq_id = source.choice(ids)
            core.rewind(seq_id, source.randint(1, len(core.sequences[seq_id])))
            new = source.choices(range(VOCAB_SIZE), k=source.choice([1, 2, 30]))
            core.extend(seq_id, new, SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))
        elif action < 0.55 and len(ids) > 8:
            seq_id = source.choice(ids)
            yield seq_id, list(core.sequences[seq_id].token_ids)
            core.close(seq_id)
        if core.has_work:
            core.step()
    for seq_id, sequence in core.sequences.items():
        yield seq_id, list(sequence.token_ids)


@pytest.mark.parametrize(
    ("family", "preemption_mode", "device"),
    [
        ("opt", "recompute", "cpu"),
        ("llama", "swap", "cpu"),
        ("qwen3", "recompute", "cpu"),
        *(
            pytest.param(family, mode, "cuda", marks=pytest.mark.gpu)
            for family, mode in product(FAMILIES, ("recompute", "swap"))
        ),
    ],
)
def test_chats_with_captured_prefills_get_the_same_tokens(family: str, preemption_mode: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    replies = []
    for captured in (False, True):
        if captured:
            runner = runner_with_prefills(model, 34, num_host_blocks=64)
        else:
            runner = make_runner(model, 34, captured=False, num_host_blocks=64)
        core = make_engine(
            runner, preemption_mode=preemption_mode, num_host_blocks=64, max_num_batched_tokens=MAX_NUM_TOKENS
        )
        replies.append(list(chats(core, 4, 160)))
        assert core.scheduler.num_preemptions > 0
        assert core.scheduler.prefix_hits > 0
        core.check_integrity()
    assert replies[0] == replies[1]
    assert runner.prefills is not None
    assert runner.prefills.num_replays > 15
    assert runner.decodes.num_ahead > 10


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("penalty", [1.0, 1.1])
def test_drawn_first_tokens_are_the_same_too(penalty: float, device: str) -> None:
    model = tiny_model("opt", device, torch.float32)
    replies = []
    for captured in (False, True):
        runner = runner_with_prefills(model, 100) if captured else make_runner(model, 100, captured=False)
        core = make_engine(runner, max_num_batched_tokens=MAX_NUM_TOKENS)
        for seed in range(12):
            params = SamplingParams(
                temperature=seed % 3, max_tokens=2, seed=seed, repetition_penalty=penalty, top_p=1 - seed / 20
            )
            core.extend(core.open(), [seed + 3] * (9 * seed + 2), params)
        while core.has_work:
            core.step()
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    assert runner.prefills is not None
    assert runner.prefills.num_replays > 1


def test_what_cannot_be_captured_runs_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(PrefillStep, "__call__", fail)
    runner = runner_with_prefills(tiny_model("opt", "cpu", torch.float32), 60)
    core = make_engine(runner, max_num_batched_tokens=MAX_NUM_TOKENS)
    for length in (3, 40, 100):
        core.extend(core.open(), [1] * length, SamplingParams(temperature=0, max_tokens=2))
        while core.has_work:
            core.step()
    assert [len(sequence) for sequence in core.sequences.values()] == [5, 42, 102]
    assert runner.prefills is not None
    assert runner.prefills.num_replays == 0
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert "Prefills of 16 tokens are not captured: operation not permitted" in told[0].message
    assert not runner.prefills.prepare(16)


@pytest.mark.parametrize("device", DEVICES)
def test_graphs_are_made_ready_one_by_one(device: str) -> None:
    runner = runner_with_prefills(tiny_model("opt", device, torch.float32), 60)
    prefills = runner.prefills
    assert prefills is not None
    assert prefills.prepare(32)
    assert prefills.prepare(50)
    assert not prefills.prepare(MAX_NUM_TOKENS + 1)
    count = 0
    while (num_captured := runner.prepare_prefill()) is not None:
        count += num_captured
    assert count == len(list(all_buckets(SIZES))) - 2  # but for those of 32 and 64 tokens
    assert runner.prepare_prefill() is None
    runner.prefills = None
    assert runner.prepare_prefill() is None


def test_a_roomier_graph_is_used_where_there_is_one() -> None:
    runner = runner_with_prefills(tiny_model("opt", "cpu", torch.float32), 60)
    prefills = runner.prefills
    assert prefills is not None
    assert prefills.prepare(32, 5, 600)
    for length in (9, 20, 33):
        begun = prefills.begin(batch_of(chunk([4] * length, [1, 2, 3])))
        assert begun is not None
        prefills.finish(begun)
    captured = [bucket for bucket in all_buckets(SIZES) if bucket in prefills.store]
    assert captured == [PrefillBucket(64, 1, 512), PrefillBucket(32, 8, 600)]


@pytest.mark.parametrize("device", DEVICES)
def test_penalties_count_in_first_tokens(device: str) -> None:
    runner = runner_with_prefills(tiny_model("opt", device, torch.float32), 40)
    assert runner.prefills is not None
    first, second = chunk([*range(200)], [*range(13)]), chunk([5] * 9, [20])
    tokens = []
    for kind in ({}, {"repetition_penalty": 50.0}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
        first.sequence.sampling_params = SamplingParams(temperature=0, **kind)  # type: ignore[arg-type]
        first.sequence.num_prompt_tokens = 3  # the others were generated before a preemption
        begun = runner.prefills.begin(batch_of(first, second, chunk([6] * 9, [30], 0, 5)))
        assert begun is not None
        chosen = runner.prefills.finish(begun).token_ids
        assert chosen[2] == []
        rows = rows_of([first.sequence, second.sequence])
        assert [token for each in chosen for token in each] == sample(runner.prefills.logits[:2], rows)
        tokens.append(chosen[0][0])
    assert tokens[0] < 200 <= tokens[1]
