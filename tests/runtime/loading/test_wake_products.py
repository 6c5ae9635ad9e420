import pytest
import torch

from pagedchat.runtime.loading import wake_products
from pagedchat.runtime.loading.wake_products import wake_products as wake


def test_a_cpu_is_not_woken() -> None:
    assert wake(torch.device("cpu"), torch.float32) is None


def test_what_goes_wrong_is_left_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[torch.device] = []

    def refuse(*_shape: int, device: torch.device, **_options: object) -> torch.Tensor:
        tried.append(device)
        raise RuntimeError("no memory")

    monkeypatch.setattr(wake_products.torch, "zeros", refuse)
    thread = wake(torch.device("cuda"), torch.float16)
    assert thread is not None
    thread.join()
    assert tried == [torch.device("cuda")]


@pytest.mark.gpu
def test_products_are_ready_afterwards() -> None:
    thread = wake(torch.device("cuda"), torch.float16)
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
