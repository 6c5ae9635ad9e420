from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

from pagedchat.errors import DeviceError, InvalidValueError, KernelError
from pagedchat.ops.common.choices import ScoreParts
from pagedchat.runtime.attention import choice, kernel_build
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendChooser
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.attention.kernel_support import missing_for_bytes, missing_support, uses_tensor_cores
from pagedchat.runtime.attention.torch_backend import TorchAttention

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def backend_of(chosen: choice.BackendChoice) -> object:
    """The class of what it makes."""
    return getattr(chosen.factory, "func", None)


def shape(head_dim: int = 64, block_size: int = 16, dtype: torch.dtype = torch.float16) -> CacheShape:
    return CacheShape(
        num_layers=2, block_size=block_size, num_heads=8, num_kv_heads=2, head_dim=head_dim, dtype=dtype
    )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hopper, as far as torch says."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Future[list[object]]:
    """What compiling comes to; no compiler is asked."""
    result: Future[list[object]] = Future()

    def compile_all(variants: list[object], architecture: str, note: object) -> list[object]:
        assert architecture == "sm_90"
        for done, variant in enumerate(variants, start=1):
            note(done, len(variants), kernel_build.Build(variant, architecture, None, cached=done > 1))  # type: ignore[operator]
        return result.result()

    monkeypatch.setattr(kernel_build, "compile_all", compile_all)
    return result


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"dtype": torch.float32}, ""),
        ({"dtype": torch.float64}, "the cache is float64 and they are for float16, bfloat16 and float32"),
        ({"head_dim": 32}, "the head size is 32 and they are for 64, 80, 96, 112, 128 and 256"),
        ({"block_size": 64}, "the block size is 64 and they are for 8, 16 and 32"),
    ],
)
def test_what_the_kernels_cannot_do_is_said(changes: dict[str, object], words: str) -> None:
    assert missing_support(shape(**changes), GPU) == words  # type: ignore[arg-type]


def test_old_gpus_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_support(shape(), CPU) == "the model does not run on a GPU"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 0))
    assert missing_support(shape(), GPU) == "the GPU has compute capability 7.0 and they need 7.5"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    assert missing_support(shape(), GPU) == ""
    assert uses_tensor_cores(torch.float16, GPU)
    assert not uses_tensor_cores(torch.bfloat16, GPU)


@pytest.mark.usefixtures("gpu")
def test_auto_takes_the_kernels_once_they_are_compiled(compiled: Future[list[object]]) -> None:
    chooser = BackendChooser("auto", shape(), ScoreParts(), GPU)
    compiled.set_result([])
    told: list[tuple[str, int, int]] = []
    chosen = chooser.choose(lambda *progress: told.append(progress))
    assert (chosen.name, chosen.reason, backend_of(chosen)) == ("cuda", "", CudaAttention)
    count = told[-1][2]
    assert told == [("Compiling kernels for sm_90", done, count) for done in range(1, count + 1)]


@pytest.mark.usefixtures("gpu")
def test_kernels_that_do_not_compile(compiled: Future[list[object]]) -> None:
    compiled.set_exception(KernelError("NVRTC was not found.", "Install it."))
    chosen = BackendChooser("auto", shape(), ScoreParts(), GPU).choose(lambda *_: None)
    assert (chosen.name, backend_of(chosen)) == ("torch", TorchAttention)
    assert chosen.reason == "The kernels cannot be built: NVRTC was not found."
    with pytest.raises(KernelError, match="NVRTC was not found"):
        BackendChooser("cuda", shape(), ScoreParts(), GPU).choose(lambda *_: None)


@pytest.mark.usefixtures("gpu")
def test_model_that_the_kernels_cannot_serve() -> None:
    chosen = BackendChooser("auto", shape(32), ScoreParts(), GPU).choose(lambda *_: None)
    assert chosen.name == "torch"
    assert chosen.reason.startswith("The kernels cannot be used: the head size is 32")
    with pytest.raises(InvalidValueError, match="the head size is 32") as caught:
        BackendChooser("cuda", shape(32), ScoreParts(), GPU)
    assert "--attention-backend auto" in caught.value.hint


def test_cpu_goes_without_saying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "KernelBuild", None)  # not touched
    chosen = BackendChooser("auto", shape(), ScoreParts(), CPU).choose(lambda *_: None)
    assert (chosen.name, chosen.reason) == ("torch", "")
    with pytest.raises(DeviceError, match="the model does not run on a GPU"):
        BackendChooser("cuda", shape(), ScoreParts(), CPU)


@pytest.mark.usefixtures("gpu")
def test_torch_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "KernelBuild", None)
    chosen = BackendChooser("torch", shape(), ScoreParts(), GPU).choose(lambda *_: None)
    assert (chosen.name, chosen.reason) == ("torch", "")


@pytest.mark.parametrize(
    ("dtype", "head_dim", "capability", "words"),
    [
        (torch.float32, 64, (9, 0), "the cache is int8 and tensor cores do not multiply float32"),
        (torch.bfloat16, 64, (7, 5), "the cache is int8 and tensor cores do not multiply bfloat16"),
        (torch.float16, 256, (7, 5), "the cache is int8 and heads of 256 find no room on tensor cores before 8.0"),
        (torch.float16, 256, (8, 0), ""),
        (torch.float16, 128, (7, 5), ""),
    ],
)
def test_a_cache_of_bytes_is_read_through_tensor_cores_alone(
    dtype: torch.dtype, head_dim: int, capability: tuple[int, int], words: str
) -> None:
    of_bytes = CacheShape(2, 16, 8, 2, head_dim, dtype, "int8")
    assert missing_for_bytes(of_bytes, capability) == words
    assert missing_for_bytes(replace(of_bytes, kind=None), capability) == ""
