"""Captured decode steps: same tokens as without, whatever comes and goes. On a CPU they are run, not captured."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import (
    DecodeRun,
    ModelRunner,
    ScheduledSequence,
    SchedulerOutput,
)
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.decode.ahead import RunningStep
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.decode.fused_step import FusedStep
from pagedchat.runtime.graphs.decode.library_step import LibraryStep
from pagedchat.runtime.graphs.decode.persistent_step import PersistentStep
from pagedchat.runtime.graphs.decode.steps import Step
from pagedchat.runtime.graphs.decode.store import StepStore
from pagedchat.runtime.graphs.decode.warpgroup_step import WarpgroupStep
from pagedchat.runtime.graphs.step_facts import DecodeFacts
from pagedchat.runtime.graphs.which_step import FUSED, LIBRARY, WARPGROUPS
from pagedchat.runtime.graphs.whole_steps import CLUSTERS, CLUSTERS_SCREENED, ONE_LAUNCH, SCREENED
from pagedchat.runtime.step.batch_inputs import flatten
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import (
    BLOCK_SIZE,
    DESCRIBED,
    MIXTURES,
    VOCAB_SIZE,
    make_engine,
    make_runner,
    tiny_model,
)

FAMILIES = ["opt", "llama", "qwen3"]
GREEDY = SamplingParams(temperature=0, max_tokens=None)


PENALISED: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5, "temperature": 0.7, "seed": 3},
    {"frequency_penalty": -0.5, "repetition_penalty": 1.1, "min_p": 0.1, "temperature": 1.0, "seed": 4},
]


def chats(
    core: EngineCore, seed: int, num_steps: int, kinds: list[dict[str, Any]] | None = None
) -> Iterator[tuple[int, list[int]]]:
    """Sequences come, are forked, rewound, stopped and closed; yields those that are closed, with their tokens."""
    source, of_each = random.Random(seed), kinds or [{}]
    for _ in range(num_steps):
        ids = list(core.sequences)
        action = source.random()
        if action < 0.12 or not ids:
            seq_id = core.open()
            prompt = source.choices(range(VOCAB_SIZE), k=source.choice([1, 5, 16, 40, 150]))
            limit = source.choice([3, 20, 200])
            kind = {"temperature": 0, **of_each[seq_id % len(of_each)]}
            core.extend(seq_id, prompt, SamplingParams(**kind, max_tokens=limit, ignore_eos=True))
        elif action < 0.16:
            core.fork(source.choice(ids))
        elif action < 0.20:
            seq_id = source.choice(ids)
            core.rewind(seq_id, source.randint(1, len(core.sequences[seq_id])))
            kind = {"temperature": 0, **of_each[seq_id % len(of_each)]}
            core.extend(seq_id, [source.randrange(VOCAB_SIZE)], SamplingParams(**kind, max_tokens=None))
        elif action < 0.24 and len(ids) > 12:
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
        *(
            pytest.param(family, mode, "cuda", marks=pytest.mark.gpu)
            for family, mode in product(("opt", "llama"), ("recompute", "swap"))
        ),
    ],
)
def test_chats_that_come_and_go_get_the_same_tokens(family: str, preemption_mode: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    replies, runners = [], []
    for captured in (False, True):
        runner = make_runner(model, 48, captured=captured, num_host_blocks=64)
        core = make_engine(runner, preemption_mode=preemption_mode, num_host_blocks=64)
        replies.append(list(chats(core, 1, 220)))
        assert core.scheduler.num_preemptions > 0
        core.check_integrity()
        runners.append(runner)
    assert replies[0] == replies[1]
    decodes = runners[1].decodes
    assert decodes.num_replays > 110
    assert decodes.num_ahead > 10


@pytest.mark.parametrize(
    ("family", "kind", "preemption_mode"),
    [("opt", "int8", "recompute"), ("opt", "fp8", "swap"), ("llama", "int8", "swap"), ("llama", "fp8", "recompute"),
     ("qwen3", "int8", "swap"), ("qwen3", "fp8", "swap")],
)  # fmt: skip
def test_chats_over_a_small_cache_get_the_same_tokens(family: str, kind: CacheKind, preemption_mode: str) -> None:
    model = tiny_model(family, "cpu", torch.float32)
    replies = []
    for captured in (False, True):
        runner = make_runner(model, 48, captured=captured, num_host_blocks=64, max_num_tokens=64, kind=kind)
        core = make_engine(runner, preemption_mode=preemption_mode, num_host_blocks=64)
        replies.append(list(chats(core, 1, 150)))
        core.check_integrity()
    assert replies[0] == replies[1]
    assert runner.decodes.num_replays > 50
    assert runner.prefills.num_replays > 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", [*DESCRIBED, *MIXTURES, "odd"])
def test_steps_of_other_layers_give_the_same_tokens(family: str, device: str) -> None:
    """Those of "odd" and of mixtures go through the modules."""
    model, replies = tiny_model(family, device, torch.float32), []
    for captured in (False, True):
        runner = make_runner(model, 48, captured=captured, max_num_tokens=64 if captured else 0)
        replies.append(list(chats(make_engine(runner), 1, 60)))
    assert replies[0] == replies[1]
    assert runner.decodes.num_replays > 25
    assert runner.prefills.num_replays > 2


@pytest.mark.parametrize(
    ("family", "device"),
    [("opt", "cpu"), *(pytest.param(family, "cuda", marks=pytest.mark.gpu) for family in ("opt", "llama"))],
)
def test_penalties_go_by_the_tokens_of_each_chat_however_they_come_and_go(family: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    replies = []
    for captured in (False, True):
        runner = make_runner(model, 48, captured=captured)
        core = make_engine(runner)
        replies.append(list(chats(core, 2, 300, PENALISED)))
        assert core.scheduler.num_preemptions > 0
    assert replies[0] == replies[1]
    assert len({tuple(tokens) for _, tokens in replies[0]}) > 10
    assert runner.decodes.num_ahead > 20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "llama", "gpt_neox"])
def test_the_most_likely_tokens_behind_a_penalty_are_begun_ahead_like_others(family: str, device: str) -> None:
    """As chats with a base model have them at temperature 0, one chat and several."""
    model = tiny_model(family, device, torch.float32)
    for num_chats in (1, 3):
        found = []
        for captured, penalty in ((False, 3.0), (True, 3.0), (True, 1.0)):
            runner = make_runner(model, 100, captured=captured)
            core = make_engine(runner)
            params = SamplingParams(temperature=0, repetition_penalty=penalty, max_tokens=60, ignore_eos=True)
            for number in range(num_chats):
                core.extend(core.open(), [number + 3, 17, 5], params)
            while core.has_work:
                core.step()
            found.append([sequence.token_ids for sequence in core.sequences.values()])
            if captured:
                assert (runner.decodes.num_replays, runner.decodes.num_ahead) == (59, 58)
        assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("penalty", "family"), [(1.0, "gelu"), (1.1, "opt"), (1.0, "llama_scaled")])
def test_drawn_tokens_are_the_same_too(penalty: float, family: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    replies = []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured)
        core = make_engine(runner)
        for seed in range(5):
            params = SamplingParams(
                temperature=seed % 3, max_tokens=40, seed=seed, repetition_penalty=penalty, top_p=1 - seed / 10
            )
            core.extend(core.open(), [seed + 3] * 5, params)
        while core.has_work:
            core.step()
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    assert runner.decodes.num_ahead > 30


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_chats_get_the_same_tokens(family: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    for num_seqs in (33, 100, 256) if device == "cuda" else (33,):
        replies = []
        for captured in (False, True):
            runner = make_runner(model, 2500, captured=captured, max_num_seqs=256)  # room for all of them ahead
            core = make_engine(runner, max_num_seqs=256)
            for i in range(num_seqs):
                prompt = [(i * 31 + k * 7) % VOCAB_SIZE for k in range(1 + i % 30)]
                params = SamplingParams(temperature=0, max_tokens=6 + i % 5, ignore_eos=True)
                core.extend(core.open(), prompt, params)
            while core.has_work:
                core.step()
            replies.append([sequence.token_ids for sequence in core.sequences.values()])
        assert replies[0] == replies[1]
        assert runner.decodes.num_ahead > 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_steps_for_fewer_rows_or_more_context_are_begun_ahead_too(temperature: float, device: str) -> None:
    model = tiny_model("llama", device, torch.float32)
    replies, waited = [], 0
    for captured in (False, True):
        runner = make_runner(model, 600, captured=captured)
        core = make_engine(runner)
        for _ in range(2):  # first to capture what there is
            before = (runner.decodes.num_replays, runner.decodes.num_ahead) if captured else (0, 0)
            for i in range(12):  # in the order in which they end, and in another one
                params = {
                    "temperature": temperature,
                    "seed": i,
                    "ignore_eos": True,
                    "repetition_penalty": 1.0 + i % 2,
                }
                max_tokens = 3 + (4 * i if i % 3 else 44 - 4 * i)
                core.extend(core.open(), [i + 3] * (225 + i), SamplingParams(max_tokens=max_tokens, **params))
            while core.has_work:
                core.step()
            if captured:
                waited = runner.decodes.num_replays - before[0] - (runner.decodes.num_ahead - before[1])
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    assert len({tuple(tokens) for tokens in replies[0]}) == 12
    assert waited == 2  # the first of all, and the one that two more chats join


def test_a_chat_that_is_left_over_gets_a_step_of_its_own() -> None:
    """And is not begun ahead for good in one that draws, which serves it too."""
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 100, captured=True)
    core, store = make_engine(runner), runner.decodes.store
    for crowd in ([(1.0, 4)], [(0.0, 4), (0.0, 12)]):
        for temperature, max_tokens in crowd:
            params = SamplingParams(temperature=temperature, max_tokens=max_tokens, ignore_eos=True)
            core.extend(core.open(), [3, 5, 7], params)
        while core.has_work:
            core.step()
    alone = [(bucket, choice) for bucket, choice in store._steps if bucket.num_seqs == 1]
    assert sorted(choice for _, choice in alone) == ["drawn", "greedy"]


@pytest.mark.parametrize("device", DEVICES)
def test_of_a_run_only_the_first_batches_are_compared_with_what_was_begun(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_batch(step: RunningStep, parts: list[ScheduledSequence]) -> RunningStep | None:
        compared.append(len(parts))
        return compare(step, parts)

    compared: list[int] = []
    compare = RunningStep.for_batch
    monkeypatch.setattr(RunningStep, "for_batch", for_batch)
    model = tiny_model("opt", device, torch.float32)
    replies = []
    for captured in (False, True):
        runner = make_runner(model, 600, captured=captured, max_num_seqs=64)
        core = make_engine(runner, max_num_seqs=64)
        for i in range(40):  # they come to the ends of blocks together
            core.extend(core.open(), [i] * 10, SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
        while core.has_work:
            core.step()
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    assert runner.decodes.num_ahead == 38  # all of 39 decodes but the first
    assert compared == [40]


def test_a_batch_that_is_asked_for_again_is_not_answered_with_the_next_one() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 80, captured=True)
    decodes, run = runner.decodes, DecodeRun(room=20)
    sequences = prefilled(runner, [30, 40])
    answers = []
    for _ in range(2):
        begun = decodes.begin(SchedulerOutput(0, one_token_each(sequences), [], 2, run))
        assert begun is not None
        answers.append(decodes.finish(begun).token_ids)
    assert answers[0] == answers[1]
    assert decodes.num_ahead == 0
    for sequence, token_ids in zip(sequences, answers[0], strict=True):
        sequence.token_ids += token_ids
    assert decodes.begin(SchedulerOutput(0, one_token_each(sequences), [], 2, run)) is not None
    assert decodes.num_ahead == 1


def test_what_cannot_be_captured_runs_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(StepStore, "_step", fail)
    model = tiny_model("opt", "cpu", torch.float32)
    replies = []
    for captured in (False, True):
        core = make_engine(make_runner(model, 60, captured=captured))
        core.extend(core.open(), [1, 2, 3], SamplingParams(temperature=0, max_tokens=20))
        while core.has_work:
            core.step()
        replies.append(core.sequences[1].token_ids)
    assert replies[0] == replies[1]
    assert "Steps of 1 sequences are not captured: operation not permitted" in caplog.text
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1


def test_batches_of_another_kind_are_left_to_others() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float16), 80, captured=True)
    decodes = runner.decodes
    first, second = prefilled(runner, [300, 300])
    single = one_token_each([first, second])
    chunk = ScheduledSequence(first, len(first) - 2, 2, True)
    assert decodes.begin(SchedulerOutput(0, [chunk, single[1]], [], 3)) is None
    assert decodes.begin(SchedulerOutput(0, single, [], 2), goes_on=False) is not None
    assert decodes.begin(SchedulerOutput(0, one_token_each([first] * 21), [], 21)) is None


# --- fused kernels --------------------------------------------------------------------------------------


def prefilled(runner: ModelRunner, lens: list[int]) -> list[Sequence]:
    sequences, next_block = [], 0
    source = random.Random(5)
    for seq_id, length in enumerate(lens):
        sequence = Sequence(seq_id)
        sequence.token_ids = source.choices(range(VOCAB_SIZE), k=length)
        num_blocks = length // BLOCK_SIZE + 3
        sequence.block_table = list(range(next_block, next_block + num_blocks))
        sequence.sampling_params, sequence.stop_length = GREEDY, 10_000
        next_block += num_blocks
        sequences.append(sequence)
        runner.execute(SchedulerOutput(0, [ScheduledSequence(sequence, 0, length - 1, False)], [], length - 1))
    return sequences


def one_token_each(sequences: list[Sequence]) -> list[ScheduledSequence]:
    return [ScheduledSequence(sequence, len(sequence) - 1, 1, True) for sequence in sequences]


@pytest.mark.parametrize(
    ("family", "name"), [*product(FAMILIES, (FUSED, WARPGROUPS, LIBRARY)), ("biased", LIBRARY)]
)
def test_every_chain_of_launches_does_what_the_modules_do(
    family: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, where nothing is rounded, and in torch, where every kernel has a twin."""
    assert_chain_is_right(name, tiny_model(family, "cpu", torch.float32), monkeypatch)


