"""16 bits, at random: what is in the cache of chats that were forked, cut back, preempted, found again, cut into
chunks and begun ahead is what a fresh pass over each of them makes, and so are the logits that steps read from it.

No slot that is stale, or another chat's, is ever read: rounding is some thousandths, such a slot off by all of it.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch

from pagedchat.config import SpeculationConfig
from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.models.decoder import Decoder
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.layout import tokens_of
from pagedchat.runtime.attention.dense import DenseAttention
from pagedchat.runtime.graphs import step_wants
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.told import keeps_logits
from pagedchat.runtime.graphs.which_step import FUSED, LAYERS, LIBRARY, MODULES, WARPGROUPS
from pagedchat.runtime.graphs.whole_steps import CLUSTERS, CLUSTERS_SCREENED, ONE_LAUNCH, SCREENED, WHOLE_STEPS
from pagedchat.runtime.step.batch_inputs import flatten
from tests.ops.byte_case import as_bytes
from tests.runtime.graphs.case import BLOCK_SIZE, VOCAB_SIZE, make_engine, make_runner, tiny_model
from tests.runtime.graphs.random_walk import RandomWalk
from tests.runtime.graphs.truth import KINDS, force, kinds_noted

NUM_BLOCKS = {"cuda": 130, "cpu": 32}
"""For fewer than all chats, so that some have to give theirs."""
NUM_HOST_BLOCKS, MAX_NUM_TOKENS = 64, 96
"""Some prompts do not go through one step."""
CROWDS = {"cuda": [(1, 40), (2, 40), (4, 30), (8, 30), (16, 30), (64, 60), (1, 20), (2, 20)],
          "cpu": [(1, 12), (4, 10), (8, 8), (16, 30)]}  # fmt: skip
"""Chats under way and steps."""
ROWS = (1, 2, 4, 8, 16, 64)
FAMILIES, MODES = ("opt", "llama", "qwen3"), ("swap", "recompute")
ALL = {"opt", "llama"}
GATED = {"llama", "qwen3"}
"""Families that every kind of step serves."""
SLACK = 4.0
"""A fresh pass has its worst rounding error elsewhere; a wrong slot is off a hundred times as much."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A text in one pass without any cache."""

    logits: torch.Tensor
    """`[length, vocab_size]`, float32."""
    kv: torch.Tensor
    """`[length, num_layers * 2 * num_kv_heads * head_dim]`, float32."""


NEVER = 1 << 62
"""Elements that no head has from which on it is screened."""


