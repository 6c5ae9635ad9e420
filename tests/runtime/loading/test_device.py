import pytest
import torch

from pagedchat.errors import DeviceError
from pagedchat.runtime.loading.device import (
    available_memory,
    choose_device,
    choose_dtype,
    default_token_budget,
    describe_device,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu() -> None:
    assert choose_device("auto") == CPU
    assert choose_device("cpu") == CPU
    with pytest.raises(DeviceError, match="no GPU") as caught:
        choose_device("cuda")
    assert "--device cpu" in caught.value.hint


def test_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert choose_device("auto") == CUDA
    assert choose_device("cuda") == CUDA
    assert choose_device("cpu") == CPU


def test_element_type() -> None:
    assert choose_dtype("auto", CPU, torch.float16) == torch.float32
    assert choose_dtype("auto", CUDA, torch.bfloat16) == torch.bfloat16
    assert choose_dtype("auto", CUDA, None) == torch.float16
    assert choose_dtype("bfloat16", CPU, None) == torch.bfloat16


def test_descriptions() -> None:
    assert describe_device(CPU).startswith("CPU, ")
    assert available_memory() > 1 << 20


def test_on_a_cpu_readers_get_short_steps() -> None:
    assert default_token_budget(CPU, 125_000_000, streams=True) == 512
    assert default_token_budget(CPU, 125_000_000, streams=False) == 2048


@pytest.mark.gpu
def test_the_gpu_here_is_asked_for_its_size() -> None:
    assert default_token_budget(torch.device("cuda", 0), 1_000_000, streams=True) == 8192
    assert default_token_budget(torch.device("cuda", 0), 8_000_000_000, streams=False) == 8192
