"""The launches of a decode step of few chats alone: `python -m tools.measure_few_rows [SHAPE ...] [FORM ...]
[ROWS ...]`.

Of the shapes of `pagedchat bench engine --only shapes`, Llama-3.1-8B's by default, in one graph, with random
weights in float16, int8, fp8 and int4 (groups of 128 with minimums; values and the head in int8, as `--quantize`
has it), one row by default: all of a step and its products alone, in milliseconds; with all layers in one launch,
where there is one; and each product by itself, one launch behind another over the weights of all layers, in
microseconds. Changes nothing.
"""

import sys
from collections.abc import Callable
from itertools import product

import torch

from pagedchat.bench.engine.shapes import SHAPES
from pagedchat.jit.driver import gpu
from pagedchat.ops.all_layers.plan import LayersPlan, plan_layers
from pagedchat.ops.all_layers.shape import LayersShape
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import launch_split
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.products.model_tensors import FeedForward, LayerTensors, ModelTensors, Product
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.quantized.weight import form_of
from pagedchat.ops.sampling.decode_state import DecodeState
from tools.random_model import FORMS, RandomModel, replay_time

CONTEXT, BUCKET, BLOCK_SIZE = 300, 512, 16
"""Tokens of a chat, up to which attention's launch is made for, and of a block."""


def main(arguments: list[str]) -> int:
    """Print a line for each shape, form and number of rows; returns the exit code."""
    names = [argument for argument in arguments if argument in SHAPES] or ["llama-3.1-8b"]
    forms = [argument for argument in arguments if argument in FORMS] or FORMS
    rows = [int(argument) for argument in arguments if argument.isdigit()] or [1]
    with torch.inference_mode():
        for name, form in product(names, forms):
            weights = RandomModel(SHAPES[name], form)
            for num_rows in rows:
                about = f"{name}, {form}, {num_rows} {'row' if num_rows == 1 else 'rows'}"
                print(f"{about}: {_report(Step(num_rows, weights))}", flush=True)
            del weights
            torch.cuda.empty_cache()
    return 0


def _report(step: "Step") -> str:
    whole = replay_time(lambda: step.run(True))
    step.rewind()
    alone, count = replay_time(lambda: step.run(False)), len(step.model.layers)
    each = ", ".join(f"{name} {1e3 * replay_time(chain) / count:.2f}" for name, chain in step.chains.items())
    head, plan = 1e3 * replay_time(step.head), step.plan()
    one = ""
    if plan is not None:
        layers = step.streamed(plan)
        step.rewind()
        one = f", all layers in one launch {replay_time(lambda: step.run_streamed(layers)):.3f}"
    return f"step {whole:.3f} ms{one}, products {alone:.3f}; us: {each}, head {head:.1f}"


