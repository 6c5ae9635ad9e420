import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pagedchat.runtime.loading import wake_gpu as module
from pagedchat.runtime.loading.wake_gpu import wake_gpu, wake_products


class Driver:
    """Stands for libcuda: every call succeeds, but for the one that is to fail."""

    def __init__(self, failing: str = "") -> None:
        self.called: list[str] = []
        self._failing = failing

    def __getattr__(self, name: str):
        def call(*_args: object) -> int:
            self.called.append(name)
            return 100 if name == self._failing else 0

        return call


@pytest.fixture
def torch_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    monkeypatch.setattr(module, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))


def woken(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> list[str]:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    thread = wake_gpu("auto")
    assert thread is not None
    thread.join()
    return driver.called


def test_context_is_made_in_the_background(torch_for_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert woken(monkeypatch, Driver()) == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]


def test_no_gpu_is_left_for_torch_to_explain(torch_for_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert woken(monkeypatch, Driver("cuInit")) == ["cuInit"]


def test_no_driver_neither(torch_for_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    thread = wake_gpu("cuda")
    assert thread is not None
    thread.join()


def test_gpu_that_torch_will_not_use_is_left_alone(
    torch_for_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wake_gpu("cpu") is None
    (tmp_path / "lib" / "libtorch_cuda.so").unlink()
    assert wake_gpu("auto") is None
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert wake_gpu("auto") is None


def test_a_cpu_is_not_woken() -> None:
    assert wake_products(torch.device("cpu"), torch.float32) is None


def test_what_goes_wrong_is_left_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[torch.device] = []

    def refuse(*_shape: int, device: torch.device, **_options: object) -> torch.Tensor:
        tried.append(device)
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch, "zeros", refuse)
    thread = wake_products(torch.device("cuda"), torch.float16)
    assert thread is not None
    assert not thread.daemon  # the end of the program would cut it off inside torch
    thread.join()
    assert tried == [torch.device("cuda")]


@pytest.mark.gpu
def test_products_are_ready_afterwards() -> None:
    thread = wake_products(torch.device("cuda"), torch.float16)
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
