"""What is captured while loading."""

import pytest
import torch

from pagedchat.jit.launch import built_only
from pagedchat.layers.experts import SparseMlp
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.loading.first_graphs import NUM_LIKELY, FirstGraphs, build_first_kernels
from pagedchat.runtime.loading.self_check import SelfCheck
from pagedchat.runtime.step.model_runner import NativeModelRunner
from pagedchat.runtime.step.sizes import StepSizes
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import DESCRIBED, MAX_NUM_SEQS, MODEL_LEN, VOCAB_SIZE, make_runner, tiny_model

SIZES = StepSizes(256, MAX_NUM_SEQS, MODEL_LEN)


class Verdict:
    """Stands for a `SelfCheck` that has found this out."""

    def __init__(self, decodes: bool, prefills: bool) -> None:
        self._decodes, self._prefills = decodes, prefills

    def allows_decodes(self, _decodes: object) -> bool:
        return self._decodes

    def allows_prefills(self, _prefills: object) -> bool:
        return self._prefills


def eager_runner(family: str, device: str, dtype: torch.dtype = torch.float32) -> NativeModelRunner:
    return make_runner(tiny_model(family, device, dtype), 40, captured=False)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["opt", "llama", "qwen3", *DESCRIBED])
def test_both_kinds_are_captured_and_tried(family: str) -> None:
    eager = eager_runner(family, "cuda", torch.bfloat16)
    captured = FirstGraphs(eager, SIZES).capture(SelfCheck("tiny", eager, VOCAB_SIZE))
    assert captured is not None
    assert captured.eager is eager
    assert captured.decodes.num_replays == 2  # one without logits, maybe, and one with
    assert captured.prefills is not None
    assert captured.prefills.num_replays == 2  # one held against the model, and the one before it


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_wrong_is_not_used(device: str) -> None:
    eager = eager_runner("opt", device)
    assert FirstGraphs(eager, SIZES).capture(Verdict(False, True)) is None  # type: ignore[arg-type]
    captured = FirstGraphs(eager, SIZES).capture(Verdict(True, False))  # type: ignore[arg-type]
    assert captured is not None
    assert captured.prefills is None
    assert captured.prepare_prefill() is None


@pytest.mark.gpu
def test_kernels_are_found_before_there_is_a_runner() -> None:
    model = tiny_model("opt", "cuda", torch.float16)
    shape = make_runner(model, 1, captured=False).backend.shape
    builds = build_first_kernels(model, shape, SIZES, torch.device("cuda", 0))
    assert len(builds) == 3
    for build in builds:
        build.wait()


def test_while_first_kernels_are_waited_for_those_of_a_few_chats_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_for: list[tuple[int, int, bool]] = []

    def build_ahead(_steps: object, num_seqs: int, context_len: int, *, quietly: bool = False) -> None:
        looked_for.append((num_seqs, context_len, quietly))

    monkeypatch.setattr(DecodeSteps, "build_ahead", build_ahead)
    first = FirstGraphs(eager_runner("opt", "cpu"), SIZES)
    count = 0
    while first.build_likely():
        count += 1
    assert count == len(looked_for) == NUM_LIKELY
    assert {2, 4, 8} <= {num_seqs for num_seqs, _, _ in looked_for}
    assert all(quietly for _, _, quietly in looked_for)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_kernels_of_mixtures_are_built_for_batches_of_all_sizes(dtype: torch.dtype) -> None:
    model = tiny_model("few_experts", "cuda", dtype)
    shape = make_runner(model, 1, captured=False).backend.shape
    for build in build_first_kernels(model, shape, SIZES, torch.device("cuda", 0)):
        build.wait()
    mixture = next(module for module in model.modules() if isinstance(module, SparseMlp))
    with torch.inference_mode(), built_only():
        for num_tokens in (1, 7, 40, SIZES.num_tokens // 2, SIZES.num_tokens):
            rows = torch.zeros(num_tokens, 256, dtype=dtype, device="cuda")
            assert torch.equal(mixture(rows), rows)  # and nothing was compiled
