"""What each kind of launch costs a step of many chats: `python -m tools.measure_many_rows [SHAPE ...] [FORM ...]
[ROWS ...] [norms-apart]`.

The launches of a step in one graph, of the shapes of `pagedchat bench engine --only shapes` with random weights
(of float16 by default, of int8 or fp8 with a scale a row, or of int4 as `--quantize` has it) and keys in float16,
190 tokens of context a chat; then the same step without one kind of them at a time. What a step takes less then is
what that kind costs it, waits between launches included: a profiler's times of launches that overlap say less. All
of a step in microseconds, norms to the way down a layer, head and next token a step. Products have a part in norms
where they can, as in steps, unless norms are to be apart; those cost what the products take more. Changes nothing.
"""

import sys
from itertools import product

import torch

from pagedchat.bench.engine.shapes import SHAPES
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import launch_split
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.deferred_norm import DeferredRows, NormedRows
from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.warpgroup_linear import deferred_rows, side_by_side, warpgroup_linear
from pagedchat.ops.quantized.weight import Weight
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from tools.random_model import FORMS, RandomModel, replay_time

CONTEXT, BUCKET, BLOCK_SIZE = 190, 256, 16
"""Tokens of a chat, up to which attention's launch is made for, and of a block."""
FILLED = 0.75
"""Of the bucket, as captured steps take it."""
APART = "norms-apart"
"""The word that asks for it."""
OF_LAYERS, OF_STEPS = ("norms", "qkv", "cache", "attention", "out", "up", "down"), ("head", "next")
"""Kinds of launches: of every layer, and of a step."""


def main(arguments: list[str]) -> int:
    """Print a line for each shape and number of rows; returns the exit code."""
    names = [argument for argument in arguments if argument in SHAPES] or list(SHAPES)
    forms = [argument for argument in arguments if argument in FORMS] or FORMS[:1]
    rows = [int(argument) for argument in arguments if argument.isdigit()] or [64]
    with torch.inference_mode():
        for name, form in product(names, forms):
            weights = RandomModel(SHAPES[name], form)
            for num_rows in rows:
                step = Step(weights, num_rows, norms_apart=APART in arguments)
                print(f"{name}, {form}, {num_rows} rows: {_report(step)}", flush=True)
                del step
                torch.cuda.empty_cache()
            del weights
            torch.cuda.empty_cache()
    return 0


def _report(step: "Step") -> str:
    whole, num_layers = _time(step), len(step.weights.layers)
    costs = {kind: whole - _time(step, kind) for kind in (*OF_LAYERS, *OF_STEPS)}
    each = [f"{kind} {costs[kind] / (num_layers if kind in OF_LAYERS else 1):.2f}" for kind in costs]
    return f"step {whole:.0f}; {', '.join(each)}"


