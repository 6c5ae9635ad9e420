"""What every attention backend does: moves of blocks, in order; and what the one over the kernels does besides."""

import random
from typing import Any

import pytest
import torch

from pagedchat.engine.output import BlockOp
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.attention.backend import AttentionBackend, AttentionBatch, CacheShape
from pagedchat.runtime.attention.cuda_backend import MIN_SAVED_BYTES, MIN_SHARED_TOKENS, CudaAttention
from pagedchat.runtime.attention.prefix_groups import PrefixGroup, SharingRule
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.step.block_moves import apply_block_ops
from pagedchat.runtime.step.upload import int64

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BACKENDS = [TorchAttention, CudaAttention]
SHAPE = CacheShape(num_layers=3, block_size=8, num_heads=4, num_kv_heads=2, head_dim=64, dtype=torch.float32)


def copy(src: int, dst: int) -> BlockOp:
    return BlockOp("copy", src, dst)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("device", DEVICES)
def test_copy_of_a_copy_sees_the_new_content(device: str, make: type[TorchAttention] | type[CudaAttention]) -> None:
    backend = make(SHAPE, 4, 0, torch.device(device))
    for block in range(4):
        backend.cache[:, :, block] = block
    apply_block_ops(backend, [copy(3, 1), copy(1, 0), copy(2, 3)])
    assert backend.cache[1, 1].flatten(1)[:, 0].tolist() == [3, 3, 2, 2]


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(5))
def test_any_list_of_moves_is_as_if_done_one_by_one(
    seed: int, device: str, make: type[TorchAttention] | type[CudaAttention]
) -> None:
    choice = random.Random(seed)
    backend = make(SHAPE, 6, 5, torch.device(device))
    backend.cache.normal_()
    backend.host_cache.normal_()
    on_device = list(backend.cache.cpu().unbind(2))
    on_host = list(backend.host_cache.clone().unbind(2))
    ops = []
    for _ in range(60):
        kind = choice.choice(["copy", "swap_out", "swap_in"])
        source = on_host if kind == "swap_in" else on_device
        target = on_host if kind == "swap_out" else on_device
        op = BlockOp(kind, choice.randrange(len(source)), choice.randrange(len(target)))
        target[op.dst] = source[op.src].clone()
        ops.append(op)
    apply_block_ops(backend, ops)
    assert torch.equal(backend.host_cache, torch.stack(on_host, 2))  # waits for the moves
    assert torch.equal(backend.cache.cpu(), torch.stack(on_device, 2))


