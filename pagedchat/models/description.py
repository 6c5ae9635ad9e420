"""What the rest of the program needs to know of a model, however its config was read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pagedchat.bounds import as_whole_numbers, refused
from pagedchat.models.native import NativeConfig, NativeDescription
from pagedchat.models.quantized.packing import Packing
from pagedchat.ops.common.choices import ScoreParts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What the rest of the runtime needs to know of a model."""

    name: str
    """As the user gave it."""
    folder: Path
    config: Any
    """The transformers config; None for a model of ours."""
    native: NativeConfig | None
    """What our own modules are built from; None where transformers runs the model."""
    architecture: str
    """Class name, such as `OPTForCausalLM`."""
    model_type: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    dtype: torch.dtype | None
    """Of the checkpoint, where it says so."""
    stored_as: str = ""
    """What the checkpoint calls the form of its weights, where that is one of few bits."""
    packing: Packing | None = None
    """How its products are stored, where safetensors files have them in few bits."""
    scores: ScoreParts
    """What attention does to its scores."""


def describe_native(
    name: str,
    folder: Path,
    described: NativeDescription,
    *,
    model_type: str,
    eos_token_ids: frozenset[int],
    dtype: torch.dtype | None,
    stored_as: str = "",
    packing: Packing | None = None,
) -> ModelDescription:
    """Of a model that our own modules run; what is not said in its config is given, see `ModelDescription`."""
    config = described.config
    return ModelDescription(
        name=name,
        folder=folder,
        config=None,
        native=config,
        architecture=described.architecture,
        model_type=model_type,
        num_layers=config.num_layers,
        num_heads=config.heads.num_heads,
        num_kv_heads=config.heads.num_kv_heads,
        head_dim=config.heads.head_dim,
        vocab_size=config.vocab_size,
        max_model_len=config.max_len,
        eos_token_ids=eos_token_ids,
        dtype=dtype,
        stored_as=stored_as,
        packing=packing,
        scores=ScoreParts(
            soft_cap=config.score_cap is not None, alibi=config.alibi is not None, sinks=config.sinks
        ),
    )


def as_token_ids(name: str, value: Any) -> frozenset[int]:
    """A token id, a list of them or None, as configs have it -> a set.

    Args:
        name: of the value, for messages.
        value: as it was read.

    Raises:
        InvalidValueError: it is something else.
    """
    token_ids = as_whole_numbers([] if value is None else value if isinstance(value, list) else [value])
    if token_ids is None:
        raise refused(name, value, "a token id or a list of them")
    return frozenset(token_ids)