class Remembering(DenseAttention):
    """Has the keys and values of all layers afterwards, as a cache of that kind has them."""

    def __init__(self, kind: CacheKind | None) -> None:
        super().__init__(kind)
        self._kind = kind
        self.rows: list[torch.Tensor] = []

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Layer by layer."""
        assert 2 * layer_idx == len(self.rows)
        kept = (part if self._kind is None else as_bytes(part, self._kind) for part in (key, value))
        self.rows += [part.flatten(1).float() for part in kept]


def fresh_pass(
    model: NativeModel, token_ids: list[int], device: torch.device, kind: CacheKind | None = None
) -> Pass:
    ids, attention = torch.tensor(token_ids, device=device), Remembering(kind)
    positions = torch.arange(len(ids), device=device)
    logits = model(ids, positions, attention, positions)
    return Pass(logits.float(), torch.cat(attention.rows, dim=1))


class Judge:
    """Holds chats against fresh passes over them, in the same 16 bits and in float32."""

    def __init__(self, model: Decoder, runner: CapturedRunner, walk: RandomWalk) -> None:
        self._rounded, self._exact = model, copy.deepcopy(model).float()
        self._runner, self._walk = runner, walk
        self._device = runner.eager.device  # type: ignore[attr-defined]
        self._backend = runner.eager.backend  # type: ignore[attr-defined]
        self._passes: dict[tuple[int, ...], tuple[Pass, Pass]] = {}
        """By text: rounded, exact."""

    def judge(self, sequences: list[Sequence]) -> None:
        """All that is in the cache, what was chosen, and what steps of each kind say next."""
        here = [sequence for sequence in sequences if sequence.block_table and sequence.num_computed > 1]
        assert here
        for sequence in sequences:
            self._check_choices(sequence)
        for sequence in here:
            self._check_slots(sequence)
        for rows in ROWS:
            self._check_next(here[: min(rows, self._walk.core.limits.max_num_seqs)])

    def _fresh(self, sequence: Sequence) -> tuple[Pass, Pass]:
        """In 16 bits and in float32; of a text once."""
        text = tuple(sequence.token_ids)
        if text not in self._passes:
            rounded, exact = (
                fresh_pass(model, sequence.token_ids, self._device, self._backend.shape.kind)
                for model in (self._rounded, self._exact)
            )
            self._passes[text] = rounded, exact
        return self._passes[text]

    def _check_slots(self, sequence: Sequence) -> None:
        """Every slot of a chat, one by one."""
        rounded, exact = self._fresh(sequence)
        length = sequence.num_computed
        slots = torch.tensor([
            sequence.block_table[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for place in range(length)
        ])  # fmt: skip
        error = (self._cached(slots.to(self._device)) - exact.kv[:length]).norm(dim=1)
        most = SLACK * (rounded.kv - exact.kv).norm(dim=1).max()
        wrong = (error > most).nonzero().flatten().tolist()
        assert wrong == [], f"{sequence}: slots are off by {error.max():.3g}, rounding by {most:.3g}"
        # So a wrong slot would be seen: it is about as far off as its numbers are large. Elements of one byte are
        # rounded by up to a sixteenth, and the next layer's are made of what was read back.
        assert (20 if self._backend.shape.kind is None else 2) * most < exact.kv.norm(dim=1).min()

    def _cached(self, slots: torch.Tensor) -> torch.Tensor:
        """`[len(slots), elements]` as in `Pass.kv`."""
        backend = self._backend
        blocks = torch.arange(backend.num_blocks, device=self._device)
        parts = [
            part.flatten(0, 1)[slots].flatten(1)
            for layer_idx in range(backend.shape.num_layers)
            for part in tokens_of(*backend.layer_cache(layer_idx), blocks, torch.float32)
        ]
        return torch.cat(parts, dim=1)

    def _check_choices(self, sequence: Sequence) -> None:
        """What was chosen as the most likely token is, as far as rounding leaves that certain."""
        places = self._walk.chosen(sequence.seq_id)
        rounded, exact = self._fresh(sequence)
        gap = SLACK * (rounded.logits - exact.logits).abs().max()
        for place in places:
            before = exact.logits[place - 1]
            short = float(before.max() - before[sequence.token_ids[place]])
            assert short <= gap, f"token {place} of {sequence} is {short:.3g} behind the best"

    def _check_next(self, sequences: list[Sequence]) -> None:
        """The last computed token of each chat once more, in one batch, eagerly and by the step that serves it."""
        parts = [last_computed(sequence) for sequence in sequences]
        passes = [self._fresh(sequence) for sequence in sequences]
        self._check_logits(parts, passes, self._runner.eager.forward(flatten(parts, BLOCK_SIZE, self._device)))  # type: ignore[attr-defined]
        begun = self._runner.decodes.begin(SchedulerOutput(0, parts, [], len(parts)), goes_on=False)
        assert begun is not None
        chosen = self._runner.decodes.finish(begun).token_ids
        for part, (rounded, exact), [token_id] in zip(parts, passes, chosen, strict=True):
            after, most = exact.logits[part.start], SLACK * (rounded.logits - exact.logits).abs().max()
            assert float(after.max() - after[token_id]) <= most, f"{token_id} comes after {part.sequence}"
        logits = self._runner.decodes.last_logits
        if logits.shape[1] > 0:
            rows = begun.running.rows
            self._check_logits(parts, passes, logits[rows])

    def _check_logits(
        self, parts: list[ScheduledSequence], passes: list[tuple[Pass, Pass]], logits: torch.Tensor
    ) -> None:
        """`[len(parts), vocab_size]`."""
        for part, (rounded, exact), row in zip(parts, passes, logits, strict=True):
            most = SLACK * (rounded.logits - exact.logits).norm(dim=1).max()
            error = (row.float() - exact.logits[part.start]).norm()
            assert error <= most, f"logits of {part.sequence} are off by {error:.3g}, rounding by {most:.3g}"


def last_computed(sequence: Sequence) -> ScheduledSequence:
    """Computing it again writes what is there."""
    same = Sequence(sequence.seq_id)
    same.token_ids, same.block_table = sequence.token_ids[: sequence.num_computed], list(sequence.block_table)
    same.sampling_params, same.stop_length = SamplingParams(temperature=0), 10_000
    return ScheduledSequence(same, sequence.num_computed - 1, 1, True)


def forcings(family: str, device: str, kind: CacheKind | None) -> Iterator[tuple[set[str], set[tuple[str, int]]]]:
    """Kinds that may serve, and what has to have been used at least, with its rows."""
    if device == "cpu":
        chains = {FUSED, WARPGROUPS, LIBRARY}
        yield chains, {(FUSED, 1), (FUSED, 4), (FUSED, 8), (WARPGROUPS, 16)}
        yield {LIBRARY}, {(LIBRARY, 1), (LIBRARY, 16)}
        return
    if family in ALL and kind is None:
        alone = (
            {(CLUSTERS_SCREENED, 1), (CLUSTERS, 1)} if family == "opt" else set()
        )  # not with two heads to a KV head
        yield set(KINDS), alone | {
            (SCREENED, 2), (ONE_LAUNCH, 2), (ONE_LAUNCH, 4), (LAYERS if family in GATED else FUSED, 8),
            (WARPGROUPS, 16), (WARPGROUPS, 64),
        }  # fmt: skip
    if family in GATED and kind is None:
        yield KINDS - set(WHOLE_STEPS), {(LAYERS, rows) for rows in (1, 2, 4, 8)}
    yield (
        KINDS - {*WHOLE_STEPS, LAYERS},
        {(FUSED, rows) for rows in (1, 2, 4, 8)} | {(WARPGROUPS, 16), (WARPGROUPS, 64)},
    )
    for name in (LIBRARY, MODULES):
        yield {name}, {(name, rows) for rows in (1, 2, 4, 8, 16, 64)}


def taken_for_a_gpu(runner: CapturedRunner) -> None:
    """A CPU, as far as there are twins of its kernels."""
    for store in (runner.decodes.store, runner.prefills.store):  # type: ignore[union-attr]
        store._setting = replace(store._setting, gpu=KNOWN_GPUS["sm_90"])


@pytest.fixture(autouse=True)
def small_layers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch for all layers serves them, though others are faster."""
    monkeypatch.setattr(step_wants, "_FEWEST_STREAMED", 0)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("family", "kind", "device"),
    [
        *((family, None, "cpu") for family in ("opt", "qwen3")),
        pytest.param("llama", "fp8", "cpu"),
        *(pytest.param(family, None, "cuda", marks=pytest.mark.gpu) for family in FAMILIES),
        *(
            pytest.param(family, kind, "cuda", marks=pytest.mark.gpu)
            for family, kind in (("opt", "int8"), ("llama", "fp8"), ("qwen3", "int8"))
        ),
    ],
)
def test_no_slot_that_is_stale_or_foreign_is_read(
    family: str, kind: CacheKind | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So wide that one launch on a GPU does a whole step; no step on a CPU needs that.
    model = tiny_model(family, device, torch.float16, ffn_size=1536 if device == "cuda" else 512)
    assert isinstance(model, Decoder)
    crowds = CROWDS[device]
    most = max(size for size, _ in crowds)
    runner: CapturedRunner = make_runner(
        model, NUM_BLOCKS[device], captured=True, num_host_blocks=NUM_HOST_BLOCKS, max_num_seqs=most,
        max_num_tokens=MAX_NUM_TOKENS, kind=kind,
    )  # fmt: skip
    if device == "cpu":
        taken_for_a_gpu(runner)
    num_swapped_in = 0
    for number, (kinds, needed) in enumerate(forcings(family, device, kind)):
        force(runner, kinds)
        monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0 if number % 2 else NEVER)
        mode = MODES[(number + FAMILIES.index(family)) % 2]  # every kind of step meets both
        core = make_engine(
            runner, preemption_mode=mode, max_num_seqs=most, num_host_blocks=NUM_HOST_BLOCKS,
            max_num_batched_tokens=MAX_NUM_TOKENS,
        )  # fmt: skip
        walk = RandomWalk(core, number, VOCAB_SIZE)
        judge, ahead = Judge(model, runner, walk), runner.decodes.num_ahead
        used: set[tuple[str, int]] = set()
        for size, num_steps in crowds:
            with kinds_noted() as noted:
                walk.crowd(size, num_steps)
            used |= noted
            judge.judge(walk.finish())
        assert needed <= used, f"never run: {needed - used}"
        kept = {
            keeps_logits(step)
            for (_, choice), step in runner.decodes.store._steps.items()
            if choice == "greedy" and step
        }
        assert kept == {not number % 2} or kinds & {*WHOLE_STEPS, MODULES}
        stats = core.stats()
        assert min(walk.did[what] for what in ("fork", "cut_back", "stop", "close")) > 0
        assert min(stats.preemptions, stats.prefix_hits, stats.copies, runner.decodes.num_ahead - ahead) > 0
        assert (stats.swaps_out > 0) == (mode == "swap")
        assert stats.swaps_in <= stats.swaps_out
        num_swapped_in += stats.swaps_in
        runner.decodes.forget_ahead()
    force(runner, {WARPGROUPS, LIBRARY, FUSED})
    core = make_engine(
        runner, max_num_seqs=most, max_num_batched_tokens=MAX_NUM_TOKENS, most_draft_rows=most,
        speculation=SpeculationConfig(method="lookup", num_speculative_tokens=5, prompt_lookup_min=1),
    )  # fmt: skip
    drafts, num_verified = core.scheduler.drafts, runner.decodes.verifies.num_replays
    drafts.worth = None
    walk = RandomWalk(core, 7, VOCAB_SIZE)
    for size, num_steps in crowds:
        walk.crowd(min(size, most // 2), num_steps)
        Judge(model, runner, walk).judge(walk.finish())
    assert 0 < drafts.num_accepted < drafts.num_drafted
    assert runner.decodes.verifies.num_replays > num_verified
    # Who was swapped out may be closed before there is room again: then others walk, until one has come back.
    for seed in range(100, 110):
        if num_swapped_in > 0:
            break
        core = make_engine(
            runner, preemption_mode="swap", max_num_seqs=most, num_host_blocks=NUM_HOST_BLOCKS,
            max_num_batched_tokens=MAX_NUM_TOKENS,
        )  # fmt: skip
        walk = RandomWalk(core, seed, VOCAB_SIZE)
        for size, num_steps in crowds:
            walk.crowd(size, num_steps)
            Judge(model, runner, walk).judge(walk.finish())
        num_swapped_in += core.stats().swaps_in
        runner.decodes.forget_ahead()
    assert num_swapped_in > 0
