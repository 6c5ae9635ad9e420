"""Loaders of small engines for the tour: `--loader tests.tui.tour.tour_engine:load_swap` and the like."""

from typing import Any

from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from tests.fakes import FakeModelRunner
from tests.service.fake_engine import BLOCK_SIZE, FakeLoaded, ready_info

NUM_BLOCKS = 120


def _load(mode: str, num_host_blocks: int, **more: Any) -> FakeLoaded:
    limits = EngineLimits(
        num_blocks=NUM_BLOCKS,
        num_host_blocks=num_host_blocks,
        block_size=BLOCK_SIZE,
        model_len=1000,
        preemption_mode=mode,
        **more,
    )
    return FakeLoaded(
        runner=FakeModelRunner(block_size=BLOCK_SIZE, step_seconds=0.001),
        limits=limits,
        info=ready_info(num_blocks=NUM_BLOCKS, num_host_blocks=num_host_blocks),
    )


def load_recompute(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Preempts by recomputation."""
    return _load("recompute", 0)


def load_swap(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Preempts by swapping."""
    return _load("swap", NUM_BLOCKS)


def load_without_prefix_cache(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Nothing is ever found by hash."""
    return _load("recompute", 0, enable_prefix_caching=False)
