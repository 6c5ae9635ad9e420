"""The launches of a decode step of few chats alone: `python -m tools.measure_few_rows [FORM ...] [ROWS ...]`.

Of Llama-3.1-8B's shape in one graph, with random weights in float16, int8, fp8 and int4 (groups of 128 with
minimums; values and the head in int8, as `--quantize` has it), one row by default: all of a step and
its products alone, in milliseconds; with all layers in one launch, where there is one; and each product by itself,
one launch behind another over the weights of all layers, in microseconds. Changes nothing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.all_layers.plan import LayersShape, plan_layers
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import launch_split
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors, Product
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight, Weight, form_of
from pagedchat.ops.sampling.decode_state import DecodeState

LAYERS, WIDTH, MIDDLE, VOCABULARY = 32, 4096, 14336, 128256
HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE = 32, 8, 128, 16
CONTEXT, BUCKET = 300, 512
"""Tokens of a chat, and up to which attention's launch is made for."""
FORMS = ("float16", "int8", "fp8", "int4")
SAMPLES = 15


def main(arguments: list[str]) -> int:
    """Print a line for each form and number of rows; returns the exit code."""
    forms = [argument for argument in arguments if argument in FORMS] or FORMS
    rows = [int(argument) for argument in arguments if argument.isdigit()] or [1]
    with torch.inference_mode():
        for form in forms:
            weights = Weights.of(form)
            for num_rows in rows:
                _report(Step(num_rows, weights), f"{form}, {num_rows} {'row' if num_rows == 1 else 'rows'}")
            del weights
            torch.cuda.empty_cache()
    return 0


def _report(step: "Step", about: str) -> None:
    whole, alone = replay_time(lambda: step.run(True)), replay_time(lambda: step.run(False))
    each = ", ".join(f"{name} {1e3 * replay_time(chain) / LAYERS:.2f}" for name, chain in step.chains.items())
    head = 1e3 * replay_time(step.head)
    layers = step.streamed()
    one = (
        "" if layers is None else f", all layers in one launch {replay_time(lambda: step.run_streamed(layers)):.3f}"
    )
    print(f"{about}: step {whole:.3f} ms{one}, products {alone:.3f}; us: {each}, head {head:.1f}", flush=True)


@dataclass(frozen=True, slots=True)
class Weights:
    """Of all layers, and of the head."""

    qkv: list[Weight]
    out: list[Weight]
    up: list[Weight]
    down: list[Weight]
    head: Weight
    values: list[Weight] | None = None
    """Where they are apart."""

    @classmethod
    def of(cls, form: str) -> "Weights":
        """Random digits, so that products are around one."""
        values, outer = KV_HEADS * HEAD_SIZE, "int8" if form == "int4" else form
        heads = HEADS * HEAD_SIZE + (values if form == "int4" else 2 * values)
        sizes = {"qkv": (heads, WIDTH), "out": (WIDTH, HEADS * HEAD_SIZE), "up": (2 * MIDDLE, WIDTH)}
        sizes["down"] = (WIDTH, MIDDLE)
        if form == "int4":
            sizes["values"] = (values, WIDTH)
        forms = {"values": outer}
        layers = {
            name: [random_weight(forms.get(name, form), *size) for _ in range(LAYERS)]
            for name, size in sizes.items()
        }
        return cls(**layers, head=random_weight(outer, VOCABULARY, WIDTH))


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


