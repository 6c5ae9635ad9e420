"""A decoder cut for several ranks: what one of them has, as a description like any other, or why that is not to be.

Knows the description alone. What of which tensor that is, is in `tensor_cuts`.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagedchat.errors import InvalidValueError
from pagedchat.layers.attention import Heads
from pagedchat.layers.experts import MixtureConfig
from pagedchat.models.decoder_config import DecoderConfig, Part
from pagedchat.models.description import ModelDescription


def cut_for_rank(description: ModelDescription, rank: int, size: int) -> ModelDescription:
    """A model's part for one of several ranks.

    Args:
        description: of the model.
        rank, size: which one of how many.

    Raises:
        InvalidValueError: so many ranks cannot have equal parts of it.
    """
    config = description.native
    objection = "modules of transformers run it" if config is None else objection_to_ranks(config, size)
    if objection or config is None:
        raise InvalidValueError(
            f"tensor_parallel_size is {size}, and {description.name} cannot be cut into so many parts: "
            f"{objection}.",
            "Choose another --tensor-parallel-size, or 1.",
        )
    part = part_of(config, rank, size)
    return replace(description, native=part, num_heads=part.heads.num_heads, num_kv_heads=part.heads.num_kv_heads)


def part_of(config: DecoderConfig, rank: int, size: int) -> DecoderConfig:
    """The description of one of `size` equal parts of a model, to which there is no objection."""
    heads, alibi = config.heads, config.alibi
    own = Heads(heads.num_heads // size, max(1, heads.num_kv_heads // size), heads.head_dim)
    if alibi is not None:
        alibi = replace(alibi, of_heads=heads.num_heads, first=rank * own.num_heads)
    # What is no multiple stays as it is: a factor of scores follows from head_dim, which is not cut.
    return replace(
        config,
        heads=own,
        ffn_size=config.ffn_size // size,
        mixture=None if config.mixture is None else _mixture_part(config.mixture, size),
        alibi=alibi,
        part=Part(rank, size, config),
    )


def _mixture_part(mixture: MixtureConfig, size: int) -> MixtureConfig:
    """All experts, each of them with a part of its middle: every rank has the same work, whoever is chosen."""
    shared = mixture.shared_width
    return replace(mixture, width=mixture.width // size, shared_width=None if shared is None else shared // size)


def objection_to_ranks(config: DecoderConfig, size: int) -> str:
    """Why a model is not cut for so many ranks, in words that go after a colon; empty if nothing is."""
    heads = config.heads
    if heads.num_heads % size:
        return f"it has {heads.num_heads} heads"
    if heads.num_kv_heads % size and size % heads.num_kv_heads:
        return f"it has {heads.num_kv_heads} KV heads"
    widths = {name: width for name, width in _middles(config) if width % size}
    return next((f"the middle of {name} is {width} wide" for name, width in widths.items()), "")


def _middles(config: DecoderConfig) -> Iterator[tuple[str, int]]:
    """Of what its layers have behind attention, by name."""
    mixture = config.mixture
    if mixture is None or not all(config.sparse):
        yield "its feed-forward", config.ffn_size
    if mixture is not None:
        yield "its experts", mixture.width
        yield "the expert that all tokens share", mixture.shared_width or 0
