"""--batch-invariant where it cannot be had: one sentence that says why."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pagedchat import LLM, SamplingParams
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.errors import InvalidValueError
from pagedchat.layers.arithmetic import InvariantArithmetic
from pagedchat.layers.linear import Linear
from pagedchat.models.config import describe_model
from pagedchat.models.description import ModelDescription
from pagedchat.ops.products import invariant_linear as product
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendChoice
from pagedchat.runtime.loading import invariance
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.invariance import (
    make_invariant,
    product_variants,
    refuse_attention,
    refuse_description,
)
from tests.helpers_models import make_checkpoint
from tests.runtime.graphs.case import tiny_model

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
CANNOT = "--batch-invariant was asked for, but it cannot be had: "


@pytest.fixture
def description(tmp_path: Path) -> ModelDescription:
    folder = make_checkpoint(tmp_path, "llama")
    return describe_model("tiny", folder, "auto")


def shape(dtype: torch.dtype = torch.float16, head_dim: int = 64) -> CacheShape:
    return CacheShape(2, 16, 8, 2, head_dim, dtype)


def on_gpu(monkeypatch: pytest.MonkeyPatch, architecture: str = "sm_90") -> None:
    known = KNOWN_GPUS[architecture]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: known.compute_capability)
    monkeypatch.setattr(invariance, "gpu", lambda _index: known)


def test_models_of_transformers_are_refused(tmp_path: Path) -> None:
    model = ModelConfig(
        model=str(make_checkpoint(tmp_path, "llama")), device="cpu", skip_tokenizer_init=True,
        implementation="transformers", batch_invariant=True,
    )  # fmt: skip
    with pytest.raises(InvalidValueError, match=f"{CANNOT}transformers runs .* whose sums have no order of ours"):
        load_model(EngineConfig(model=model))


@pytest.mark.parametrize(
    ("architecture", "of_cache", "why"),
    [
        ("sm_90", shape(torch.float32), "tensor cores of this GPU do not multiply float32."),
        ("sm_75", shape(torch.bfloat16), "tensor cores of this GPU do not multiply bfloat16."),
        ("sm_75", shape(head_dim=256), "this GPU has too little shared memory for heads of 256."),
    ],
)
def test_what_tensor_cores_do_not_do_is_refused(
    architecture: str,
    of_cache: CacheShape,
    why: str,
    description: ModelDescription,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpu(monkeypatch, architecture)
    with pytest.raises(InvalidValueError) as caught:
        refuse_description(description, of_cache, GPU)
    assert caught.value.message == CANNOT + why
    refuse_description(description, of_cache, CPU)
    refuse_description(description, shape(), GPU)


def test_attention_of_torch_is_refused_on_a_gpu() -> None:
    with pytest.raises(InvalidValueError) as caught:
        refuse_attention(BackendChoice("torch", "The kernels cannot be built: NVRTC was not found."), GPU)
    why = "on a GPU it takes our own attention: The kernels cannot be built: NVRTC was not found."
    assert caught.value.message == CANNOT + why
    refuse_attention(BackendChoice("cuda"), GPU)
    refuse_attention(BackendChoice("torch"), CPU)


class OnGpu(torch.Tensor):
    """As far as it says."""

    is_cuda = True  # type: ignore[assignment]


def test_a_width_that_the_kernel_does_not_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "has_tensor_cores", lambda _weight: True)
    linear = Linear(12, 16, bias=False, weight=torch.zeros(16, 12).half().as_subclass(OnGpu))  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"tiny has a product .*: a width of 12 is no multiple of 8"):
        make_invariant("tiny", linear)


def test_every_product_of_a_model_is_built_for_all_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", "cpu", torch.float16)  # widths of 256 and 512
    monkeypatch.setattr(invariance, "gpu", lambda _index: replace(KNOWN_GPUS["sm_90"]))
    variants = product_variants(model)
    assert {(variant.stem, variant.constants["PARTS"]) for variant in variants} == {
        ("invariant_linear", "2"),
        ("invariant_linear", "4"),
    }
    assert len(variants) == 2 * 6


def test_a_model_in_the_box_on_a_cpu() -> None:
    greedy = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    prompts = ["Once upon a time", "A cat", "The longest of these prompts has a few more words than the others"]
    with LLM(device="cpu", dtype="bfloat16", batch_invariant=True, max_num_batched_tokens=7) as llm:
        model = llm._engine._core.runner.model  # type: ignore[attr-defined]
        assert isinstance(model.arithmetic, InvariantArithmetic)
        alone = [llm.generate(prompt, greedy, use_tqdm=False)[0].outputs[0].token_ids for prompt in prompts]
        together = [output.outputs[0].token_ids for output in llm.generate(prompts, greedy, use_tqdm=False)]
    assert together == alone
