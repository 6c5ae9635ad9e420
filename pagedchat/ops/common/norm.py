"""The norms of the ops: of rows, and of queries and keys before they are turned."""

from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

import torch
from torch.nn import functional

from pagedchat.ops.common.checks import check_same_type, check_shape


@dataclass(frozen=True, slots=True)
class Norm:
    """LayerNorm (Ba et al. 2016, arXiv 1607.06450) or RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467)."""

    kind: Literal["layer", "rms"]
    weight: torch.Tensor
    """`[width]`, of the type of the rows; of heads each with a weight of its own `[num_heads, head_size]`."""
    bias: torch.Tensor | None
    """Like the weight; None adds nothing, and there is none with "rms"."""
    eps: float
    exact: bool = False
    """An RMS norm's rows are rounded behind the weight alone; else before it, and behind that."""
    one_more: bool = False
    """An RMS norm that is exact multiplies by one more than its weight, in float32."""
    largest: float | None = None
    """No element of what it multiplies by is further from zero; None: not known."""

    @property
    def unit(self) -> float:
        """The least power of two, one at least, over which no element of what it multiplies by is more than one.

        Raises:
            ValueError: the largest is not known.
        """
        if self.largest is None:
            raise ValueError("the largest element of the norm's weight is not known")
        return 2.0 ** max(0, ceil(log2(max(1.0, self.largest))))

    @property
    def constant(self) -> int:
        """The `NORM` constant of the kernels (norm_kinds.cuh)."""
        if self.kind == "layer":
            return 1
        return 4 if self.one_more else 3 if self.exact else 2

    def apply(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., width]` -> the same shape and type; worked out in float32 or better."""
        if self.kind == "layer" and self.weight.dim() == 1:
            return functional.layer_norm(rows, (rows.shape[-1],), self.weight, self.bias, self.eps)
        finer = rows if rows.dtype == torch.float64 else rows.float()
        if self.kind == "layer":
            normed = functional.layer_norm(finer, (rows.shape[-1],), None, None, self.eps) * self.weight
            return (normed if self.bias is None else normed + self.bias).to(rows.dtype)
        scaled = finer * torch.rsqrt(finer.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        if not self.exact:
            return self.weight * scaled.to(rows.dtype)
        weight = self.weight.to(finer.dtype)
        return (scaled * (weight + 1 if self.one_more else weight)).to(rows.dtype)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Norms of a token's queries and of its keys.

    Weights of `[head_size]` are for every head by itself (Qwen3), those of `[num_heads, head_size]` and
    `[num_kv_heads, head_size]` too, each head having its own (Cohere); those of `[num_heads * head_size]` and
    `[num_kv_heads * head_size]` take all heads of a token as one row (OLMo 2).
    """

    query: Norm
    key: Norm

    def spans_heads(self, head_size: int) -> bool:
        """Whether all heads of a token are one row."""
        return self.query.weight.dim() == 1 and len(self.query.weight) > head_size

    def constant(self, head_size: int) -> int:
        """The `HEAD_NORM` constant of the kernel."""
        if self.query.weight.dim() > 1:
            return 3
        return 2 if self.spans_heads(head_size) else 1

    def apply(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Norm queries `[num_tokens, num_heads, head_size]` and keys `[num_tokens, num_kv_heads, head_size]`."""
        if not self.spans_heads(query.shape[2]):
            return self.query.apply(query), self.key.apply(key)
        return self.query.apply(query.flatten(1)).view_as(query), self.key.apply(key.flatten(1)).view_as(key)


def check_head_norms(norms: HeadNorms, query: torch.Tensor, key: torch.Tensor) -> None:
    """Refuse norms that are not for these queries and keys, shaped as in `HeadNorms.apply`.

    Raises:
        ValueError: two kinds, another width, type or device.
    """
    if norms.query.constant != norms.key.constant:
        raise ValueError(f"norms.key is a norm of kind {norms.key.kind!r} unlike norms.query")
    kind = norms.constant(query.shape[2])
    for name, norm, heads in (("norms.query", norms.query, query), ("norms.key", norms.key, key)):
        count, width = heads.shape[1:]
        shape = {1: (width,), 2: (count * width,), 3: (count, width)}[kind]
        for part, tensor in (("weight", norm.weight), ("bias", norm.bias)):
            if tensor is not None:
                check_shape(f"{name}.{part}", tensor, *shape)
                check_same_type(f"{name}.{part}", tensor, heads)


def check_norm(norm: Norm, rows: torch.Tensor) -> None:
    """Refuse a norm that is not for these rows.

    Raises:
        ValueError: another width, type or device.
    """
    for name, tensor in (("norm.weight", norm.weight), ("norm.bias", norm.bias)):
        if tensor is not None:
            check_shape(name, tensor, rows.shape[1])
            check_same_type(name, tensor, rows)
