"""16 bits, through every kind of step that serves a family: logits are no further from transformers in float32 than
transformers in the same 16 bits is, times 1.5, and the most likely token is chosen wherever rounding cannot have
put another in front. On a CPU through what the kernels are held against, on a GPU through the kernels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.models.decoder import Decoder
from pagedchat.runtime.graphs import step_wants
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.model_tensors import sizes_of
from pagedchat.runtime.graphs.objections import objection_to
from pagedchat.runtime.graphs.which_step import FUSED, LAYERS, LIBRARY, MERGED, MODULES, WARPGROUPS
from pagedchat.runtime.graphs.whole_steps import CLUSTERS, CLUSTERS_SCREENED, ONE_LAUNCH, SCREENED, WHOLE_STEPS
from pagedchat.runtime.step.batch_inputs import flatten
from tests.models.families.tiny_families import CONFIGS, WIDE_VOCAB_SIZE, save, wide_model
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import BLOCK_SIZE, make_runner
from tests.runtime.graphs.truth import KINDS, Truth, force, kinds_noted, load_ours, truth_of

NUM_TEXTS = {"cpu": 4, "cuda": 32}
LENGTH, PROMPT = 26, 18
"""Prompts are two blocks, the second of them not full; what follows is decoded."""
TEXTS = torch.randint(3, WIDE_VOCAB_SIZE, (32, LENGTH), generator=torch.Generator().manual_seed(6))
DECODED = slice(PROMPT - 1, LENGTH)
"""The tokens whose logits decodes make: the last one of the prompt and what comes behind it."""
ROADS = [
    (CLUSTERS_SCREENED, 1), (SCREENED, 2), (CLUSTERS, 1), (ONE_LAUNCH, 2), (LAYERS, 2), (FUSED, 1),
    (FUSED, 8), (WARPGROUPS, 32), (LIBRARY, 32), (MODULES, 1), (MODULES, 32),
]  # fmt: skip
"""Kinds and rows, all of which the texts have on a GPU; a CPU takes each kind once."""
PLAIN = {"opt": {LAYERS}, "llama": {CLUSTERS, CLUSTERS_SCREENED}}
"""Families that every kind of step serves, but these: one launch for all layers has code for gates alone, and a
cluster no room for two query heads to a KV head."""


class Case:
    """A family in 16 bits: what transformers says of the texts, and a runner of ours with captured steps."""

    def __init__(self, family: str, dtype: torch.dtype, device: str, folder: Path) -> None:
        model = wide_model(family).eval()
        save(folder, model)
        model.set_attn_implementation("eager")
        num_texts = NUM_TEXTS[device]
        self.truth: Truth = truth_of(model.to(device), TEXTS[:num_texts].to(device), dtype)
        ours = load_ours(folder, dtype, device)
        self.dtype, self.num_texts = dtype, num_texts
        self.chains = chains_of(ours)
        self.has_plain_head = sizes_of(ours.config).plain_head
        self.runner: CapturedRunner = make_runner(
            ours, 4 * num_texts, captured=True, max_num_seqs=max(num_texts, 16), max_num_tokens=1024
        )
        if device == "cpu":  # taken for a GPU, as far as there are twins of its kernels
            for store in (self.runner.decodes.store, self.runner.prefills.store):  # type: ignore[union-attr]
                store._setting = replace(store._setting, gpu=KNOWN_GPUS["sm_90"])
        self.kinds = KINDS if device == "cuda" else KINDS - set(WHOLE_STEPS)


def chains_of(model: Decoder) -> set[str]:
    """The kinds of steps with several launches that serve it."""
    if objection_to(model.config):
        return {MODULES}
    return {LIBRARY, MODULES} | (set() if sizes_of(model.config).biased_gates else {FUSED, WARPGROUPS})


GREEDY = SamplingParams(temperature=0)
LIKELIEST_OF_FEW = SamplingParams(temperature=1.0, top_k=1)
"""Drawn from few tokens, of which that one is left."""


@pytest.fixture(scope="module", autouse=True)
def small_layers_too() -> Iterator[None]:
    """One launch for all layers serves them, though others are faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_wants, "_FEWEST_STREAMED", 0)
        yield


