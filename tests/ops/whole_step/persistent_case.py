"""Small models with random tensors for the ops that run whole decode steps, and states to run them on."""

import dataclasses
from typing import Any, TypeVar

import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.model_tensors import FeedForward, LayerTensors, ModelTensors, Product
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.model import LayerCache, PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentPlan, PersistentShape
from tests.ops.random_layers import random_cache, random_decodes

T = TypeVar("T")

VOCAB_SIZE, NUM_BLOCKS, BLOCK_SIZE, NUM_LAYERS = 1003, 200, 16, 3
SHAPES = {
    "opt": PersistentShape(768, 3072, 12, 12, 64, BLOCK_SIZE, gated=False),
    "llama": PersistentShape(576, 1536, 9, 3, 64, BLOCK_SIZE, gated=True),
}


def random_model(family: str, dtype: torch.dtype, shape: PersistentShape | None = None) -> PersistentModel:
    """On the CPU: "opt" has LayerNorm, biases and positions, "llama" RMSNorm and rotations.

    Args:
        family: of the two.
        dtype: of weights and cache.
        shape: the family's of `SHAPES` by default, where "llama" has grouped heads.
    """
    torch.manual_seed(5)
    shape = shape or SHAPES[family]

    def rows(count: int, width: int) -> torch.Tensor:
        return (torch.randn(count, width) / width**0.5).to(dtype)

    def bias(count: int) -> torch.Tensor | None:
        return (torch.randn(count) / 10).to(dtype) if family == "opt" else None

    def norm() -> Norm:
        weight = (1 + torch.randn(shape.hidden) / 10).to(dtype)
        return (
            Norm("layer", weight, bias(shape.hidden), 1e-5) if family == "opt" else Norm("rms", weight, None, 1e-5)
        )

    sizes = sizes_of(family, shape)

    def layer(layer_idx: int) -> LayerTensors:
        return LayerTensors(
            layer_idx=layer_idx,
            sizes=sizes,
            sliding_window=None,
            attention_norm=norm(),
            qkv=Product(rows(shape.qkv_rows, shape.hidden), bias(shape.qkv_rows)),
            out=Product(rows(shape.hidden, shape.attended), bias(shape.hidden)),
            mlp_norm=norm(),
            feed=FeedForward(
                up=Product(rows(shape.middle * (2 if shape.gated else 1), shape.hidden), bias(shape.middle)),
                down=Product(rows(shape.hidden, shape.middle), bias(shape.hidden)),
            ),
        )

    def cache() -> LayerCache:
        return random_cache(NUM_BLOCKS, shape.num_kv_heads, shape.head_size, BLOCK_SIZE, dtype)

    angles = torch.arange(2048)[:, None] * torch.logspace(0, -3, shape.head_size // 2)
    tensors = ModelTensors(
        sizes=sizes,
        token_vectors=torch.randn(VOCAB_SIZE, shape.hidden).to(dtype),
        position_vectors=rows(2050, shape.hidden) if family == "opt" else None,
        position_offset=2 if family == "opt" else 0,
        rotations=torch.stack((angles.cos(), angles.sin()), dim=-1) if family == "llama" else None,
        layers=[layer(layer_idx) for layer_idx in range(NUM_LAYERS)],
        norm=norm(),
        head=rows(VOCAB_SIZE, shape.hidden),
    )
    return PersistentModel(tensors, [cache() for _ in range(NUM_LAYERS)])


def sizes_of(family: str, shape: PersistentShape) -> ModelSizes:
    """Of a model of `VOCAB_SIZE` tokens and `NUM_LAYERS` layers."""
    return ModelSizes(
        num_layers=NUM_LAYERS,
        hidden=shape.hidden,
        middle=shape.middle,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_size,
        vocab_size=VOCAB_SIZE,
        norm="layer" if family == "opt" else "rms",
        gated=shape.gated,
        activation="silu" if shape.gated else "relu",
        rotary=family == "llama",
    )


def with_tensors(model: PersistentModel, **changed: Any) -> PersistentModel:
    """The model with other `ModelTensors` fields, and the caches that its first layers have."""
    tensors = dataclasses.replace(model.tensors, **changed)
    return dataclasses.replace(model, tensors=tensors)


def random_state(positions: list[int]) -> DecodeState:
    """On the CPU; a position of -1 is padding. No two sequences share a block."""
    return random_decodes(positions, VOCAB_SIZE, NUM_BLOCKS, BLOCK_SIZE)


def some_steps(model: PersistentModel, state: DecodeState, plan: PersistentPlan, count: int) -> list[torch.Tensor]:
    """Logits of steps that choose their own tokens, `[num_tokens, vocab_size]` each."""
    decode = PersistentDecode(model, len(state.token_ids), plan)
    head = model.tensors.whole_head
    logits = torch.empty(len(state.token_ids), len(head), dtype=head.dtype, device=head.device)
    results = []
    for _ in range(count):
        decode(state, logits)
        results.append(logits.clone())
    return results


def assert_steps_of_parts(model: PersistentModel, state: DecodeState, plan: PersistentPlan, count: int) -> None:
    """Steps on the GPU compute what its parts compute on the CPU, where `model` and `state` are."""
    on_gpu = moved(model, "cuda:0"), moved(state, "cuda:0")
    logits = some_steps(*on_gpu, plan, count)
    live = [row for row, position in enumerate(state.positions.tolist()) if position >= 0]
    positions = [position + count if position >= 0 else -1 for position in state.positions.tolist()]
    for result in logits:
        # Tokens may differ where two are as likely, so every step starts from those that the kernel chose.
        (expected,) = some_steps(model, state, plan, 1)
        tolerance = 4e-3 if expected.dtype == torch.float16 else 3e-2
        assert relative_error(result[live], expected[live]) < tolerance
        chosen = result.argmax(dim=1).int().cpu()
        state = dataclasses.replace(state, token_ids=torch.where(state.positions < 0, state.token_ids, chosen))
    assert on_gpu[1].positions.tolist() == positions
    assert on_gpu[1].token_ids[live].tolist() == logits[-1].argmax(dim=1)[live].tolist()
    assert on_gpu[1].step.tolist() == [6 + count]


def assert_same_caches(
    found: PersistentModel, expected: PersistentModel, slots: list[tuple[int, int]], tolerance: float
) -> None:
    """The same keys and values: in `slots` (block, offset) up to a relative `tolerance`, elsewhere to the bit."""
    for layer, reference in zip(found.caches, expected.caches, strict=True):
        for cache, wanted in zip(layer, reference, strict=True):
            written = cache.to("cpu", copy=True)
            for block, offset in slots:
                slot = (block, ..., offset, slice(None)) if cache.dim() == 5 else (block, ..., offset)
                assert relative_error(written[slot], wanted[slot]) < tolerance
                written[slot] = wanted[slot]
            assert torch.equal(written, wanted)


def slots_from(state: DecodeState, count: int) -> list[tuple[int, int]]:
    """Block and offset of each of the next `count` tokens of the first sequence."""
    first = int(state.positions[0])
    positions = range(first, first + count)
    return [(int(state.block_tables[0, each // BLOCK_SIZE]), each % BLOCK_SIZE) for each in positions]


def relative_error(values: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the whole."""
    expected = expected.double().cpu()
    return float((values.double().cpu() - expected).norm() / expected.norm())


def gpu_limits() -> tuple[int, int]:
    """Multiprocessors of the first GPU, and bytes of shared memory that a thread block may have there."""
    facts = gpu(0)
    return facts.num_multiprocessors, facts.shared_bytes


def moved(item: T, device: str) -> T:
    """A copy of a dataclass with all its tensors, at any depth, on a device."""
    if isinstance(item, torch.Tensor):
        return item.to(device, copy=True)
    if isinstance(item, list):
        return [moved(part, device) for part in item]  # type: ignore[return-value]
    if isinstance(item, tuple):
        return tuple(moved(part, device) for part in item)  # type: ignore[return-value]
    if dataclasses.is_dataclass(item) and not isinstance(item, (type, ModelSizes)):
        fields = {field.name: moved(getattr(item, field.name), device) for field in dataclasses.fields(item)}
        return type(item)(**fields)
    return item
