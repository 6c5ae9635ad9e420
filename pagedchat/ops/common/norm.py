"""The norms of the ops: of an input before it is multiplied, and of queries and keys before they are turned."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from pagedchat.ops.common.checks import check_same_type, check_shape


@dataclass(frozen=True, slots=True)
class Norm:
    """LayerNorm (Ba et al. 2016, arXiv 1607.06450) or RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467)."""

    kind: Literal["layer", "rms"]
    weight: torch.Tensor
    """`[width]`, of the type of the rows."""
    bias: torch.Tensor | None
    """`[width]`; None adds nothing, and there is none with "rms"."""
    eps: float

    @property
    def constant(self) -> int:
        """The `NORM` constant of the kernels."""
        return 1 if self.kind == "layer" else 2

    def apply(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., width]` -> the same shape and type; worked out in float32 or better."""
        if self.kind == "layer":
            return functional.layer_norm(rows, (rows.shape[-1],), self.weight, self.bias, self.eps)
        exact = rows if rows.dtype == torch.float64 else rows.float()
        scaled = exact * torch.rsqrt(exact.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(rows.dtype)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMSNorms of a token's queries and of its keys.

    Weights of `[head_size]` are for every head by itself (Qwen3); those of `[num_heads * head_size]` and
    `[num_kv_heads * head_size]` take all heads of a token as one row (OLMo 2).
    """

    query: Norm
    key: Norm

    def spans_heads(self, head_size: int) -> bool:
        """Whether all heads of a token are one row."""
        return len(self.query.weight) > head_size

    def apply(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Norm queries `[num_tokens, num_heads, head_size]` and keys `[num_tokens, num_kv_heads, head_size]`."""
        if not self.spans_heads(query.shape[2]):
            return self.query.apply(query), self.key.apply(key)
        return self.query.apply(query.flatten(1)).view_as(query), self.key.apply(key.flatten(1)).view_as(key)


def check_head_norms(norms: HeadNorms, query: torch.Tensor, key: torch.Tensor) -> None:
    """Refuse norms that are not for these queries and keys, shaped as in `HeadNorms.apply`.

    Raises:
        ValueError: another kind, width, type or device.
    """
    spans = norms.spans_heads(query.shape[2])
    for name, norm, heads in (("norms.query", norms.query, query), ("norms.key", norms.key, key)):
        if norm.kind != "rms":
            raise ValueError(f"{name} is a norm of kind {norm.kind!r}, expected 'rms'")
        check_shape(f"{name}.weight", norm.weight, heads.shape[1] * heads.shape[2] if spans else heads.shape[2])
        check_same_type(f"{name}.weight", norm.weight, heads)


def check_norm(norm: Norm, rows: torch.Tensor) -> None:
    """Refuse a norm that is not for these rows.

    Raises:
        ValueError: another width, type or device.
    """
    for name, tensor in (("norm.weight", norm.weight), ("norm.bias", norm.bias)):
        if tensor is not None:
            check_shape(name, tensor, rows.shape[1])
            check_same_type(name, tensor, rows)