def assert_chain_is_right(name: str, model: NativeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = next(rule for rule in which_step.DECODES if rule.name == name)
    monkeypatch.setattr(which_step, "DECODES", (replace(rule, wants=()),))
    plain, captured = (make_runner(model, 60, captured=flag) for flag in (False, True))
    assert captured.decodes.store._tensors is not None
    sequences, others = prefilled(plain, [5, 16, 90]), prefilled(captured, [5, 16, 90])
    for _ in range(3):
        logits = plain.forward(flatten(one_token_each(sequences), BLOCK_SIZE, plain.device))
        begun = captured.decodes.begin(SchedulerOutput(0, one_token_each(others), [], 3), goes_on=False)
        assert begun is not None
        chosen = captured.decodes.finish(begun).token_ids
        torch.testing.assert_close(captured.decodes.last_logits[:3], logits, rtol=1e-4, atol=1e-3)
        assert chosen == [[token] for token in logits.argmax(dim=-1).tolist()]
        for sequence, other, token_ids in zip(sequences, others, chosen, strict=True):
            sequence.token_ids += token_ids
            other.token_ids += token_ids


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("num_seqs", "kind"),
    [
        (1, PersistentStep),
        (1, FusedStep),
        (3, FusedStep),
        (13, FusedStep),
        (13, WarpgroupStep),
        (40, WarpgroupStep),
        (64, WarpgroupStep),
        (40, LibraryStep),
    ],
)
def test_logits_of_captured_steps(
    num_seqs: int, kind: type[object], family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is PersistentStep and family == "qwen3":
        pytest.skip("one launch does not norm queries and keys")
    names = {PersistentStep: (CLUSTERS, ONE_LAUNCH), FusedStep: (FUSED,), WarpgroupStep: (WARPGROUPS,)}
    rules = [rule for rule in which_step.DECODES if rule.name in names.get(kind, (LIBRARY,))]
    wanted = [replace(rule, wants=()) if rule.name == FUSED else rule for rule in rules]  # for any number of rows
    monkeypatch.setattr(which_step, "DECODES", tuple(wanted))
    used: set[type[object]] = set()
    without_draw = StepStore._without_draw

    def noted_step(store: StepStore, facts: DecodeFacts, bucket: Bucket, state: DecodeState) -> Step:
        step = without_draw(store, facts, bucket, state)
        used.add(type(step))
        return step

    monkeypatch.setattr(StepStore, "_without_draw", noted_step)
    # Two units of 8 rows for each of 132 thread blocks, without which there is no launch of whole steps.
    assert_same_logits(tiny_model(family, "cuda", dtype, ffn_size=1536), num_seqs)
    assert used == {kind}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", DESCRIBED)
def test_logits_of_steps_through_the_modules(family: str, dtype: torch.dtype) -> None:
    for num_seqs in (1, 13):
        assert_same_logits(tiny_model(family, "cuda", dtype), num_seqs)


def assert_same_logits(model: NativeModel, num_seqs: int) -> None:
    """Of captured decodes and eager ones, on a GPU."""
    lens = [(i * 83) % 240 + 4 for i in range(num_seqs)]
    plain, captured = (make_runner(model, 800, captured=flag, max_num_seqs=64) for flag in (False, True))
    sequences, others = prefilled(plain, lens), prefilled(captured, lens)
    decodes = captured.decodes
    for _ in range(20):
        parts = one_token_each(sequences)
        logits = plain.forward(flatten(parts, BLOCK_SIZE, plain.device))
        begun = decodes.begin(SchedulerOutput(0, one_token_each(others), [], num_seqs), goes_on=False)
        assert begun is not None
        output = decodes.finish(begun)
        computed = decodes.last_logits[:num_seqs]
        error = (computed.float() - logits.float()).norm() / logits.float().norm()
        assert float(error) < 8 * torch.finfo(logits.dtype).eps
        chosen = computed.float().max(dim=-1).indices.tolist()
        assert [tokens[0] for tokens in output.token_ids] == chosen
        for sequence, other, token_id in zip(sequences, others, chosen, strict=True):
            sequence.token_ids.append(token_id)
            other.token_ids.append(token_id)
    assert decodes.num_replays >= 20


@pytest.mark.gpu
@pytest.mark.parametrize("num_seqs", [1, 2])
@pytest.mark.parametrize("family", ["opt", "llama"])
def test_steps_without_logits_choose_the_same_tokens(
    num_seqs: int, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, chosen, widths = tiny_model(family, "cuda", torch.float16, ffn_size=1536), [], []
    rules = which_step.DECODES
    for screens in (False, True):
        some = [rule for rule in rules if screens or rule.name not in (CLUSTERS_SCREENED, SCREENED)]
        monkeypatch.setattr(which_step, "DECODES", tuple(some))
        runner = make_runner(model, 800, captured=True, max_num_seqs=64)
        sequences, decodes = prefilled(runner, [100, 30][:num_seqs]), runner.decodes
        for _ in range(30):
            begun = decodes.begin(SchedulerOutput(0, one_token_each(sequences), [], num_seqs))
            assert begun is not None
            for sequence, token_ids in zip(sequences, decodes.finish(begun).token_ids, strict=True):
                sequence.token_ids += token_ids
        chosen.append([sequence.token_ids for sequence in sequences])
        widths.append(decodes.last_logits.shape[1])
    assert chosen[0] == chosen[1]
    assert widths == [VOCAB_SIZE, 0]


@pytest.mark.gpu
def test_captured_before_there_are_any() -> None:
    runner = make_runner(tiny_model("opt", "cuda", torch.float16), 40, captured=True)
    assert runner.decodes.prepare(1, 1)
    assert isinstance(runner.decodes, DecodeSteps)
