"""Models of random weights for programs that time their launches, and how they are timed. Changes nothing."""

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight, Weight

FORMS = ("float16", "int8", "fp8", "int4")
SOME_TOKENS, MOST_POSITIONS = 16, 8192
"""Of the embedding, and of the angles."""
SAMPLES = 15


class RandomModel:
    """Weights of a model.

    Args:
        shape: its config.json, of a Llama or Qwen.
        form: of all products but those that `--quantize int4` keeps in 8 bits.
    """

    device = "cuda"

    def __init__(self, shape: dict[str, Any], form: str) -> None:
        self.model_type = shape["model_type"]
        self.num_heads, self.num_kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
        hidden, middle = shape["hidden_size"], shape["intermediate_size"]
        self.hidden, self.middle, self.vocab_size = hidden, middle, shape["vocab_size"]
        self.head_size = size = shape.get("head_dim") or hidden // self.num_heads
        qkv_rows, attended = (self.num_heads + 2 * self.num_kv_heads) * size, self.num_heads * size
        sizes = {"qkv": (qkv_rows, hidden), "out": (hidden, attended)}
        sizes |= {"up": (2 * middle, hidden), "down": (hidden, middle)}
        outer = "int8" if form == "int4" else form
        if form == "int4":
            kv_width = self.num_kv_heads * size
            sizes |= {"qkv": (qkv_rows - kv_width, hidden), "values": (kv_width, hidden)}
        self.layers = [
            {kind: random_weight(outer if kind == "values" else form, *each) for kind, each in sizes.items()}
            for _ in range(shape["num_hidden_layers"])
        ]
        self.head = random_weight(outer, self.vocab_size, hidden)
        self.embedding = torch.randn(SOME_TOKENS, hidden, dtype=torch.float16, device=self.device)
        self.bias = self.embedding.new_zeros(qkv_rows) if self.model_type == "qwen2" else None
        self.norm, of_head = (
            Norm("rms", self.embedding.new_ones(width), None, 1e-6, largest=1.0) for width in (hidden, size)
        )
        self.head_norms = HeadNorms(of_head, of_head) if self.model_type == "qwen3" else None
        self.rotations = torch.ones(MOST_POSITIONS, size // 2, 2, device=self.device)


def random_weight(form: str, num_rows: int, width: int) -> Weight:
    """Of one of `FORMS`, on the GPU: so that products of numbers around one are around one."""
    if form == "float16":
        return torch.randn(num_rows, width, dtype=torch.float16, device="cuda").div_(width**0.5)
    bits, group = (4, 128) if form == "int4" else (8, width)
    size = (num_rows, width * bits // 8)
    if form == "fp8":
        digits = torch.randn(size, device="cuda", dtype=torch.float16).to(FP8)
    else:
        low, high, dtype = (0, 256, torch.uint8) if form == "int4" else (-127, 128, torch.int8)
        digits = torch.randint(low, high, size, dtype=dtype, device="cuda")
    spread = {"int8": 73.0, "fp8": 1.0, "int4": 4.6}[form] * width**0.5
    scales = (torch.rand(num_rows, width // group, device="cuda") + 0.5).div(spread).half()
    return QuantizedWeight(bits, group, digits, scales, scales / 2 if form == "int4" else None)


def replay_time(work: Callable[[], object]) -> float:
    """Milliseconds of a replay of `work`, captured, the median."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times: list[float] = []
    for _ in range(SAMPLES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        graph.replay()  # the first of two begins late
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)
