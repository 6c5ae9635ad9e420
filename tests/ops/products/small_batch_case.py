"""What the tests of the ops for a few tokens have in common: random rows, norms, and how exact is exact enough."""

import torch

from pagedchat.ops.common.norm import Norm

WIDTHS = [768, 1024, 2048, 3072, 4096, 8192]
DTYPES = [torch.float16, torch.bfloat16]


def normal(*shape: int, device: str, dtype: torch.dtype, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator) * scale).to(device, dtype)


def make_norm(kind: str | None, width: int, device: str, dtype: torch.dtype) -> Norm | None:
    if kind is None:
        return None
    weight = 1 + normal(width, device=device, dtype=dtype, scale=0.1)
    bias = normal(width, device=device, dtype=dtype, scale=0.1, seed=5) if kind == "layer" else None
    return Norm("layer" if kind == "layer" else "rms", weight, bias, 1e-5)


def exact_norm(norm: Norm | None, rows: torch.Tensor) -> torch.Tensor:
    """In float64; `rows` are."""
    if norm is None:
        return rows
    weight = norm.weight.cpu().double()
    if norm.kind == "rms":
        return weight * rows / (rows.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
    centred = rows - rows.mean(-1, keepdim=True)
    bias = 0 if norm.bias is None else norm.bias.cpu().double()
    return centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * weight + bias


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative, of the whole."""
    return float((got.cpu().double() - wanted).norm() / wanted.norm())


def allowed(dtype: torch.dtype) -> float:
    """A few roundings of the type: of the normed input, the product and the sum."""
    return 2 * torch.finfo(dtype).eps