@pytest.fixture(scope="module", params=list(CONFIGS))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=[torch.float16, torch.bfloat16], ids=str)
def case(
    family: str, device: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    dtypes = torch.float16, torch.bfloat16
    if device == "cpu" and family not in PLAIN and request.param != dtypes[list(CONFIGS).index(family) % 2]:
        pytest.skip("a CPU takes the families in turns")
    return Case(family, request.param, device, tmp_path_factory.mktemp(family))


def sequences(case: Case, count: int, sampling: SamplingParams = GREEDY) -> list[Sequence]:
    """With the first texts, none of which is computed, in blocks that lie in no order."""
    made = []
    for number in range(count):
        sequence = Sequence(number)
        sequence.block_table = [(7 * (2 * number + place)) % (4 * case.num_texts) for place in (0, 1)]
        sequence.sampling_params, sequence.stop_length = sampling, 10_000
        made.append(sequence)
    return made


def chunks(these: list[Sequence], start: int, end: int) -> list[ScheduledSequence]:
    for sequence in these:
        sequence.token_ids = TEXTS[sequence.seq_id, :end].tolist()
    return [ScheduledSequence(sequence, start, end - start, True) for sequence in these]


def batch_of(parts: list[ScheduledSequence]) -> SchedulerOutput:
    return SchedulerOutput(0, parts, [], sum(part.num_tokens for part in parts))


def prefill(
    case: Case, these: list[Sequence], eager: bool = False
) -> Iterator[tuple[int, torch.Tensor, list[Any]]]:
    """The prompts in two pieces: after each the place of its last token, logits, and what was chosen."""
    prefills = case.runner.prefills
    assert prefills is not None
    for start, end in ((0, 7), (7, PROMPT)):
        parts = chunks(these, start, end)
        if eager:
            logits = case.runner.eager.forward(flatten(parts, BLOCK_SIZE, case.runner.eager.device))  # type: ignore[attr-defined]
            yield end - 1, logits, logits.float().argmax(dim=-1).tolist()
            continue
        begun = prefills.begin(batch_of(parts))
        assert begun is not None
        chosen = prefills.finish(begun).token_ids
        yield end - 1, prefills.logits[: len(these)], chosen


def decode(case: Case, these: list[Sequence]) -> Iterator[tuple[torch.Tensor, list[Any]]]:
    """The rest, token by token: logits, where the step makes any, and what was chosen."""
    decodes = case.runner.decodes
    for end in range(PROMPT, LENGTH + 1):
        begun = decodes.begin(batch_of(chunks(these, end - 1, end)), goes_on=False)
        assert begun is not None
        chosen = decodes.finish(begun).token_ids
        yield decodes.last_logits[: len(these)].clone(), chosen


def decoded_by(
    case: Case, kind: str, rows: int, sampling: SamplingParams = GREEDY
) -> list[tuple[torch.Tensor, list[Any]]]:
    """Logits and what was chosen, token by token, by steps of a kind; nothing where it does not serve the rows."""
    force(case.runner, {kind})
    these = sequences(case, rows, sampling)
    for _ in prefill(case, these):
        pass
    with kinds_noted() as noted:
        decoding = decode(case, these)
        steps = [next(decoding)]
        if {name for name, _ in noted} != {kind}:
            return []
        steps += decoding
    assert {name for name, _ in noted} == {kind}
    return steps


def wrong_choices(case: Case, steps: list[tuple[torch.Tensor, list[Any]]]) -> str:
    """Of all rows and tokens; empty if there are none."""
    chosen = torch.tensor([tokens for _, tokens in steps])[..., 0].T  # [rows, tokens]
    places = case.truth.wrong_choices(chosen, (slice(0, len(chosen)), DECODED))
    return str(places) if places else ""


@torch.inference_mode()
def test_decodes(case: Case, family: str) -> None:
    wrong, served = [], set()
    for kind, most in ROADS if case.kinds == KINDS else dict(ROADS).items():
        rows = min(most, case.num_texts)
        steps = decoded_by(case, kind, rows) if kind in case.kinds else []
        if not steps:
            continue
        served.add(kind)
        complaints = [wrong_choices(case, steps)]
        if kind not in (CLUSTERS_SCREENED, SCREENED):
            where = slice(0, rows), DECODED
            complaints.append(case.truth.complaint(torch.stack([logits for logits, _ in steps], dim=1), where))
        wrong += [f"{kind} of {rows}: {complaint}" for complaint in complaints if complaint]
    assert wrong == []
    assert served == (
        case.kinds - PLAIN[family] if family in PLAIN else case.chains | served & {*WHOLE_STEPS, LAYERS}
    )
    if (
        case.dtype == torch.float16 and not case.truth.mixes
    ):  # with 8 bits less there is a family that leaves nothing certain
        assert case.truth.share_decided > 0.1


@torch.inference_mode()
def test_decodes_without_logits(case: Case, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of several launches whose vocabulary is screened, of whatever size it is."""
    monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0)
    case.runner.decodes.store.forget()
    wrong, served = [], set()
    for kind, most in {LAYERS: 2, FUSED: 8, WARPGROUPS: 32, LIBRARY: 32}.items():
        for sampling in (GREEDY, LIKELIEST_OF_FEW):
            steps = decoded_by(case, kind, min(most, case.num_texts), sampling)
            if not steps:
                continue
            assert {logits.shape[1] > 0 for logits, _ in steps} == {not case.has_plain_head}
            served.add(kind)
            complaint = wrong_choices(case, steps)
            wrong += [f"{kind}: {complaint}"] if complaint else []
    case.runner.decodes.store.forget()  # the next test has them with logits
    assert wrong == []
    assert served >= case.chains - {MODULES}


@torch.inference_mode()
def test_drafts(case: Case, family: str) -> None:
    """All tokens behind the prompts in one step: of each row what a decode of it alone says."""
    length, served = LENGTH - PROMPT, set()
    for kind in (WARPGROUPS, LIBRARY, MODULES):
        force(case.runner, {kind})
        these = sequences(case, case.num_texts // length or 1)
        for _ in prefill(case, these):
            pass
        parts = chunks(these, PROMPT - 1, PROMPT)
        for part in parts:
            part.draft = TEXTS[part.sequence.seq_id, PROMPT : LENGTH - 1].tolist()
            part.num_tokens += len(part.draft)
        verifies = case.runner.decodes.verifies
        begun = verifies.begin(batch_of(parts))
        assert begun is not None
        chosen = torch.tensor(verifies.finish(begun).token_ids)  # [rows, tokens]
        served.add(case.runner.decodes.store._names[begun.serving.bucket, begun.serving.choice])
        where = slice(0, len(these)), slice(PROMPT - 1, LENGTH - 1)
        logits = begun.serving.step.logits[: chosen.numel()].view(*chosen.shape, -1)
        assert case.truth.wrong_choices(chosen, where) == []
        assert case.truth.complaint(logits, where) == ""
    assert MODULES in served
    assert served <= case.chains
    assert (LIBRARY in served) == (LIBRARY in case.chains)


@torch.inference_mode()
@pytest.mark.parametrize("kind", [MERGED, MODULES, "eager"])
def test_prompts(case: Case, kind: str) -> None:
    if kind == MERGED and LIBRARY not in case.chains:
        pytest.skip("merged launches do not know such layers")
    force(case.runner, prefill={kind})
    for rows in (1, case.num_texts):
        for place, logits, chosen in prefill(case, sequences(case, rows), eager=kind == "eager"):
            where = slice(0, rows), slice(place, place + 1)
            assert case.truth.wrong_choices(torch.tensor(chosen), where) == []
            if rows > 1:  # of one row alone the errors are luck
                assert case.truth.complaint(logits[:, None], where) == ""
