"""The CUDA driver where there is none."""

import sys
from collections.abc import Iterator

import pytest

from pagedchat.errors import KernelError
from pagedchat.jit import driver as driver_module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")


@pytest.fixture
def unopened() -> Iterator[None]:
    """A process that has not asked for the driver yet, before the test and after it."""
    driver_module._driver.cache_clear()
    yield
    driver_module._driver.cache_clear()


@pytest.mark.usefixtures("unopened")
def test_bindings_that_find_no_driver_are_one_sentence_whatever_they_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    def find_nothing(_flags: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    monkeypatch.setattr(driver, "cuInit", find_nothing)
    with pytest.raises(
        KernelError, match=r"^There is no NVIDIA driver\. Check with nvidia-smi, or use --device cpu"
    ):
        driver_module.driver_version()
