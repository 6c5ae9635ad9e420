"""What `pagedchat stats` is told of an engine, as values that JSON has: of a terminal's and of a server's."""

from typing import Any

import msgspec

from pagedchat.events import Counters, EngineReady, PoolCounts, QueueLengths, StepReport

_ENGINE_FIELDS = (
    "device", "dtype", "quantization", "attention_backend", "kernels", "num_blocks", "num_host_blocks",
    "block_size", "block_bytes", "max_model_len", "kv_cache_dtype",
)  # fmt: skip
NO_FIGURES: dict[str, Any] = dict.fromkeys(("pool", "queues", "counters", "rates"))
"""While there is no engine."""


def engine_figures(info: EngineReady) -> dict[str, Any]:
    """What it found out while loading."""
    return {name: getattr(info, name) for name in _ENGINE_FIELDS}


def step_figures(info: EngineReady, last: StepReport | None, rate: float, batch: int) -> dict[str, Any]:
    """Pool, queues, counters and rates after a step.

    Args:
        info: of the engine.
        last: its last report; None before the first.
        rate: tokens a second.
        batch: sequences in its last step.
    """
    pool = last.pool if last else _free(info)
    saved = (pool.table_entries - pool.in_use) * info.block_bytes
    return {
        "pool": msgspec.structs.asdict(pool) | {"saved_bytes": saved, "usage": round(pool.usage, 4)},
        "queues": msgspec.structs.asdict(last.queues if last else QueueLengths(0, 0, 0, 0)),
        "counters": msgspec.structs.asdict(last.counters if last else Counters()),
        "rates": {"tokens_per_second": round(rate, 2), "batch": batch},
    }


def _free(info: EngineReady) -> PoolCounts:
    return PoolCounts(info.num_blocks, info.num_blocks, 0, 0, 0, 0, info.num_host_blocks, 0)
