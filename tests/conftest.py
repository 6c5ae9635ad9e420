"""For every test: no model hub, and GPU tests only where there is a GPU."""

import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports huggingface_hub, which reads them once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Before anything imports torch: tests run side by side, one to a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")


settings.register_profile("untimed", deadline=None)  # machines are busy; what must be quick has a test of its own
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` on a machine without one; torch is asked only if there are such tests."""
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@cache
def _has_gpu() -> bool:
    if not Path("/dev/nvidiactl").exists():
        return False
    import torch

    return torch.cuda.is_available()
