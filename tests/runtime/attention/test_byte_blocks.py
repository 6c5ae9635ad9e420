"""The torch backend over a cache of bytes: attention over what the bytes stand for, and blocks that move with all
that belongs to them.
"""

import pytest
import torch

from pagedchat.engine.output import BlockOp
from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.step.block_moves import apply_block_ops

KINDS = ["int8", "fp8"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def shape_of(kind: CacheKind | None, block_size: int = 4, dtype: torch.dtype = torch.float32) -> CacheShape:
    return CacheShape(2, block_size, 6, 3, 20, dtype, kind)


class Texts:
    """Texts with random keys, values and queries, written and attended to in pieces."""

    def __init__(self, backend: TorchAttention, lens: list[int]) -> None:
        generator = torch.Generator().manual_seed(sum(lens))
        shape = backend.shape
        self.backend, self.lens, self.done = backend, lens, [0] * len(lens)
        self.rows = [
            [
                torch.randn(length, heads, shape.head_dim, generator=generator).to(shape.dtype).float()
                for heads in (6, 3, 3)
            ]
            for length in lens
        ]
        blocks = iter(torch.randperm(backend.num_blocks, generator=generator).tolist())
        self.tables = [[next(blocks) for _ in range(-(-length // shape.block_size))] for length in lens]

    def step(self, counts: list[int], window: int | None = None) -> list[torch.Tensor]:
        """The next tokens of each text; single ones first."""
        size, layer = self.backend.shape.block_size, 1
        ends = [done + count for done, count in zip(self.done, counts, strict=True)]
        slots = [
            table[p // size] * size + p % size
            for table, done, end in zip(self.tables, self.done, ends, strict=True)
            for p in range(done, end)
        ]
        decodes = sum(count == 1 for count in counts)
        self.backend.begin(
            AttentionBatch(
                list(range(len(counts))),
                decodes,
                counts,
                ends,
                self.tables,
                torch.tensor(slots, device=self.backend.device),
            )
        )
        query, key, value = (
            torch.cat([rows[i][done:end] for rows, done, end in zip(self.rows, self.done, ends, strict=True)]).to(
                self.backend.device, self.backend.shape.dtype
            )
            for i in range(3)
        )
        self.backend.write(layer, key, value)
        found = self.backend.attend(layer, query, key, value, scale=0.3, sliding_window=window, cap=None)
        self.done = ends
        return list(found.cpu().split(counts))

    def expected(self, text: int, first: int, end: int, window: int | None = None) -> torch.Tensor:
        """In float64, over what the bytes stand for."""
        query, key, value = self.rows[text]
        kind = self.backend.shape.kind
        assert kind is not None
        key, value = (dequantised(*quantised(part, DTYPES[kind]), torch.float64) for part in (key, value))
        key, value = (part.repeat_interleave(2, dim=1) for part in (key, value))
        result = []
        for position in range(first, end):
            seen = slice(max(0, position + 1 - (window or end)), position + 1)
            scores = torch.einsum("hd,thd->ht", query[position].double(), key[seen]) * 0.3
            result.append(torch.einsum("ht,thd->hd", scores.softmax(dim=1), value[seen]))
        return torch.stack(result)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_prompts_and_decodes_read_what_the_bytes_stand_for(
    kind: CacheKind, window: int | None, device: str, *, batch_invariant: bool
) -> None:
    if device == "cuda" and batch_invariant:
        pytest.skip("this backend is invariant on a CPU alone")
    backend = TorchAttention(shape_of(kind), 20, 0, torch.device(device), batch_invariant=batch_invariant)
    texts = Texts(backend, [6, 17, 23])
    for counts in ([5, 9, 11], [1, 7, 2]):
        before = list(texts.done)
        for text, found in enumerate(texts.step(counts, window)):
            expected = texts.expected(text, before[text], texts.done[text], window)
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_moved_blocks_take_their_scales_along(kind: CacheKind, device: str) -> None:
    backend = TorchAttention(shape_of(kind), 20, 6, torch.device(device))
    texts = Texts(backend, [18])
    texts.step([17])
    table = texts.tables[0]
    fresh = [block for block in range(20) if block not in table][: len(table)]
    apply_block_ops(backend, [BlockOp("copy", src, dst) for src, dst in zip(table, fresh, strict=True)])
    host = list(range(len(fresh)))
    apply_block_ops(backend, [BlockOp("swap_out", src, dst) for src, dst in zip(fresh, host, strict=True)])
    backend.cache.fill_(255)
    back = list(reversed(table))
    apply_block_ops(backend, [BlockOp("swap_in", src, dst) for src, dst in zip(host, back, strict=True)])
    texts.tables[0] = back
    [found] = texts.step([1])
    torch.testing.assert_close(found.double(), texts.expected(0, 17, 18), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_has_the_bytes_that_its_shape_says(kind: CacheKind) -> None:
    shape = shape_of(kind, block_size=16, dtype=torch.float16)
    backend = TorchAttention(shape, 7, 3, torch.device("cpu"))
    assert backend.cache.nbytes == 7 * shape.block_bytes
    assert backend.host_cache.nbytes == 3 * shape.block_bytes
    whole = shape_of(None, block_size=16, dtype=torch.float16).block_bytes
    assert shape.block_bytes == 2 * 2 * (16 * 3 * 20 + 16 * 3 * 2)
    assert whole / shape.block_bytes > 1.8  # heads of 20 have little to share a scale; of 128 it is 1.97


@pytest.mark.parametrize("kind", KINDS)
def test_an_element_of_half_precision_is_rounded_once(kind: CacheKind) -> None:
    backend = TorchAttention(shape_of(kind, dtype=torch.bfloat16), 20, 0, torch.device("cpu"))
    texts = Texts(backend, [9])
    [found] = texts.step([9])
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), texts.expected(0, 0, 9), rtol=0.02, atol=0.02)
