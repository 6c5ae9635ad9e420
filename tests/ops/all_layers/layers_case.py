"""Small models with random tensors for the launch that does all layers, and states to run it on."""

import torch

from pagedchat.ops.all_layers.shape import LayersShape
from pagedchat.ops.all_layers.streamed_layers import LayerCache
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.model_tensors import FeedForward, LayerTensors, ModelTensors, Product
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import Weight
from pagedchat.ops.quantized.weight_form import WeightForm
from pagedchat.ops.sampling.decode_state import DecodeState
from tests.ops.random_layers import random_cache, random_decodes

VOCAB_SIZE, NUM_BLOCKS, BLOCK_SIZE = 16, 300, 16
INT8, FP8, INT4 = WeightForm("int8"), WeightForm("fp8"), WeightForm("int4", 128, has_minimums=True)
SHAPES = {
    "qwen2.5": LayersShape(896, 4864, 14, 2, 64, BLOCK_SIZE),
    "llama": LayersShape(2048, 8192, 32, 8, 64, BLOCK_SIZE),
    "qwen3": LayersShape(2048, 6144, 16, 8, 128, BLOCK_SIZE),
    "small": LayersShape(192, 320, 6, 2, 64, BLOCK_SIZE),
    "small, heads of 128": LayersShape(224, 1120, 4, 1, 128, BLOCK_SIZE),
}
# Rows that are whole slots of the ring, and that end in less than a run for each warp or than a slot.
FEW_BITS_SHAPES = {
    "int4": LayersShape(1280, 5120, 8, 2, 128, BLOCK_SIZE, INT4, INT8),
    "int4, values in int8": LayersShape(1280, 1280, 8, 2, 128, BLOCK_SIZE, INT4, INT4, INT8),
    "int8, values in int4": LayersShape(384, 640, 6, 2, 64, BLOCK_SIZE, INT8, INT8, INT4),
    "int4, whole slots": LayersShape(4096, 1024, 4, 1, 128, BLOCK_SIZE, INT4, INT8),
    "int4 alone": LayersShape(384, 640, 6, 2, 64, BLOCK_SIZE, INT4, INT4),
    "int8": LayersShape(704, 2240, 6, 2, 64, BLOCK_SIZE, INT8, INT8),
    "fp8": LayersShape(2240, 1088, 4, 1, 128, BLOCK_SIZE, FP8, FP8),
}


def random_model(
    shape: LayersShape,
    dtype: torch.dtype,
    *,
    num_layers: int = 3,
    biased: bool = False,
    normed_heads: bool = False,
    rotary: bool = True,
    norm_kind: str = "rms",
    norm_size: float = 1.0,
) -> tuple[ModelTensors, list[LayerCache]]:
    """On the CPU, of tensors that keep the residual stream near one.

    Args:
        shape: of the model.
        dtype: of weights, where the shape does not say few bits, and of the cache.
        num_layers: how many.
        biased: queries, keys and values have biases.
        normed_heads: queries and keys have norms.
        rotary: they are turned.
        norm_kind: before both halves of a layer: "rms", "exact" or "offset", of `NormKind` in the kernels.
        norm_size: about what these multiply by.
    """
    torch.manual_seed(5)

    def rows(count: int, width: int) -> torch.Tensor:
        return (torch.randn(count, width) / width**0.5).to(dtype)

    def weight(form: WeightForm, count: int, width: int) -> Weight:
        whole, floats = rows(count, width), form.kind == "fp8"
        return quantize(whole, form.bits, form.scale_group or width, floats=floats) if form.few else whole

    def norm(width: int) -> Norm:
        return Norm("rms", (1 + torch.randn(width) / 10).to(dtype), None, 1e-5)

    def norm_before() -> Norm:
        factors, offset = norm_size * (1 + torch.randn(shape.hidden) / 10), int(norm_kind == "offset")
        weight = (factors - offset).to(dtype)
        largest = (weight.float() + offset).abs().max().item()
        return Norm("rms", weight, None, 1e-5, norm_kind != "rms", bool(offset), largest)

    sizes = ModelSizes(
        num_layers=num_layers,
        hidden=shape.hidden,
        middle=shape.middle,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_size,
        vocab_size=VOCAB_SIZE,
        norm="rms",
        gated=True,
        activation="silu",
        rotary=rotary,
        normed_heads=normed_heads,
    )
    angles = torch.arange(4096)[:, None] * torch.logspace(0, -3, shape.head_size // 2)
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1) if rotary else None

    def heads() -> list[Product]:
        bias = (torch.randn(shape.qkv_rows) / 10).to(dtype) if biased else None
        sizes, products, start = (shape.qkv_rows - shape.value_rows, shape.value_rows), [], 0
        for form, count in zip((shape.qkv_form, shape.values_form), sizes, strict=True):
            if form is not None:
                part = None if bias is None else bias[start : start + count]
                products.append(Product(weight(form, count, shape.hidden), part))
            start += count
        return products

    def layer(layer_idx: int) -> LayerTensors:
        qkv, *values = heads()
        return LayerTensors(
            layer_idx=layer_idx,
            sizes=sizes,
            sliding_window=None,
            attention_norm=norm_before(),
            qkv=qkv,
            out=Product(weight(shape.form, shape.hidden, shape.attended)),
            mlp_norm=norm_before(),
            feed=FeedForward(
                up=Product(weight(shape.form, 2 * shape.middle, shape.hidden)),
                down=Product(weight(shape.form, shape.hidden, shape.middle)),
            ),
            head_norms=HeadNorms(norm(shape.head_size), norm(shape.head_size)) if normed_heads else None,
            rotations=rotations,
            values=values[0] if values else None,
        )

    def cache() -> LayerCache:
        return random_cache(NUM_BLOCKS, shape.num_kv_heads, shape.head_size, BLOCK_SIZE, dtype)

    tensors = ModelTensors(
        sizes=sizes,
        token_vectors=torch.randn(VOCAB_SIZE, shape.hidden).to(dtype),
        position_vectors=None,
        position_offset=0,
        rotations=rotations,
        layers=[layer(layer_idx) for layer_idx in range(num_layers)],
        norm=norm(shape.hidden),
        head=rows(VOCAB_SIZE, shape.hidden),
    )
    return tensors, [cache() for _ in range(num_layers)]


def random_state(positions: list[int]) -> DecodeState:
    """On the CPU, always the same; a position of -1 is padding. No two sequences share a block."""
    torch.manual_seed(7)
    return random_decodes(positions, VOCAB_SIZE, NUM_BLOCKS, BLOCK_SIZE)