class Step:
    """A batch of random keys, values and queries over given block tables, and what a backend makes of it."""

    def __init__(
        self, backend: AttentionBackend, tables: list[list[int]], seq_lens: list[int], seed: int = 0
    ) -> None:
        self.backend = backend
        self.tables, self.seq_lens = tables, seq_lens
        shape = backend.shape
        self.generator = torch.Generator().manual_seed(seed)
        self.context = [self._rows(length, shape.num_kv_heads, 2) for length in seq_lens]
        self.queries = [self._rows(length, shape.num_heads, 1)[0] for length in seq_lens]

    def _rows(self, count: int, heads: int, times: int) -> list[torch.Tensor]:
        size = (count, heads, self.backend.shape.head_dim)
        return [torch.randn(size, generator=self.generator) for _ in range(times)]

    def share(self, rows: list[int], num_tokens: int) -> None:
        """Give sequences the same beginning."""
        for row in rows[1:]:
            for mine, first in zip(self.context[row], self.context[rows[0]], strict=True):
                mine[:num_tokens] = first[:num_tokens]

    def run(
        self, starts: list[int], ends: list[int], num_decodes: int, groups: list[PrefixGroup] | None = None,
        layer_idx: int = 1, **settings: Any,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Tokens `starts[i]` to `ends[i] - 1` of each sequence; one output each, on the CPU."""
        backend, device = self.backend, self.backend.device  # type: ignore[attr-defined]
        size = backend.shape.block_size
        slots = [
            table[t // size] * size + t % size
            for table, start, end in zip(self.tables, starts, ends, strict=True)
            for t in range(start, end)
        ]
        batch = AttentionBatch(
            seq_ids=list(range(len(starts))), num_decodes=num_decodes,
            query_lens=[end - start for start, end in zip(starts, ends, strict=True)], seq_lens=ends,
            block_tables=self.tables, slot_mapping=int64(slots).to(device), prefix_groups=groups or [],
        )  # fmt: skip
        key, value, query = (
            torch.cat([rows[start:end] for rows, start, end in zip(parts, starts, ends, strict=True)]).to(
                device, backend.shape.dtype
            )
            for parts in (*zip(*self.context, strict=True), self.queries)
        )
        backend.begin(batch)
        backend.write(layer_idx, key, value)
        of_heads = {
            name: torch.tensor(value, device=device) for name, value in settings.items() if name in OF_HEADS
        }
        options = {"scale": 0.125, "sliding_window": None, "cap": None} | settings | of_heads
        output = backend.attend(layer_idx, query, key, value, **options)
        return list(output.cpu().float().split(batch.query_lens))


OF_HEADS = {"alibi_slopes": [0.5, 0.25, 0.1, 0.01], "sinks": [2.0, -1.0, 0.0, 5.0]}
TABLES = [[9, 2], [4, 11, 0], [7], [1, 12, 3, 6], [5, 8]]
LENS = [12, 19, 8, 30, 11]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", [{}, {"sliding_window": 5}, {"cap": 2.0}, OF_HEADS])
def test_both_backends_attend_alike(device: str, settings: dict[str, Any]) -> None:
    """Whole prompts, then chunks beside decodes, then decodes alone."""
    outputs = []
    for make in BACKENDS:
        step = Step(make(SHAPE, 13, 0, torch.device(device)), TABLES, LENS)
        outputs.append(
            [
                *step.run([0] * 5, [7, 9, 7, 20, 5], 0, **settings),
                *step.run([7, 9, 7, 20, 5], [8, 10, 8, 29, 10], 3, **settings),
                *step.run([8, 10, 7, 29, 10], [9, 11, 8, 30, 11], 5, **settings),
            ]
        )
    for ours, theirs in zip(*outputs, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", [{}, {"sliding_window": 9}, {"cap": 2.0}, OF_HEADS])
def test_groups_with_a_common_prefix_change_nothing(device: str, settings: dict[str, Any]) -> None:
    half = CacheShape(num_layers=2, block_size=8, num_heads=4, num_kv_heads=2, head_dim=64, dtype=torch.float16)
    tables = [[0, 1, 2], [0, 1, 3, 4], [0, 1, 5], [6, 7, 8, 9], [6, 7, 8, 10], [11, 12]]
    lens = [20, 27, 18, 26, 32, 9]
    step = Step(CudaAttention(half, 13, 0, torch.device(device)), tables, lens)
    step.share([0, 1, 2], 16)
    step.share([3, 4], 24)
    last = [length - 1 for length in lens]
    step.run([0] * 6, last, 0, **settings)
    alone = step.run(last, lens, 6, **settings)
    groups = [PrefixGroup(3, 2), PrefixGroup(2, 3), PrefixGroup(1, 0)]
    together = step.run(last, lens, 6, groups, **settings)
    for ours, theirs in zip(together, alone, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=2e-3)


def test_sharing_pays_by_the_bytes_that_it_saves() -> None:
    shape = CacheShape(
        num_layers=1, block_size=16, num_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16
    )
    rule = CudaAttention(shape, 0, 0, torch.device("cpu")).sharing
    assert rule == SharingRule(MIN_SHARED_TOKENS, MIN_SAVED_BYTES // 4096)
    assert CudaAttention(SHAPE, 0, 0, torch.device("cpu")).sharing is None  # float32: no tensor cores


@pytest.mark.parametrize("make", BACKENDS)
def test_cache_takes_no_memory_before_it_is_written(make: type[TorchAttention] | type[CudaAttention]) -> None:
    psutil = pytest.importorskip("psutil")
    before = psutil.Process().memory_info().rss
    shape = CacheShape(num_layers=4, block_size=16, num_heads=8, num_kv_heads=8, head_dim=64, dtype=torch.float32)
    backend = make(shape, 2048, 256, torch.device("cpu"))
    assert backend.cache.numel() * 4 == 2048 * shape.block_bytes == 1 << 29
    assert psutil.Process().memory_info().rss - before < 1 << 26


@pytest.mark.gpu
def test_host_memory_is_pinned_and_given_back() -> None:
    backend = CudaAttention(SHAPE, 4, 100, torch.device("cuda"))
    backend.prepare_swapping()
    host = backend.host_cache
    assert host.is_pinned()
    del backend
    assert not host.is_pinned()


@pytest.mark.gpu
def test_a_layer_waits_for_its_own_swaps() -> None:
    """Much is swapped in, and each layer attends to it at once."""
    shape = CacheShape(num_layers=8, block_size=16, num_heads=8, num_kv_heads=8, head_dim=128, dtype=torch.float16)
    device, num_blocks = torch.device("cuda"), 256
    backend = CudaAttention(shape, num_blocks, num_blocks, device)
    backend.cache.normal_()
    backend.swap_out(list(range(num_blocks)), list(range(num_blocks)))
    expected = backend.host_cache.clone()
    backend.cache.zero_()
    seq = Sequence(0)
    seq.block_table = list(reversed(range(num_blocks)))
    length = num_blocks * 16
    rows = torch.zeros((1, 8, 128), dtype=torch.float16, device=device)
    slots = torch.full((1,), -1, device=device)
    for _ in range(3):
        backend.cache.zero_()
        backend.swap_in(list(range(num_blocks)), list(range(num_blocks)))
        backend.begin(AttentionBatch([0], 1, [1], [length], [seq.block_table], slots))
        for layer_idx in range(8):
            backend.write(layer_idx, rows, rows)
            output = backend.attend(layer_idx, rows, rows, rows, scale=1.0, sliding_window=None, cap=None)
            values = expected[layer_idx, 1].view(num_blocks, 8, 128, 16).double().mean((0, 3))  # all scores are 0
            torch.testing.assert_close(output[0].cpu().double(), values, atol=1e-3, rtol=1e-2)
