"""vLLM's attention and cache kernels on the same inputs; what it plans once a step is planned beforehand."""

from importlib import import_module
from typing import Any

import torch

from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import Contender
from pagedchat.bench.kernels.merge_inputs import MergeInputs
from pagedchat.bench.kernels.prefill_inputs import PrefillInputs
from pagedchat.bench.kernels.random_cache import DEVICE, TYPE
from pagedchat.bench.kernels.shapes import BLOCK_SIZE
from pagedchat.bench.kernels.timing import Call

_GRAPH_SPLITS = 32
"""Splits of FlashAttention 3 in vLLM's captured decode graphs."""
_V2_PARTITION = 512
"""Tokens of a partition of paged_attention_v2."""


def decode(inputs: DecodeInputs) -> list[Contender]:
    """Its own two kernels and both generations of FlashAttention."""
    prepared = {
        "vllm paged_attention_v1": lambda: _paged_attention_v1(inputs),
        "vllm paged_attention_v2": lambda: _paged_attention_v2(inputs),
        "vllm FA2": lambda: _flash_decode(inputs, version=2),
        "vllm FA3": lambda: _flash_decode(inputs, version=3),
    }
    return [Contender(name=name, prepare=calls, check=inputs.check) for name, calls in prepared.items()]


def prefill(inputs: PrefillInputs) -> list[Contender]:
    """Both generations of FlashAttention, the cache paged or the keys and values contiguous."""
    prepared = {
        "vllm FA2 paged": lambda: _flash_prefill(inputs, version=2, paged=True),
        "vllm FA3 paged": lambda: _flash_prefill(inputs, version=3, paged=True),
        "vllm FA3 dense": lambda: _flash_prefill(inputs, version=3, paged=False),
    }
    return [Contender(name=name, prepare=calls, check=inputs.check) for name, calls in prepared.items()]


def merge(inputs: MergeInputs) -> list[Contender]:
    """Its CUDA op and its Triton kernel; both take the log-sum-exps head by head."""
    modules = {"vllm CUDA": "vllm._custom_ops", "vllm Triton": "vllm.v1.attention.ops.triton_merge_attn_states"}
    return [
        Contender(
            name=name,
            prepare=lambda module=module: _merge_calls(inputs, module),  # type: ignore[misc]
            check=inputs.check,
        )
        for name, module in modules.items()
    ]


def _merge_calls(inputs: MergeInputs, module: str) -> list[Call]:
    merge_attn_states = import_module(module).merge_attn_states
    arguments = [
        (
            part.output,
            part.prefix,
            _by_head(part.prefix_lse),
            part.suffix,
            _by_head(part.suffix_lse),
            _by_head(part.output_lse),
        )
        for part in inputs.sets
    ]
    return [lambda given=given: merge_attn_states(*given) for given in arguments]  # type: ignore[misc]


def _by_head(lse: torch.Tensor) -> torch.Tensor:
    return lse.t().contiguous()


def _paged_attention_v1(inputs: DecodeInputs) -> list[Call]:
    kernel = import_module("vllm._custom_ops").paged_attention_v1
    return _own_decode(inputs, lambda *arguments: kernel(inputs.output, *arguments))


def _paged_attention_v2(inputs: DecodeInputs) -> list[Call]:
    kernel = import_module("vllm._custom_ops").paged_attention_v2
    shape = inputs.shape
    parts = (shape.batch, shape.num_heads, -(-shape.context // _V2_PARTITION))
    partial = torch.empty(*parts, shape.head_size, device=DEVICE, dtype=TYPE)
    sums, tops = (torch.empty(parts, device=DEVICE) for _ in range(2))
    return _own_decode(inputs, lambda *arguments: kernel(inputs.output, sums, tops, partial, *arguments))


def _own_decode(inputs: DecodeInputs, kernel: Any) -> list[Call]:
    """Its cache layout is the one of `pagedchat.ops.cache.layout`."""
    one = torch.ones((), device=DEVICE)
    shape, cache = inputs.shape, inputs.cache

    def call_on(block_tables: torch.Tensor) -> Call:
        def call() -> None:
            kernel(
                inputs.query,
                cache.key_cache,
                cache.value_cache,
                shape.num_kv_heads,
                inputs.options.scale,
                block_tables,
                inputs.seq_lens,
                BLOCK_SIZE,
                shape.context,
                None,
                "auto",
                one,
                one,
            )

        return call

    return [call_on(block_tables) for block_tables in inputs.block_tables]


def _flash_decode(inputs: DecodeInputs, version: int) -> list[Call]:
    flash = _flash()
    shape, cache = inputs.shape, inputs.cache
    starts = torch.arange(shape.batch + 1, device=DEVICE, dtype=torch.int32)
    num_splits = _GRAPH_SPLITS if version == 3 else 0
    plan = _plan(inputs, starts, shape.batch, 1, shape.context, num_splits) if version == 3 else None

    def call_on(block_tables: torch.Tensor) -> Call:
        def call() -> None:
            flash.flash_attn_varlen_func(
                q=inputs.query,
                k=cache.key_pages,
                v=cache.value_pages,
                out=inputs.output,
                cu_seqlens_q=starts,
                max_seqlen_q=1,
                seqused_k=inputs.seq_lens,
                max_seqlen_k=shape.context,
                softmax_scale=inputs.options.scale,
                causal=True,
                block_table=block_tables,
                fa_version=version,
                scheduler_metadata=plan,
                num_splits=num_splits,
            )

        return call

    return [call_on(block_tables) for block_tables in inputs.block_tables]


def _flash_prefill(inputs: PrefillInputs, version: int, paged: bool) -> list[Call]:
    flash = _flash()
    num_tokens, cache = inputs.shape.num_tokens, inputs.cache
    if paged:
        source: dict[str, Any] = {
            "k": cache.key_pages,
            "v": cache.value_pages,
            "seqused_k": inputs.seq_lens,
            "block_table": inputs.block_tables,
        }
        if version == 3:
            source["scheduler_metadata"] = _plan(inputs, inputs.cu_seqlens, 1, num_tokens, num_tokens, 0)
    else:
        source = {"k": inputs.key, "v": inputs.value, "cu_seqlens_k": inputs.cu_seqlens}

    def call() -> None:
        flash.flash_attn_varlen_func(
            q=inputs.query,
            out=inputs.output,
            cu_seqlens_q=inputs.cu_seqlens,
            max_seqlen_q=num_tokens,
            max_seqlen_k=num_tokens,
            softmax_scale=inputs.options.scale,
            causal=True,
            fa_version=version,
            **source,
        )

    return [call]


def _plan(
    inputs: DecodeInputs | PrefillInputs,
    cu_seqlens: torch.Tensor,
    batch: int,
    max_query_len: int,
    max_seq_len: int,
    num_splits: int,
) -> Any:
    """The scheduler metadata of FlashAttention 3."""
    return _flash().get_scheduler_metadata(
        batch_size=batch,
        max_seqlen_q=max_query_len,
        max_seqlen_k=max_seq_len,
        num_heads_q=inputs.shape.num_heads,
        num_heads_kv=inputs.shape.num_kv_heads,
        headdim=inputs.shape.head_size,
        cache_seqlens=inputs.seq_lens,
        qkv_dtype=TYPE,
        cu_seqlens_q=cu_seqlens,
        page_size=BLOCK_SIZE,
        causal=True,
        num_splits=num_splits,
    )


def _flash() -> Any:
    return import_module("vllm.vllm_flash_attn.flash_attn_interface")
