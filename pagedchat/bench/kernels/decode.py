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
from pagedchat.ops.attention.call import AttentionCall
from pagedchat.ops.attention.decode_split import decode_split, launch_split
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
    return [_call(inputs, inputs.attention(set_number)) for set_number in range(len(inputs.block_tables))]


def _call(inputs: DecodeInputs, call: AttentionCall, *, overlaps: bool = False) -> Call:
    """`overlaps`: as a captured step launches it, before the kernel before has ended and for any lengths."""
    longest, all_tokens = inputs.shape.context, inputs.shape.batch * inputs.shape.context
    if overlaps:
        readable = call.readable()
        return lambda: launch_split(readable, longest, all_tokens, any_lengths=True, overlap=True)
    return lambda: decode_split(call, max_seq_len=longest, num_tokens=all_tokens)


def measure_byte_decode(bench: Bench, shapes: Sequence[DecodeShape] = BYTE_DECODE) -> list[Figure]:
    """`decode_split` over each kind of cache at every shape, one call after another and as captured steps launch
    it; ours is int8."""
    both = (("bytes", False), ("bytes in steps", True))
    return [figure for shape in shapes for section in both for figure in _measure_bytes(bench, shape, *section)]


def _measure_bytes(bench: Bench, shape: DecodeShape, section: str, overlaps: bool) -> list[Figure]:
    inputs = DecodeInputs.apart(shape)
    work = Work(section=section, shape=str(shape), moved_bytes=shape.kv_bytes // 2, limit_gb_s=bench.limits.copy)
    kinds: tuple[tuple[str, CacheKind | None], ...] = ((SIXTEEN_BITS, None), (OURS, "int8"), (FP8, "fp8"))
    contenders = []
    for name, kind in kinds:
        over = _Over(inputs, kind, overlaps=overlaps)
        contenders.append(Contender(name=name, prepare=over.calls, check=over.check))
    return bench.run(work, contenders)


class _Over:
    """The same sequences over a cache of bytes, which is made with the calls and goes with them; or of 16 bits."""

    def __init__(self, inputs: DecodeInputs, kind: CacheKind | None, *, overlaps: bool) -> None:
        self._inputs, self._kind, self._overlaps = inputs, kind, overlaps
        self._caches: tuple[torch.Tensor, torch.Tensor] | None = None

    def calls(self) -> list[Call]:
        """`decode_split` on every set of sequences."""
        inputs = self._inputs
        calls = [inputs.attention(set_number) for set_number in range(len(inputs.block_tables))]
        if self._kind is not None:
            key_cache, value_cache = self._caches = _in_bytes(inputs, self._kind)
            calls = [replace(call, key_cache=key_cache, value_cache=value_cache) for call in calls]
        return [_call(inputs, call, overlaps=self._overlaps) for call in calls]

    def check(self, calls: Sequence[Call]) -> float:
        """Of the last sequence of the first set, beside what the bytes stand for."""
        inputs, row = self._inputs, self._inputs.shape.batch - 1
        if self._caches is None:
            return inputs.check(calls)
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
