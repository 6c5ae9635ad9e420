"""Small models with random tensors for the ops that run whole decode steps, and states to run them on."""

import dataclasses
from typing import TypeVar

import torch

from pagedchat.ops.decode_state import DecodeState
from pagedchat.ops.norm import Norm
from pagedchat.ops.persistent_model import PersistentLayer, PersistentModel
from pagedchat.ops.persistent_plan import PersistentShape

T = TypeVar("T")

VOCAB_SIZE, NUM_BLOCKS, BLOCK_SIZE, NUM_LAYERS = 1003, 200, 16, 3
SHAPES = {
    "opt": PersistentShape(768, 3072, 12, 12, 64, BLOCK_SIZE, gated=False),
    "llama": PersistentShape(576, 1536, 9, 3, 64, BLOCK_SIZE, gated=True),
}


def random_model(family: str, dtype: torch.dtype) -> PersistentModel:
    """On the CPU: "opt" has LayerNorm, biases and positions, "llama" RMSNorm, rotations and grouped heads."""
    torch.manual_seed(5)
    shape = SHAPES[family]

    def rows(count: int, width: int) -> torch.Tensor:
        return (torch.randn(count, width) / width**0.5).to(dtype)

    def bias(count: int) -> torch.Tensor | None:
        return (torch.randn(count) / 10).to(dtype) if family == "opt" else None

    def norm() -> Norm:
        weight = (1 + torch.randn(shape.hidden) / 10).to(dtype)
        return (
            Norm("layer", weight, bias(shape.hidden), 1e-5) if family == "opt" else Norm("rms", weight, None, 1e-5)
        )

    def layer() -> PersistentLayer:
        caches = torch.randn(2, NUM_BLOCKS, shape.num_kv_heads, shape.head_size, BLOCK_SIZE).to(dtype)
        return PersistentLayer(
            attention_norm=norm(),
            qkv=rows(shape.qkv_rows, shape.hidden),
            qkv_bias=bias(shape.qkv_rows),
            out=rows(shape.hidden, shape.attended),
            out_bias=bias(shape.hidden),
            mlp_norm=norm(),
            up=rows(shape.middle * (2 if shape.gated else 1), shape.hidden),
            up_bias=bias(shape.middle),
            down=rows(shape.hidden, shape.middle),
            down_bias=bias(shape.hidden),
            key_cache=caches[0].view(NUM_BLOCKS, shape.num_kv_heads, shape.head_size // 8, BLOCK_SIZE, 8),
            value_cache=caches[1],
        )

    angles = torch.arange(2048)[:, None] * torch.logspace(0, -3, shape.head_size // 2)
    return PersistentModel(
        shape=shape,
        token_vectors=torch.randn(VOCAB_SIZE, shape.hidden).to(dtype),
        position_vectors=rows(2050, shape.hidden) if family == "opt" else None,
        position_offset=2 if family == "opt" else 0,
        rotations=torch.stack((angles.cos(), angles.sin()), dim=-1) if family == "llama" else None,
        layers=[layer() for _ in range(NUM_LAYERS)],
        norm=norm(),
        head=rows(VOCAB_SIZE, shape.hidden),
        scale=shape.head_size**-0.5,
    )


def random_state(positions: list[int]) -> DecodeState:
    """On the CPU; a position of -1 is padding. No two sequences share a block."""

    def numbers(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    width = max(positions) // BLOCK_SIZE + 2
    tables = torch.randperm(NUM_BLOCKS)[: len(positions) * width].int().view(len(positions), width)
    token_ids = torch.randint(VOCAB_SIZE, (len(positions),), dtype=torch.int32)
    lens = [position + 1 for position in positions]
    history = torch.zeros(4, len(positions), dtype=torch.int32)
    return DecodeState(token_ids, numbers(positions), numbers(lens), tables, numbers([6]), history, numbers([0]))


def moved(item: T, device: str) -> T:
    """A copy of a dataclass with all its tensors, at any depth, on a device."""
    if isinstance(item, torch.Tensor):
        return item.to(device, copy=True)
    if isinstance(item, list):
        return [moved(part, device) for part in item]  # type: ignore[return-value]
    if dataclasses.is_dataclass(item) and not isinstance(item, (type, PersistentShape)):
        fields = {field.name: moved(getattr(item, field.name), device) for field in dataclasses.fields(item)}
        return type(item)(**fields)
    return item
