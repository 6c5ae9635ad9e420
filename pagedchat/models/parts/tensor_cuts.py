"""Which part of each tensor of a checkpoint goes to a rank, by the description of its part of the model.

Products into heads and into the middle of a feed-forward are cut by their outputs, those out of them by their
inputs, the vocabulary by its tokens; KV heads that several ranks need are read by each. What is added behind a sum
over all ranks is added by the first one alone. Everything else is whole on each. Knows names and numbers, no files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pagedchat.ops.quantized.weight import QuantizedWeight, stacked

if TYPE_CHECKING:
    from pagedchat.models.decoder_config import DecoderConfig, Part

Stored = torch.Tensor | QuantizedWeight
Span = tuple[int, int]
"""The first one, and how many."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Spans of a dimension, one behind the other, then zeros up to a length."""

    dim: int
    whole: int
    """How long it is in the whole tensor."""
    spans: tuple[Span, ...]
    length: int | None = None

    def fits(self, tensor: Stored) -> bool:
        """Whether it can be cut so."""
        shape = tensor.shape
        return self.dim < len(shape) and shape[self.dim] == self.whole

    def of(self, tensor: Stored) -> Stored:
        """The part of a tensor that fits; a view if there can be one, so that no more is read from its file."""
        parts = [_span(tensor, self.dim, start, count) for start, count in self.spans]
        missing = 0 if self.length is None else self.length - sum(count for _, count in self.spans)
        if missing:
            parts.append(_zeros(tensor, self.dim, missing))
        return parts[0] if len(parts) == 1 else _joined(parts, self.dim)


class Nothing:
    """Zeros in the place of a tensor: others have it."""

    def fits(self, tensor: Stored) -> bool:
        """See `Cut`."""
        return isinstance(tensor, torch.Tensor)

    def of(self, tensor: Stored) -> Stored:
        """See `Cut`."""
        return torch.zeros_like(tensor) if isinstance(tensor, torch.Tensor) else tensor


NOTHING = Nothing()
Cuts = dict[str, Cut | Nothing]
"""Name in the checkpoint -> what of it goes to its place; whatever has no entry goes there whole."""


def cuts_of(config: "DecoderConfig", part: "Part") -> Cuts:
    """Of all tensors of a model.

    Args:
        config: of the part.
        part: which one it is.
    """
    layout = config.layout
    cuts: Cuts = {f"{layout.embedding}.weight": _vocabulary(config, part)}
    cuts |= dict.fromkeys((f"{layout.head}.weight", f"{layout.head}.bias"), _vocabulary(config, part))
    of_layer = dict(_of_layer(config, part))
    for layer_idx in range(config.num_layers):
        cuts |= {f"{layout.layer}.{layer_idx}.{name}": cut for name, cut in of_layer.items()}
    return cuts


def _vocabulary(config: "DecoderConfig", part: "Part") -> Cut:
    height, whole = config.num_vocabulary_rows, config.vocab_size
    start = min(part.rank * height, whole)
    return Cut(0, whole, ((start, min(height, whole - start)),), height)


def _of_layer(config: "DecoderConfig", part: "Part") -> Iterator[tuple[str, Cut | Nothing]]:
    layout, transposed = config.layout, config.layout.transposed
    query, kv, queries = _heads(config, part)
    if len(layout.qkv) == 1:
        key, value = (_shifted(kv, queries), _shifted(kv, queries + kv.whole))
        together = Cut(0, queries + 2 * kv.whole, (*query.spans, *key.spans, *value.spans))
        yield from _by_outputs(layout.qkv[0], together, transposed)
    else:
        for name, cut in zip(layout.qkv, (query, kv, kv), strict=True):
            yield from _by_outputs(name, cut, transposed)
    yield from _by_inputs(layout.out, query, part, transposed)
    own, whole = config.heads, part.whole.heads
    heads = Cut(0, whole.num_heads, ((config.first_head, own.num_heads),))
    yield layout.sinks, heads
    if config.qk_norm is not None and config.qk_norm.over == "each head":
        yield f"{layout.q_norm}.weight", heads
        kv_heads = Cut(0, whole.num_kv_heads, ((config.first_kv_head, own.num_kv_heads),))
        yield f"{layout.k_norm}.weight", kv_heads
    middle = Cut(0, part.whole.ffn_size, ((part.rank * config.ffn_size, config.ffn_size),))
    if len(layout.up) == 1 and config.gated:
        both = Cut(0, 2 * middle.whole, (*middle.spans, *_shifted(middle, middle.whole).spans))
        yield from _by_outputs(layout.up[0], both, transposed)
    else:
        for name in layout.up:
            yield from _by_outputs(name, middle, transposed)
    yield from _by_inputs(layout.down, middle, part, transposed)


def _heads(config: "DecoderConfig", part: "Part") -> tuple[Cut, Cut, int]:
    """Of queries; of keys and of values; and the width of all queries."""
    heads, whole = config.heads, part.whole.heads
    query = Cut(0, whole.query_width, ((config.first_head * heads.head_dim, heads.query_width),))
    kv = Cut(0, whole.kv_width, ((config.first_kv_head * heads.head_dim, heads.kv_width),))
    return query, kv, whole.query_width


def _shifted(cut: Cut, by: int) -> Cut:
    return Cut(cut.dim, cut.whole, tuple((start + by, count) for start, count in cut.spans))


def _by_outputs(name: str, cut: Cut, transposed: bool) -> Iterator[tuple[str, Cut | Nothing]]:
    yield f"{name}.weight", Cut(1, cut.whole, cut.spans) if transposed else cut
    yield f"{name}.bias", cut


def _by_inputs(name: str, cut: Cut, part: "Part", transposed: bool) -> Iterator[tuple[str, Cut | Nothing]]:
    yield f"{name}.weight", cut if transposed else Cut(1, cut.whole, cut.spans)
    if part.rank:
        yield f"{name}.bias", NOTHING


def _span(tensor: Stored, dim: int, start: int, count: int) -> Stored:
    if isinstance(tensor, torch.Tensor):
        return tensor.narrow(dim, start, count)
    stop = start + count
    return tensor.rows(slice(start, stop)) if dim == 0 else tensor.columns(start, stop)


def _zeros(tensor: Stored, dim: int, count: int) -> Stored:
    """As many rows or columns of what a tensor has."""
    if isinstance(tensor, torch.Tensor):
        shape = list(tensor.shape)
        shape[dim] = count
        return tensor.new_zeros(shape)
    return tensor.rows(torch.zeros(count, dtype=torch.int64)).of_nothing()


def _joined(parts: list[Stored], dim: int) -> Stored:
    few = [part for part in parts if isinstance(part, QuantizedWeight)]
    if not few:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)], dim=dim)
    if dim == 0:
        return stacked(few)
    raise ValueError("inputs of a product are cut in one piece")
