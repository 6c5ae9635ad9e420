"""Which product of a layer a kernel of a step makes, by its place in the step, and what it has to read.

A step of usual layers multiplies in one order: queries, keys and values; behind attention the way out, up and down;
behind the last layer the head. So kernels need no names of their own for it, whoever wrote them. A mixture of
experts has its router behind the way out, and its experts are no such products.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagedchat.bench.step.kinds import kind_of
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.few_bits_linear import weight_of, weights_of
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_layer import DecoderLayer

QKV, OUT, UP, DOWN, HEAD = "queries, keys, values", "way out", "up", "way down", "head"
ROUTER = "router"
_ORDER, _ORDER_OF_MIXTURE = (QKV, OUT, UP, DOWN), (QKV, OUT, ROUTER)
_NAMES = {"qkv": QKV, "out": OUT, "up": UP, "down": DOWN}
"""By the names that a layer has for them."""
_SCREENED = "screen_vocabulary"
"""The kernel that reads a head's copy in 8-bit integers in its place, which has half of its bytes."""
_SECOND_HALF = "splitkreduce"
"""In the name of a library's second kernel for the same product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShare:
    """One product of all layers in a step, or the head."""

    name: str
    us: float
    """Charged to its kernels."""
    weight_bytes: int
    """That have to be read for it; 0: nobody knows."""

    @property
    def gb_s(self) -> float:
        """At which its weight was read."""
        return self.weight_bytes / self.us / 1e3 if self.us else 0.0


def product_bytes(model: object) -> dict[str, int]:
    """Of the weights of each product, all layers together, in the order of a layer, the head last; nothing for a
    model of other parts, or whose layers are not alike."""
    if not isinstance(model, Decoder):
        return {}
    layers = [layer for layer in model.layers if isinstance(layer, DecoderLayer)]
    mixtures = [layer.mlp for layer in layers if isinstance(layer.mlp, SparseMlp)]
    if mixtures and (len(mixtures) < len(layers) or mixtures[0].shared is not None):
        return {}
    found = dict.fromkeys(_ORDER_OF_MIXTURE if mixtures else _ORDER, 0)
    for layer in layers:
        for name, linear in layer.products.items():
            found[_NAMES[name]] += sum(weight.nbytes for weight, _ in weights_of(linear))
    for mixture in mixtures:
        found[ROUTER] += weight_of(mixture.router).nbytes
    return found | {HEAD: weight_of(model.head).nbytes}


def weights_read(names: Sequence[str], weights: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each product's weights as these kernels read them, by what the model has."""
    halves = 2 if _SCREENED in names else 1
    return {name: num_bytes // (halves if name == HEAD else 1) for name, num_bytes in weights.items()}


def places_of(names: Sequence[str], num_layers: int, order: Sequence[str] = _ORDER) -> list[str]:
    """The product that each kernel of a step makes, or "" for none; nothing if the step's order is another.

    Args:
        names: of all kernels of one step, in the order in which they began.
        num_layers: of the model.
        order: products of a layer.
    """
    places, turn, last = [], 0, ""
    for name in names:
        kind, place = kind_of(name), ""
        if kind == "attention":
            turn = order.index(OUT)
        elif _SECOND_HALF in name.lower():
            place = last
        elif kind == "products" or "vocabulary" in name:
            place = last = order[turn % len(order)]
            turn += 1
        places.append(place)
    if last:  # the last product has no attention behind it
        end = max(i for i, place in enumerate(places) if place == last and _SECOND_HALF not in names[i].lower())
        places[end:] = [HEAD if place else "" for place in places[end:]]
    counts = dict.fromkeys((*order, HEAD), 0)
    for name, place in zip(names, places, strict=True):
        if place and _SECOND_HALF not in name.lower():
            counts[place] += 1
    wanted = dict.fromkeys(order, num_layers) | {HEAD: 1}
    return places if counts == wanted else []
