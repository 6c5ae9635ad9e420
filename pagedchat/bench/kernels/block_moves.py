"""The ops that move whole blocks: inside the cache, to host memory and back."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work, copy_error
from pagedchat.bench.kernels.random_cache import DEVICE, TYPE, num_rotated_sets, random_tensor
from pagedchat.bench.kernels.shapes import BLOCK_SIZE, COPY, SWAP, BlocksShape
from pagedchat.bench.kernels.timing import Call, time_on_stream
from pagedchat.ops.cache.copy_blocks import BLOCK_DIM, copy_blocks
from pagedchat.ops.cache.swap_blocks import swap_blocks


def measure_copies(bench: Bench, shapes: Sequence[BlocksShape] = COPY) -> list[Figure]:
    """`copy_blocks`: copy-on-write of whole blocks, all layers; its peer is `index_select` and `index_copy_`."""
    return [figure for shape in shapes for figure in _measure_copy(bench, shape)]


def measure_swaps(bench: Bench, shapes: Sequence[BlocksShape] = SWAP) -> list[Figure]:
    """`swap_blocks`: whole blocks to pinned host memory and back, against the bandwidth of the link."""
    return [figure for shape in shapes for figure in _measure_swap(bench, shape)]


def _measure_copy(bench: Bench, shape: BlocksShape) -> list[Figure]:
    moved = 2 * shape.num_bytes  # read and written
    pairs = Pairs(shape, num_rotated_sets(moved))
    kv_cache = random_tensor(shape.num_layers, 2, pairs.num_blocks, *_block_dims(shape))
    contenders = [copy_contender(OURS, partial(copy_blocks, disjoint=True), kv_cache, pairs)]
    if "torch" in bench.peers:
        contenders.append(copy_contender("torch", _torch_copy, kv_cache, pairs))
    work = Work(section="copy", shape=str(shape), moved_bytes=moved, limit_gb_s=bench.limits.copy)
    return bench.run(work, contenders)


def _measure_swap(bench: Bench, shape: BlocksShape) -> list[Figure]:
    pairs = Pairs(shape, 2)
    device = random_tensor(shape.num_layers, 2, pairs.num_blocks, *_block_dims(shape))
    host = torch.zeros(device.shape, dtype=TYPE, pin_memory=True)
    figures: list[Figure] = []
    for way, source, target, limit in (
        ("out", device, host, bench.limits.to_host),
        ("in", host, device, bench.limits.from_host),
    ):
        work = Work(section=f"swap {way}", shape=str(shape), moved_bytes=shape.num_bytes, limit_gb_s=limit or 0.0)
        figures += bench.run(work, [swap_contender(source, target, pairs)])
    return figures


class Pairs:
    """Sets of (source, target) block ids; no block stands in two of them, sources and targets lie anywhere."""

    def __init__(self, shape: BlocksShape, num_sets: int) -> None:
        self.num_blocks = 2 * num_sets * shape.num_blocks
        ids = torch.randperm(self.num_blocks, device=DEVICE).view(num_sets, 2, shape.num_blocks)
        self.sets = [(pair[0], pair[1]) for pair in ids]


def _block_dims(shape: BlocksShape) -> tuple[int, int, int]:
    return shape.num_kv_heads, shape.head_size, BLOCK_SIZE


def copy_contender(
    name: str,
    copy: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None],
    kv_cache: torch.Tensor,
    pairs: Pairs,
) -> Contender:
    """One way to copy the pairs inside `kv_cache`."""

    def check(calls: Sequence[Call]) -> float:
        src, dst = pairs.sets[0]
        kv_cache.index_fill_(BLOCK_DIM, dst, 0.0)
        calls[0]()
        return copy_error([(kv_cache.index_select(BLOCK_DIM, dst), kv_cache.index_select(BLOCK_DIM, src))])

    return Contender(
        name=name,
        prepare=lambda: [lambda src=src, dst=dst: copy(kv_cache, src, dst) for src, dst in pairs.sets],  # type: ignore[misc]
        check=check,
    )


def _torch_copy(kv_cache: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    kv_cache.index_copy_(BLOCK_DIM, dst, kv_cache.index_select(BLOCK_DIM, src))


def swap_contender(source: torch.Tensor, target: torch.Tensor, pairs: Pairs) -> Contender:
    """`swap_blocks` from one cache to the other."""

    def check(calls: Sequence[Call]) -> float:
        src, dst = pairs.sets[0]
        calls[0]()
        torch.cuda.synchronize()
        moved = target.index_select(BLOCK_DIM, dst.to(target.device))
        wanted = source.index_select(BLOCK_DIM, src.to(source.device))
        return copy_error([(moved.to(DEVICE), wanted.to(DEVICE))])

    return Contender(
        name=OURS,
        prepare=lambda: [lambda src=src, dst=dst: swap_blocks(source, target, src, dst) for src, dst in pairs.sets],  # type: ignore[misc]
        check=check,
        measure=time_on_stream,  # what crosses to the host is not captured in a decode step
    )
