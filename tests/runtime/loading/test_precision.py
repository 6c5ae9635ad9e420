"""In how many bits a model is run, with the sentence on the screen."""

import dataclasses

import pytest
import torch

from pagedchat.config import ModelConfig
from pagedchat.errors import InvalidValueError
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.jit.driver import Gpu
from pagedchat.models.config import describe_model
from pagedchat.models.description import ModelDescription
from pagedchat.models.quantized.mxfp4 import STORED_AS
from pagedchat.runtime.loading import device, precision
from pagedchat.runtime.loading.precision import Precision, choose_precision
from tests.models.families.tiny_families import save_tiny

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    found = describe_model("m", save_tiny(tmp_path_factory.mktemp("llama"), "llama"))
    return dataclasses.replace(found, dtype=torch.bfloat16)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "LARGE", 1000)


def multiplying(monkeypatch: pytest.MonkeyPatch, *, bfloat16: bool, int8: bool, llvm: bool = True) -> None:
    target = CpuTarget("x86_64-unknown-linux-gnu", "some", frozenset(), "20") if llvm else "llvmlite is missing"
    monkeypatch.setattr(precision, "host_target", lambda: target)
    monkeypatch.setattr(device, "multiplies_bfloat16", lambda: bfloat16)
    monkeypatch.setattr(precision, "INT8_BY_DEFAULT", int8)


def choose(description: ModelDescription, where: torch.device = CPU, **wanted: object) -> Precision:
    return choose_precision(ModelConfig(**wanted), where, description)  # type: ignore[arg-type]


@pytest.mark.usefixtures("large")
def test_a_large_model_has_16_bits_where_they_are_multiplied(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiplying(monkeypatch, bfloat16=True, int8=True)
    chosen = choose(description)
    assert (chosen.dtype, chosen.quantization) == (torch.bfloat16, None)
    assert "--dtype float32" in chosen.reason
    exact = dataclasses.replace(description, dtype=torch.float32)
    assert choose(exact).dtype == torch.float32
    assert choose(description, dtype="float32") == Precision(torch.float32)


@pytest.mark.usefixtures("large")
def test_rows_of_few_bits_stay_whole(description: ModelDescription, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplying(monkeypatch, bfloat16=True, int8=True)
    assert choose(description, quantization="int8") == Precision(torch.float32, "int8")
    stored = dataclasses.replace(description, stored_as="Q4_K")
    assert choose(stored) == Precision(torch.float32)
    assert choose(stored, dtype="bfloat16") == Precision(torch.bfloat16)


@pytest.mark.usefixtures("large")
def test_else_8_which_an_option_turns_off(description: ModelDescription, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplying(monkeypatch, bfloat16=False, int8=True)
    chosen = choose(description)
    assert (chosen.dtype, chosen.quantization) == (torch.float32, "int8")
    assert "--quantize none" in chosen.reason
    assert choose(description, quantization="none") == Precision(torch.float32)
    assert choose(description, dtype="float32") == Precision(torch.float32)
    for off in ({"int8": False}, {"int8": True, "llvm": False}):
        multiplying(monkeypatch, bfloat16=False, **off)
        assert choose(description) == Precision(torch.float32)


def test_a_small_model_stays_as_it_is(description: ModelDescription, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplying(monkeypatch, bfloat16=True, int8=True)
    assert choose(description) == Precision(torch.float32)


def test_what_is_asked_for_is_done_or_refused(description: ModelDescription) -> None:
    assert choose(description, quantization="int4") == Precision(torch.float32, "int4")
    assert choose(description, CUDA, quantization="none") == Precision(torch.bfloat16)
    with pytest.raises(InvalidValueError, match="fp8 was asked for, but it cannot be had: processors multiply no"):
        choose(description, quantization="fp8")


def on(monkeypatch: pytest.MonkeyPatch, *capability: int) -> None:
    there = Gpu(0, "some", capability, 80 << 30, 100, 99 << 10)  # type: ignore[arg-type]
    monkeypatch.setattr(precision, "gpu", lambda _: there)


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_few_bits_on_a_gpu(
    description: ModelDescription, quantization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, 9, 0)
    exact = dataclasses.replace(description, dtype=torch.float32)
    assert choose(description, CUDA, quantization=quantization) == Precision(torch.bfloat16, quantization)  # type: ignore[arg-type]
    assert choose(exact, CUDA, quantization=quantization).dtype == torch.bfloat16
    for wanted, why in (
        ({"dtype": "float32"}, "tensor cores do not multiply float32"),
        ({"batch_invariant": True}, "replies that are the same in any company take weights of 16 bits"),
    ):
        with pytest.raises(InvalidValueError, match=f"{quantization} was asked for, but it cannot be had: {why}"):
            choose(description, CUDA, quantization=quantization, **wanted)
    on(monkeypatch, 8, 0)
    with pytest.raises(InvalidValueError, match="GPUs have kernels for it from sm_90 on, and this one is sm_80"):
        choose(description, CUDA, quantization=quantization)


@pytest.mark.usefixtures("large")
def test_experts_in_mxfp4_are_kept_on_a_gpu_alone(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = dataclasses.replace(description, stored_as=STORED_AS)
    on(monkeypatch, 9, 0)
    assert choose(stored, CUDA) == Precision(torch.bfloat16)
    multiplying(monkeypatch, bfloat16=False, int8=True)
    assert choose(stored) == dataclasses.replace(choose(description), keeps_bits=False)
    assert choose(stored).quantization == "int8"
    assert choose(stored, quantization="none") == Precision(torch.float32, keeps_bits=False)


def test_stored_few_bits_become_floats_where_kernels_are_missing(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = dataclasses.replace(description, stored_as="GPTQ int4")
    on(monkeypatch, 9, 0)
    assert choose(stored, CUDA) == Precision(torch.bfloat16)
    on(monkeypatch, 8, 6)
    chosen = choose(stored, CUDA)
    assert not chosen.keeps_bits
    assert chosen.reason == (
        "Weights that are stored in GPTQ int4 became floats, since GPUs have kernels for it from sm_90 on, and "
        "this one is sm_86."
    )
