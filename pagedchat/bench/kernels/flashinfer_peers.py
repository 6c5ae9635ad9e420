"""FlashInfer's paged attention (Ye et al. 2025, arXiv 2501.01005) on the same inputs, planned beforehand."""

from importlib import import_module
from typing import Any

import torch

from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import Contender
from pagedchat.bench.kernels.prefill_inputs import PrefillInputs
from pagedchat.bench.kernels.random_cache import DEVICE, TYPE
from pagedchat.bench.kernels.shapes import BLOCK_SIZE
from pagedchat.bench.kernels.timing import Call

_WORKSPACE_BYTES = 256 << 20


def decode(inputs: DecodeInputs) -> list[Contender]:
    """With one query head at a time, and with a group of them on tensor cores."""
    return [
        Contender(
            name=f"flashinfer{' tensor cores' if tensor_cores else ''}",
            prepare=lambda tensor_cores=tensor_cores: _decode_calls(inputs, tensor_cores),  # type: ignore[misc]
            check=inputs.check,
        )
        for tensor_cores in (False, True)
    ]


def prefill(inputs: PrefillInputs) -> list[Contender]:
    """The template of FlashAttention 2, the one that is built for every architecture."""
    return [Contender(name="flashinfer FA2 paged", prepare=lambda: _prefill_calls(inputs), check=inputs.check)]


def _decode_calls(inputs: DecodeInputs, tensor_cores: bool) -> list[Call]:
    shape = inputs.shape
    per_sequence = inputs.block_tables.shape[2]
    starts = torch.arange(shape.batch + 1, device=DEVICE, dtype=torch.int32) * per_sequence
    last = torch.full((shape.batch,), _tokens_in_last_block(shape.context), device=DEVICE, dtype=torch.int32)
    workspace = _workspace()

    def call_on(block_tables: torch.Tensor) -> Call:
        wrapper = _flashinfer().BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=tensor_cores)
        wrapper.plan(
            starts,
            block_tables.flatten(),
            last,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_size,
            BLOCK_SIZE,
            q_data_type=TYPE,
            kv_data_type=TYPE,
        )
        pages = (inputs.cache.key_pages, inputs.cache.value_pages)
        return lambda: wrapper.run(inputs.query, pages, out=inputs.output)

    return [call_on(block_tables) for block_tables in inputs.block_tables]


def _prefill_calls(inputs: PrefillInputs) -> list[Call]:
    shape = inputs.shape
    wrapper = _flashinfer().BatchPrefillWithPagedKVCacheWrapper(_workspace(), "NHD", backend="fa2")
    wrapper.plan(
        inputs.cu_seqlens,
        torch.tensor([0, inputs.block_tables.shape[1]], device=DEVICE, dtype=torch.int32),
        inputs.block_tables.flatten(),
        torch.tensor([_tokens_in_last_block(shape.num_tokens)], device=DEVICE, dtype=torch.int32),
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_size,
        BLOCK_SIZE,
        causal=True,
        q_data_type=TYPE,
        kv_data_type=TYPE,
    )
    pages = (inputs.cache.key_pages, inputs.cache.value_pages)
    return [lambda: wrapper.run(inputs.query, pages, out=inputs.output)]


def _tokens_in_last_block(num_tokens: int) -> int:
    return (num_tokens - 1) % BLOCK_SIZE + 1


def _workspace() -> torch.Tensor:
    return torch.zeros(_WORKSPACE_BYTES, device=DEVICE, dtype=torch.uint8)


def _flashinfer() -> Any:
    return import_module("flashinfer")