class Step:
    """The launches of a step, in their order.

    Args:
        num_rows: chats.
        weights: of the model.
    """

    def __init__(self, num_rows: int, weights: Weights) -> None:
        self.weights = weights
        per_chat = BUCKET // BLOCK_SIZE
        cache = torch.randn(
            2, LAYERS, num_rows * per_chat, KV_HEADS * HEAD_SIZE * BLOCK_SIZE, dtype=torch.float16, device="cuda"
        )
        sizes = (num_rows * per_chat, KV_HEADS, HEAD_SIZE // 8, BLOCK_SIZE, 8)
        self._keys = cache[0].view(LAYERS, *sizes)
        self._values = cache[1].view(LAYERS, *sizes[:2], HEAD_SIZE, BLOCK_SIZE)
        ints = torch.zeros(num_rows, dtype=torch.int32, device="cuda")
        one = ints[:1].clone()
        tables = torch.randperm(num_rows * per_chat, device="cuda").to(torch.int32).view(num_rows, per_chat)
        self._positions, self._lens = ints + CONTEXT - 1, ints + CONTEXT
        self._tables = tables
        self._state = DecodeState(
            ints, self._positions.clone(), self._lens.clone(), tables, one, ints.view(1, -1).clone(), one.clone()
        )
        self._rotations = torch.ones(BUCKET, HEAD_SIZE // 2, 2, device="cuda")
        self._norm = Norm("rms", torch.ones(WIDTH, dtype=torch.float16, device="cuda"), None, 1e-5)
        self._best = torch.zeros(num_rows, dtype=torch.int64, device="cuda")
        self._hidden, self._middle = (
            torch.randn(num_rows, width, dtype=torch.float16, device="cuda") for width in (WIDTH, MIDDLE)
        )
        self._query = torch.randn(num_rows, HEADS, HEAD_SIZE, dtype=torch.float16, device="cuda")
        self._logits = self._hidden.new_empty(num_rows, VOCABULARY)
        self.chains: dict[str, Callable[[], None]] = {
            "qkv": lambda: self._all(self._qkv),
            "out": lambda: self._all(self._out),
            "up": lambda: self._all(self._up),
            "down": lambda: self._all(lambda layer: self._down(layer, self._middle)),
        }

    def run(self, attends: bool) -> None:
        """Queue all of a step, with attention or without."""
        for layer in range(LAYERS):
            self._qkv(layer)
            if attends:
                self._attend(layer)
            self._out(layer)
            self._down(layer, self._up(layer))
        self.head()

    def streamed(self) -> StreamedLayers | None:
        """All layers in one launch; None where it has no code for them."""
        layer, on = self._layer(0), gpu(torch.cuda.current_device())
        forms = {"form": form_of(layer.out.weight), "qkv_form": form_of(layer.qkv.weight)}
        if layer.values is not None:
            forms["values_form"] = form_of(layer.values.weight)
        shape = LayersShape.of(layer.sizes, BLOCK_SIZE, **forms)
        plan = plan_layers(shape, len(self._hidden), BUCKET, on.num_multiprocessors, on.shared_bytes)
        if plan is None:
            return None
        layers = [self._layer(index) for index in range(LAYERS)]
        head = self.weights.head
        model = ModelTensors(layer.sizes, self._hidden, None, 0, self._rotations, layers, self._norm, head)
        return StreamedLayers(model, list(zip(self._keys, self._values, strict=True)), plan)

    def run_streamed(self, layers: StreamedLayers) -> None:
        """Queue all of a step, its layers in one launch."""
        layers(self._hidden, self._state)
        self.head()

    def _layer(self, index: int) -> LayerTensors:
        sizes = ModelSizes(
            num_layers=LAYERS, hidden=WIDTH, middle=MIDDLE, num_heads=HEADS, num_kv_heads=KV_HEADS,
            head_dim=HEAD_SIZE, vocab_size=VOCABULARY, norm="rms", gated=True, activation="silu", rotary=True,
        )  # fmt: skip
        qkv, out, up, down = (
            Product(weights[index])
            for weights in (self.weights.qkv, self.weights.out, self.weights.up, self.weights.down)
        )
        values = None if self.weights.values is None else Product(self.weights.values[index])
        return LayerTensors(
            layer_idx=index, sizes=sizes, sliding_window=None, attention_norm=self._norm, qkv=qkv, out=out,
            mlp_norm=self._norm, up=up, down=down, rotations=self._rotations, values=values,
        )  # fmt: skip

    def head(self) -> None:
        """Queue the product with the vocabulary."""
        logits_argmax(
            self._state,
            self._logits,
            self._hidden,
            self.weights.head,
            norm=self._norm,
            best=self._best,
            overlap=True,
        )

    def _all(self, one: Callable[[int], object]) -> None:
        for layer in range(LAYERS):
            one(layer)

    def _qkv(self, layer: int) -> None:
        values = self.weights.values
        qkv_to_cache(
            self._query,
            self._keys[layer],
            self._values[layer],
            self._hidden,
            self.weights.qkv[layer],
            self._tables,
            self._positions,
            values=None if values is None else values[layer],
            norm=self._norm,
            rotations=self._rotations,
            overlap=True,
        )

    def _attend(self, layer: int) -> None:
        options = AttentionOptions(scale=HEAD_SIZE**-0.5)
        caches = (self._keys[layer], self._values[layer])
        call = AttentionCall(self._query, *caches, self._tables, self._lens, options, self._query)
        launch_split(call, BUCKET, None, any_lengths=True, overlap=True)

    def _out(self, layer: int) -> None:
        small_batch_linear(
            self._query.flatten(1),
            self.weights.out[layer],
            residual=self._hidden,
            output=self._hidden,
            overlap=True,
        )

    def _up(self, layer: int) -> torch.Tensor:
        weight = self.weights.up[layer]
        return small_batch_linear(
            self._hidden, weight, norm=self._norm, activation="silu", paired=True, overlap=True
        )

    def _down(self, layer: int, middle: torch.Tensor) -> None:
        small_batch_linear(
            middle, self.weights.down[layer], residual=self._hidden, output=self._hidden, overlap=True
        )


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