class Step:
    """The launches of a step, in their order.

    Args:
        weights: of the model.
        num_rows: chats.
        norms_apart: whether no product has a part in a norm.
    """

    def __init__(self, weights: RandomModel, num_rows: int, *, norms_apart: bool = False) -> None:
        self.weights = weights
        self._norms_apart = norms_apart
        per_chat, kv_heads, size = BUCKET // BLOCK_SIZE, weights.num_kv_heads, weights.head_size
        count = (len(weights.layers), num_rows * per_chat, kv_heads)
        self._keys = self._random(*count, size // 8, BLOCK_SIZE, 8)
        self._values = self._random(*count, size, BLOCK_SIZE)
        ints = torch.zeros(num_rows, dtype=torch.int32, device=weights.device)
        tables = torch.randperm(num_rows * per_chat, device=weights.device).int().view(num_rows, per_chat)
        self._ids, self._positions, self._lens = ints, ints + CONTEXT - 1, ints + CONTEXT
        moving = (ints.clone(), self._positions.clone(), self._lens.clone())
        self._state = DecodeState(*moving, tables, ints[:1].clone(), ints.view(1, -1).clone(), ints[:1].clone())
        # What launches that are left out would have made.
        self._heads = self._random(num_rows, (weights.num_heads + 2 * kv_heads) * size)
        self._attended = self._random(num_rows, weights.num_heads * size)
        self._middle = self._random(num_rows, weights.middle)
        self._logits = self._random(num_rows, weights.vocab_size)

    def _random(self, *sizes: int) -> torch.Tensor:
        return torch.randn(sizes, dtype=torch.float16, device=self.weights.device)

    def run(self, without: str = "") -> torch.Tensor:
        """Queue all of a step but for one kind of launches; returns the residual stream."""
        weights = self.weights
        hidden = embed_tokens(weights.embedding, self._ids, self._positions)
        rows: NormedRows | None = None
        for index in range(len(weights.layers)):
            rows = self._layer(index, hidden, rows, without)
        rows = self._normed(hidden, without)
        logits = self._logits if without == "head" else warpgroup_linear(rows, weights.head, overlap=True)
        if without != "next":
            advance_by_argmax(self._state, logits, overlap=True)
            self._state.positions.copy_(self._positions)
            self._state.seq_lens.copy_(self._lens)
        return hidden

    def _layer(
        self, index: int, hidden: torch.Tensor, rows: NormedRows | None, without: str
    ) -> DeferredRows | None:
        layer = self.weights.layers[index]
        if rows is None:
            rows = self._normed(hidden, without)
        heads = self._heads if without == "qkv" else self._made_heads(layer, rows)
        attended = self._attend(index, heads.view(len(heads), -1, self.weights.head_size), without)
        ahead = self._deferred(hidden, layer["out"], layer["up"], without, paired=True)
        if without != "out":
            warpgroup_linear(attended, layer["out"], residual=hidden, output=hidden, ahead=ahead, overlap=True)
        rows, middle = self._normed(hidden, without) if ahead is None else ahead, self._middle
        if without != "up":
            middle = warpgroup_linear(rows, layer["up"], activation="silu", paired=True, overlap=True)
        ahead, is_last = None, index + 1 == len(self.weights.layers)
        if not is_last and "values" not in layer:
            ahead = self._deferred(hidden, layer["down"], self.weights.layers[index + 1]["qkv"], without)
        if without != "down":
            warpgroup_linear(middle, layer["down"], residual=hidden, output=hidden, ahead=ahead, overlap=True)
        return ahead

    def _deferred(
        self, hidden: torch.Tensor, writer: Weight, reader: Weight, without: str, *, paired: bool = False
    ) -> DeferredRows | None:
        if self._norms_apart or without == "norms":
            return None
        return deferred_rows(hidden, self.weights.norm, writer, reader, paired=paired)

    def _made_heads(self, layer: dict[str, Weight], rows: NormedRows) -> torch.Tensor:
        bias, values, heads = self.weights.bias, layer.get("values"), torch.empty_like(self._heads)
        if values is None:
            return warpgroup_linear(rows, layer["qkv"], bias=bias, output=heads, overlap=True)
        first = len(layer["qkv"])
        biases = (None, None) if bias is None else (bias[:first], bias[first:])
        assert isinstance(rows, torch.Tensor)  # noqa: S101 - such products have no part in norms
        side_by_side(rows, list(zip((layer["qkv"], values), biases, strict=True)), heads)
        return heads

    def _normed(self, hidden: torch.Tensor, without: str) -> torch.Tensor:
        return hidden if without == "norms" else add_norm(hidden, None, self.weights.norm, overlap=True)

    def _attend(self, index: int, heads: torch.Tensor, without: str) -> torch.Tensor:
        weights, tables = self.weights, self._state.block_tables
        caches = self._keys[index], self._values[index]
        if without != "cache":
            norms, rotations = weights.head_norms, weights.rotations
            places = (tables, self._positions)
            heads_to_cache(heads, *caches, *places, norms=norms, rotations=rotations, overlap=True)
        if without == "attention":
            return self._attended
        options = AttentionOptions(scale=weights.head_size**-0.5)
        query = heads[:, : weights.num_heads]
        call = AttentionCall.to_new(query, *caches, tables, self._lens, options)
        launch_split(call, BUCKET, int(len(heads) * BUCKET * FILLED), any_lengths=True, overlap=True)
        return call.output.flatten(1)


def _time(step: Step, without: str = "") -> float:
    """Microseconds of a replay, the median."""
    return 1000 * replay_time(lambda: step.run(without))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
