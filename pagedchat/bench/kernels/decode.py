"""Decode attention: one token for each sequence of a batch over a paged cache, of 16 bits and of bytes."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from pagedchat.bench.kernels import flashinfer_peers, torch_peers, vllm_peers
from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work, relative_error
from pagedchat.bench.kernels.random_cache import reference_attention
from pagedchat.bench.kernels.shapes import BLOCK_SIZE, BYTE_DECODE, DECODE, DecodeShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.cache.byte_cache import DTYPES, elements_of, page_bytes
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.layout import tokens_of
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache

_PEERS = {"torch": torch_peers.decode, "flashinfer": flashinfer_peers.decode, "vllm": vllm_peers.decode}
SIXTEEN_BITS, FP8 = "16 bits", "fp8"
"""Contenders over other caches than int8."""


def measure_decode(bench: Bench, shapes: Sequence[DecodeShape] = DECODE) -> list[Figure]:
    """`decode_split` and its peers at every shape."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: DecodeShape) -> list[Figure]:
    inputs = DecodeInputs.apart(shape)
    work = Work(section="decode", shape=str(shape), moved_bytes=shape.kv_bytes, limit_gb_s=bench.limits.copy)
    ours = Contender(name=OURS, prepare=lambda: split_calls(inputs), check=inputs.check)
    return bench.run(work, [ours, *bench.peers_of(_PEERS, inputs)])


def split_calls(inputs: DecodeInputs) -> list[Call]:
    """`decode_split` on every set of sequences."""
    shape = inputs.shape

    def call_on(set_number: int) -> Call:
        call = inputs.attention(set_number)
        return lambda: decode_split(call, max_seq_len=shape.context, num_tokens=shape.batch * shape.context)

    return [call_on(set_number) for set_number in range(len(inputs.block_tables))]


def measure_byte_decode(bench: Bench, shapes: Sequence[DecodeShape] = BYTE_DECODE) -> list[Figure]:
    """`decode_split` over each kind of cache at every shape; ours is int8."""
    return [figure for shape in shapes for figure in _measure_bytes(bench, shape)]


def _measure_bytes(bench: Bench, shape: DecodeShape) -> list[Figure]:
    inputs = DecodeInputs.apart(shape)
    work = Work(section="bytes", shape=str(shape), moved_bytes=shape.kv_bytes // 2, limit_gb_s=bench.limits.copy)
    contenders = [Contender(name=SIXTEEN_BITS, prepare=lambda: split_calls(inputs), check=inputs.check)]
    for name, kind in ((OURS, "int8"), (FP8, "fp8")):
        over = _OverBytes(inputs, kind)  # type: ignore[arg-type]
        contenders.append(Contender(name=name, prepare=over.calls, check=over.check))
    return bench.run(work, contenders)


class _OverBytes:
    """The same sequences over bytes; their cache is made with the calls, and goes with them."""

    def __init__(self, inputs: DecodeInputs, kind: CacheKind) -> None:
        self._inputs, self._kind = inputs, kind
        self._caches: tuple[torch.Tensor, torch.Tensor] | None = None

    def calls(self) -> list[Call]:
        """`decode_split` on every set of sequences."""
        inputs, shape = self._inputs, self._inputs.shape
        key_cache, value_cache = self._caches = _in_bytes(inputs, self._kind)

        def call_on(set_number: int) -> Call:
            call = replace(inputs.attention(set_number), key_cache=key_cache, value_cache=value_cache)
            return lambda: decode_split(call, max_seq_len=shape.context, num_tokens=shape.batch * shape.context)

        return [call_on(set_number) for set_number in range(len(inputs.block_tables))]

    def check(self, calls: Sequence[Call]) -> float:
        """Of the last sequence of the first set, beside what the bytes stand for."""
        inputs, row = self._inputs, self._inputs.shape.batch - 1
        assert self._caches is not None  # noqa: S101 - made with the calls
        inputs.output.fill_(torch.nan)
        calls[0]()
        blocks = inputs.block_tables[0, row].long()
        key, value = (
            part.flatten(0, 1)[: inputs.shape.context] for part in tokens_of(*self._caches, blocks, torch.float32)
        )
        return relative_error(inputs.output[row], reference_attention(inputs.query[row], key, value))


def _in_bytes(inputs: DecodeInputs, kind: CacheKind) -> tuple[torch.Tensor, torch.Tensor]:
    num_blocks, num_kv_heads, head_size, _ = inputs.cache.value_cache.shape
    size = (2, num_blocks, page_bytes(BLOCK_SIZE, num_kv_heads, head_size))
    pages = torch.empty(size, dtype=torch.uint8, device=inputs.query.device)
    row = 16 // DTYPES[kind].itemsize
    key_cache = elements_of(pages[0], kind, num_kv_heads, head_size // row, BLOCK_SIZE, row)
    value_cache = elements_of(pages[1], kind, num_kv_heads, head_size, BLOCK_SIZE)
    slots = torch.arange(num_blocks * BLOCK_SIZE, device=pages.device)
    key, value = (part.flatten(0, 1) for part in (inputs.cache.key_pages, inputs.cache.value_pages))
    reshape_and_cache(key, value, key_cache, value_cache, slots)
    return key_cache, value_cache
