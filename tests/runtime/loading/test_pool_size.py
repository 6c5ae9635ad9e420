import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pagedchat.config import GIB, CacheConfig, EngineConfig, ModelConfig
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.pool_size import largest_batch
from pagedchat.runtime.step.sizes import StepSizes
from tests.helpers_models import make_checkpoint


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        (StepSizes(10, 4, 100), [3, 3, 2, 2]),
        (StepSizes(10, 100, 100), [1] * 10),
        (StepSizes(10, 1, 4), [4, 3, 3]),
    ],
)
def test_largest_batch_fills_the_budget(sizes: StepSizes, lengths: list[int]) -> None:
    batch = largest_batch(sizes, 2)
    assert [part.num_tokens for part in batch.scheduled] == lengths
    assert batch.num_tokens == sum(lengths)
    blocks = [block for part in batch.scheduled for block in part.sequence.block_table]
    assert blocks == list(range(len(blocks)))


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A part of the GPU as if it were all of it, whatever others on it have: its bytes, more than which torch does
    not give. What other tests of this process still hold is no part of it."""
    gc.collect()
    torch.cuda.empty_cache()
    before, (_, whole) = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()
    total = before + 4 * GIB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (total - torch.cuda.memory_reserved(), total))
    torch.cuda.set_per_process_memory_fraction(total / whole)
    yield total
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.gpu
def test_profiling_leaves_room_for_the_largest_batch(small_gpu: int, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "llama")
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, device="cuda", dtype="float16")
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(gpu_memory_utilization=0.6)))
    taken = loaded.limits.num_blocks * loaded.info.block_bytes
    assert GIB < taken < 0.6 * small_gpu
    loaded.runner.execute(largest_batch(StepSizes(2048, 256, 128), 16))
