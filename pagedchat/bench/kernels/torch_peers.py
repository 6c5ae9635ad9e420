"""What torch itself does for the same work: attention over contiguous keys and values, and plain tensor code."""

from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import Contender
from pagedchat.bench.kernels.merge_inputs import MergeInputs, MergeSet
from pagedchat.bench.kernels.prefill_inputs import PrefillInputs
from pagedchat.bench.kernels.timing import Call

_DENSE = {
    "torch sdpa dense flash": SDPBackend.FLASH_ATTENTION,
    "torch sdpa dense cudnn": SDPBackend.CUDNN_ATTENTION,
}


def decode(inputs: DecodeInputs) -> list[Contender]:
    """Each set of sequences gathered into contiguous keys and values beforehand."""
    return _dense_contenders(lambda backend: _decode_calls(inputs, backend), inputs.check)


def prefill(inputs: PrefillInputs) -> list[Contender]:
    """The prompt's keys and values contiguous."""
    return _dense_contenders(lambda backend: _prefill_calls(inputs, backend), inputs.check)


def merge(inputs: MergeInputs) -> list[Contender]:
    """The formula in tensor code."""
    return [
        Contender(
            name="torch",
            prepare=lambda: [lambda part=part: _merge(part) for part in inputs.sets],  # type: ignore[misc]
            check=inputs.check,
        )
    ]


def _dense_contenders(calls: Callable[[SDPBackend], list[Call]], check: Callable[..., float]) -> list[Contender]:
    return [
        Contender(name=name, prepare=lambda backend=backend: calls(backend), check=check)  # type: ignore[misc]
        for name, backend in _DENSE.items()
    ]


def _decode_calls(inputs: DecodeInputs, backend: SDPBackend) -> list[Call]:
    query = inputs.query.unsqueeze(2)  # [batch, num_heads, 1, head_size]
    grouped = inputs.shape.num_heads != inputs.shape.num_kv_heads

    def call_on(block_tables: torch.Tensor) -> Call:
        key, value = (
            tokens[:, : inputs.shape.context]
            .transpose(1, 2)
            .contiguous()  # [batch, num_kv_heads, context, head_size]
            for tokens in inputs.cache.gathered(block_tables)
        )

        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(
                    query, key, value, scale=inputs.options.scale, enable_gqa=grouped
                )

        return call

    return [call_on(block_tables) for block_tables in inputs.block_tables]


def _prefill_calls(inputs: PrefillInputs, backend: SDPBackend) -> list[Call]:
    query, key, value = (
        tokens.transpose(0, 1).unsqueeze(0).contiguous()  # [1, heads, num_tokens, head_size]
        for tokens in (inputs.query, inputs.key, inputs.value)
    )
    grouped = query.shape[1] != key.shape[1]

    def call() -> torch.Tensor:
        with sdpa_kernel(backend):
            result = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        return result[0].transpose(0, 1)  # a view: [num_tokens, num_heads, head_size]

    return [call]


def _merge(part: MergeSet) -> None:
    top = torch.maximum(part.prefix_lse, part.suffix_lse)
    prefix_weight, suffix_weight = (part.prefix_lse - top).exp(), (part.suffix_lse - top).exp()
    total = prefix_weight + suffix_weight
    torch.add(top, total.log(), out=part.output_lse)
    prefix = part.prefix * (prefix_weight / total).unsqueeze(-1)
    part.output.copy_(prefix + part.suffix * (suffix_weight / total).unsqueeze(-1))
