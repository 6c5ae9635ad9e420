"""NVRTC comes as a wheel for Linux; elsewhere there is nothing to compile with."""

import sys
from pathlib import Path

import pytest

from tests.jit.kernels import write_kernels


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with `kernels/` in it; its cache will be `cache/`."""
    if sys.platform != "linux":
        pytest.skip("CUDA's packages are for Linux")
    write_kernels(tmp_path / "kernels")
    return tmp_path