class Step:
    """The launches of a step, in their order.

    Args:
        num_rows: chats.
        weights: of the model.
    """

    def __init__(self, num_rows: int, weights: RandomModel) -> None:
        self.weights = weights
        self._num_layers, self._kv_heads = len(weights.layers), weights.num_kv_heads
        per_chat, size = BUCKET // BLOCK_SIZE, weights.head_size
        count = (self._num_layers, num_rows * per_chat, self._kv_heads)
        self._keys = self._random(*count, size // 8, BLOCK_SIZE, 8)
        self._values = self._random(*count, size, BLOCK_SIZE)
        ints = torch.zeros(num_rows, dtype=torch.int32, device="cuda")
        one = ints[:1].clone()
        tables = torch.randperm(num_rows * per_chat, device="cuda").to(torch.int32).view(num_rows, per_chat)
        self._positions, self._lens, self._tables = ints + CONTEXT - 1, ints + CONTEXT, tables
        self._state = DecodeState(
            ints, self._positions.clone(), self._lens.clone(), tables, one, ints.view(1, -1).clone(), one.clone()
        )
        self._best = torch.zeros(num_rows, dtype=torch.int64, device="cuda")
        self._hidden, self._middle = (self._random(num_rows, width) for width in (weights.hidden, weights.middle))
        self._query = self._random(num_rows, weights.num_heads, size)
        self._logits = self._hidden.new_empty(num_rows, weights.vocab_size)
        layers = [self._layer(index) for index in range(self._num_layers)]
        norm, sizes = weights.norm, layers[0].sizes
        self.model = ModelTensors(sizes, self._hidden, None, 0, weights.rotations, layers, norm, weights.head)
        self.chains: dict[str, Callable[[], None]] = {
            "qkv": lambda: self._all(self._heads),
            "out": lambda: self._all(self._out),
            "up": lambda: self._all(self._up),
            "down": lambda: self._all(lambda layer: self._down(layer, self._middle)),
        }

    def run(self, attends: bool) -> None:
        """Queue all of a step, with attention or without."""
        for layer in self.model.layers:
            self._heads(layer)
            if attends:
                self._attend(layer)
            self._out(layer)
            self._down(layer, self._up(layer))
        self.head()

    def rewind(self) -> None:
        """Contexts as they were at first: each step that has run has made them a token longer."""
        self._state.positions.copy_(self._positions)
        self._state.seq_lens.copy_(self._lens)

    def plan(self) -> LayersPlan | None:
        """Of all layers in one launch; None where it has no code for them."""
        layer, on = self.model.layers[0], gpu(torch.cuda.current_device())
        forms = {"form": form_of(layer.out.weight), "qkv_form": form_of(layer.qkv.weight)}
        if layer.values is not None:
            forms["values_form"] = form_of(layer.values.weight)
        shape = LayersShape.of(layer.sizes, BLOCK_SIZE, **forms)
        return plan_layers(shape, len(self._hidden), BUCKET, on.num_multiprocessors, on.shared_bytes)

    def streamed(self, plan: LayersPlan) -> StreamedLayers:
        """All layers in one launch."""
        return StreamedLayers(self.model, list(zip(self._keys, self._values, strict=True)), plan)

    def run_streamed(self, layers: StreamedLayers) -> None:
        """Queue all of a step, its layers in one launch."""
        layers(self._hidden, self._state)
        self.head()

    def head(self) -> None:
        """Queue the product with the vocabulary."""
        logits_argmax(
            self._state,
            self._logits,
            self._hidden,
            self.weights.head,
            norm=self.weights.norm,
            best=self._best,
            overlap=True,
        )

    def _random(self, *sizes: int) -> torch.Tensor:
        return torch.randn(sizes, dtype=torch.float16, device="cuda")

    def _layer(self, index: int) -> LayerTensors:
        weights = self.weights
        sizes = ModelSizes(
            num_layers=self._num_layers, hidden=weights.hidden, middle=weights.middle, num_heads=weights.num_heads,
            num_kv_heads=self._kv_heads, head_dim=weights.head_size, vocab_size=weights.vocab_size, norm="rms",
            gated=True, activation="silu", rotary=True, normed_heads=weights.head_norms is not None,
        )  # fmt: skip
        products = {name: Product(weight) for name, weight in weights.layers[index].items()}
        return LayerTensors(
            layer_idx=index, sizes=sizes, sliding_window=None, attention_norm=weights.norm, mlp_norm=weights.norm,
            head_norms=weights.head_norms, rotations=weights.rotations,
            qkv=Product(products["qkv"].weight, weights.bias), values=products.get("values"), out=products["out"],
            feed=FeedForward(products["up"], products["down"]),
        )  # fmt: skip

    def _all(self, one: Callable[[LayerTensors], object]) -> None:
        for layer in self.model.layers:
            one(layer)

    def _heads(self, layer: LayerTensors) -> None:
        qkv, values, norm = layer.qkv, layer.values, layer.attention_norm
        caches, places = self._caches(layer), (self._tables, self._positions)
        if layer.head_norms is not None:
            heads = small_batch_linear(self._hidden, qkv.weight, bias=qkv.bias, norm=norm, overlap=True)
            by_head = heads.view(len(heads), -1, layer.sizes.head_dim)
            norms, rotations = layer.head_norms, layer.rotations
            heads_to_cache(by_head, *caches, *places, norms=norms, rotations=rotations, overlap=True)
            return
        qkv_to_cache(
            self._query,
            *caches,
            self._hidden,
            qkv.weight,
            *places,
            bias=qkv.bias,
            values=None if values is None else values.weight,
            norm=norm,
            rotations=layer.rotations,
            overlap=True,
        )

    def _caches(self, layer: LayerTensors) -> tuple[torch.Tensor, torch.Tensor]:
        return self._keys[layer.layer_idx], self._values[layer.layer_idx]

    def _attend(self, layer: LayerTensors) -> None:
        options = AttentionOptions(scale=layer.sizes.scale)
        call = AttentionCall(self._query, *self._caches(layer), self._tables, self._lens, options, self._query)
        launch_split(call, BUCKET, None, any_lengths=True, overlap=True)

    def _out(self, layer: LayerTensors) -> None:
        rows, hidden = self._query.flatten(1), self._hidden
        small_batch_linear(rows, layer.out.weight, residual=hidden, output=hidden, overlap=True)

    def _up(self, layer: LayerTensors) -> torch.Tensor:
        norm = layer.mlp_norm
        return small_batch_linear(
            self._hidden, layer.up.weight, norm=norm, activation="silu", paired=True, overlap=True
        )

    def _down(self, layer: LayerTensors, middle: torch.Tensor) -> None:
        hidden = self._hidden
        small_batch_linear(middle, layer.down.weight, residual=hidden, output=hidden, overlap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
