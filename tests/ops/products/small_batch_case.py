"""What the tests of the ops for a few tokens have in common: random rows, norms, and how exact is exact enough."""

import torch

from pagedchat.ops.common.norm import Norm

WIDTHS = [768, 1024, 2048, 3072, 4096, 8192]
DTYPES = [torch.float16, torch.bfloat16]


def normal(*shape: int, device: str, dtype: torch.dtype, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator) * scale).to(device, dtype)


NORMS = (None, "layer", "rms", "exact rms", "offset rms")


def make_norm(kind: str | None, width: int, device: str, dtype: torch.dtype) -> Norm | None:
    """Of a kind in `NORMS`."""
    if kind is None:
        return None
    weight = (kind != "offset rms") + normal(width, device=device, dtype=dtype, scale=0.1)
    bias = normal(width, device=device, dtype=dtype, scale=0.1, seed=5) if kind == "layer" else None
    exact, one_more = kind in ("exact rms", "offset rms"), kind == "offset rms"
    return Norm("layer" if kind == "layer" else "rms", weight, bias, 1e-5, exact, one_more)


def exact_norm(norm: Norm | None, rows: torch.Tensor) -> torch.Tensor:
    """In float64; `rows` are."""
    if norm is None:
        return rows
    weight = norm.weight.cpu().double() + norm.one_more
    if norm.kind == "rms":
        return weight * rows / (rows.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
    centred = rows - rows.mean(-1, keepdim=True)
    bias = 0 if norm.bias is None else norm.bias.cpu().double()
    return centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * weight + bias


def exact_activation(activation: str, rows: torch.Tensor) -> torch.Tensor:
    """In float64; `rows` are."""
    if activation == "gelu":
        return rows * 0.5 * (1 + torch.erf(rows * 0.5**0.5))
    if activation == "gelu_tanh":
        return rows * 0.5 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (rows + 0.044715 * rows**3)))
    if activation == "silu":
        return rows * torch.sigmoid(rows)
    powers = {"none": rows, "relu": rows.clamp(min=0), "relu2": rows.clamp(min=0) ** 2}
    return powers[activation]


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative, of the whole."""
    return float((got.cpu().double() - wanted).norm() / wanted.norm())


def allowed(dtype: torch.dtype) -> float:
    """A few roundings of the type: of the normed input, the product and the sum."""
    return 2 * torch.finfo(dtype).eps
