"""What is captured while loading."""

import pytest
import torch

from pagedchat.runtime.loading.first_graphs import build_first_kernels, capture_first
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
@pytest.mark.parametrize("family", ["opt", "llama", *DESCRIBED])
def test_both_kinds_are_captured_and_tried(family: str) -> None:
    eager = eager_runner(family, "cuda", torch.bfloat16)
    captured = capture_first(eager, SelfCheck("tiny", eager, VOCAB_SIZE), SIZES)
    assert captured is not None
    assert captured.eager is eager
    assert captured.decodes.num_replays == 2  # one without logits, maybe, and one with
    assert captured.prefills is not None
    assert captured.prefills.num_replays == 2  # one held against the model, and the one before it


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_wrong_is_not_used(device: str) -> None:
    eager = eager_runner("opt", device)
    assert capture_first(eager, Verdict(False, True), SIZES) is None  # type: ignore[arg-type]
    captured = capture_first(eager, Verdict(True, False), SIZES)  # type: ignore[arg-type]
    assert captured is not None
    assert captured.prefills is None
    assert not captured.prepare_prefill()


@pytest.mark.gpu
def test_kernels_are_found_before_there_is_a_runner() -> None:
    model = tiny_model("opt", "cuda", torch.float16)
    shape = make_runner(model, 1, captured=False).backend.shape
    builds = build_first_kernels(model, shape, SIZES, torch.device("cuda", 0))
    assert len(builds) == 3
    for build in builds:
        build.wait()
