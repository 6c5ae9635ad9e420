import random

import pytest
import torch

from pagedchat.engine.output import BlockOp
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.kv_cache import apply_block_ops, independent_groups

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPE = CacheShape(num_layers=2, block_size=4, num_heads=4, num_kv_heads=2, head_dim=3, dtype=torch.float32)


def copy(src: int, dst: int) -> BlockOp:
    return BlockOp("copy", src, dst)


def out(src: int, dst: int) -> BlockOp:
    return BlockOp("swap_out", src, dst)


def back(src: int, dst: int) -> BlockOp:
    return BlockOp("swap_in", src, dst)


@pytest.mark.parametrize(
    ("ops", "sizes"),
    [
        ([], []),
        ([copy(0, 1), copy(0, 2), copy(3, 4)], [3]),
        ([copy(0, 1), copy(1, 2)], [1, 1]),  # reads what was just written
        ([copy(0, 1), copy(2, 1)], [1, 1]),  # writes it again
        ([copy(0, 1), copy(2, 0)], [2]),  # overwrites what was read: reads come first anyway
        ([copy(0, 1), out(1, 0), out(2, 1), back(0, 5), copy(5, 6)], [1, 2, 1, 1]),
        ([out(0, 1), out(1, 0)], [2]),  # device 1 and host 1 are not the same block
        ([back(0, 1), back(2, 1)], [1, 1]),
    ],
)
def test_runs_end_where_order_matters(ops: list[BlockOp], sizes: list[int]) -> None:
    groups = list(independent_groups(ops))
    assert [len(group) for group in groups] == sizes
    assert [op for group in groups for op in group] == ops


@pytest.mark.parametrize("device", DEVICES)
def test_copy_of_a_copy_sees_the_new_content(device: str) -> None:
    backend = TorchAttention(SHAPE, 4, 0, torch.device(device))
    for block in range(4):
        backend.cache[:, :, block] = block
    apply_block_ops(backend, [copy(3, 1), copy(1, 0), copy(2, 3)])
    assert backend.cache[1, 1, :, 0, 0, 0].tolist() == [3, 3, 2, 2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(5))
def test_any_list_of_moves_is_as_if_done_one_by_one(seed: int, device: str) -> None:
    choice = random.Random(seed)
    backend = TorchAttention(SHAPE, 6, 5, torch.device(device))
    backend.cache.normal_()
    backend.host_cache.normal_()
    on_device = list(backend.cache.cpu().unbind(2))
    on_host = list(backend.host_cache.clone().unbind(2))
    ops = []
    for _ in range(40):
        kind = choice.choice(["copy", "swap_out", "swap_in"])
        source = on_host if kind == "swap_in" else on_device
        target = on_host if kind == "swap_out" else on_device
        op = BlockOp(kind, choice.randrange(len(source)), choice.randrange(len(target)))
        target[op.dst] = source[op.src].clone()
        ops.append(op)
    apply_block_ops(backend, ops)
    assert torch.equal(backend.cache.cpu(), torch.stack(on_device, 2))
    assert torch.equal(backend.host_cache, torch.stack(on_host, 2))


def test_cache_takes_no_memory_before_it_is_written() -> None:
    psutil = pytest.importorskip("psutil")
    before = psutil.Process().memory_info().rss
    shape = CacheShape(num_layers=4, block_size=16, num_heads=8, num_kv_heads=8, head_dim=64, dtype=torch.float32)
    backend = TorchAttention(shape, 2048, 256, torch.device("cpu"))
    assert backend.cache.numel() * 4 == 2048 * shape.block_bytes == 1 << 29
    assert psutil.Process().memory_info().rss - before < 1 << 26
