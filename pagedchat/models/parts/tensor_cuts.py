"""Which part of each tensor of a checkpoint goes to a rank, by the description of its part of the model.

Products into heads and into the middle of a feed-forward or of an expert are cut by their outputs, those out of
them by their inputs, the vocabulary by its tokens; KV heads that several ranks need are read by each. What is added
behind a sum over all ranks is added by the first one alone. Everything else is whole on each. Knows names and
numbers, no files.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagedchat.models.parts.cut import Cut, Nothing, by_inputs, by_outputs, evenly, shifted, side_by_side
from pagedchat.models.parts.expert_cuts import expert_cuts

if TYPE_CHECKING:
    from pagedchat.models.decoder_config import DecoderConfig, Part

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
        key, value = shifted(kv, queries), shifted(kv, queries + kv.whole)
        together = Cut(0, queries + 2 * kv.whole, (*query.spans, *key.spans, *value.spans))
        yield from by_outputs(layout.qkv[0], together, transposed)
    else:
        for name, cut in zip(layout.qkv, (query, kv, kv), strict=True):
            yield from by_outputs(name, cut, transposed)
    yield from by_inputs(layout.out, query, part.rank, transposed)
    yield from _of_heads(config, part)
    yield from _feed_forward(config, part)
    if config.mixture is not None and part.whole.mixture is not None:
        yield from expert_cuts(layout, config.mixture, part.whole.mixture, part.rank)


def _of_heads(config: "DecoderConfig", part: "Part") -> Iterator[tuple[str, Cut]]:
    """What has one element or one row a head, and norms of queries and keys that are as wide as these."""
    layout, own, whole = config.layout, config.heads, part.whole.heads
    heads = Cut(0, whole.num_heads, ((config.first_head, own.num_heads),))
    kv_heads = Cut(0, whole.num_kv_heads, ((config.first_kv_head, own.num_kv_heads),))
    yield layout.sinks, heads
    over = "" if config.qk_norm is None else config.qk_norm.over
    if over == "width":
        heads, kv_heads, _ = _heads(config, part)
    if over in ("width", "each head"):
        for kind in ("weight", "bias"):
            yield f"{layout.q_norm}.{kind}", heads
            yield f"{layout.k_norm}.{kind}", kv_heads


def _feed_forward(config: "DecoderConfig", part: "Part") -> Iterator[tuple[str, Cut | Nothing]]:
    layout, transposed = config.layout, config.layout.transposed
    middle = evenly(0, config.ffn_size, part.whole.ffn_size, part.rank)
    if len(layout.up) == 1 and config.gated:
        yield from by_outputs(layout.up[0], side_by_side(middle), transposed)
    else:
        for name in layout.up:
            yield from by_outputs(name, middle, transposed)
    yield from by_inputs(layout.down, middle, part.rank, transposed)


def _heads(config: "DecoderConfig", part: "Part") -> tuple[Cut, Cut, int]:
    """Of queries; of keys and of values; and the width of all queries."""
    heads, whole = config.heads, part.whole.heads
    query = Cut(0, whole.query_width, ((config.first_head * heads.head_dim, heads.query_width),))
    kv = Cut(0, whole.kv_width, ((config.first_kv_head * heads.head_dim, heads.kv_width),))
    return query, kv, whole.query_width
