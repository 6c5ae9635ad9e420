"""Tiny models run fastest on one thread, and do not fight over the cores with whatever else runs."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
