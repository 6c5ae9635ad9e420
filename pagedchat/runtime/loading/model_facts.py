"""What is known of a model before its weights are read: what it is like, how it reads text, in which types it and
its cache are kept. A part of one is described as a model like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from pagedchat.config import EngineConfig
from pagedchat.errors import InvalidValueError
from pagedchat.models.config import describe_model
from pagedchat.models.description import ModelDescription
from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.models.hub import find_model, find_tokenizer
from pagedchat.models.native import count_parameters
from pagedchat.models.parts.cutting import cut_for_rank
from pagedchat.models.tokenizer import LoadedTokenizer, load_tokenizer
from pagedchat.ops.ranks.company import Company
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.loading.precision import Precision, choose_precision

Downloading = Callable[[str, int, int], None]
"""Told of a file, and how many of its bytes are here."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model before its weights are read."""

    description: ModelDescription
    """Of what is here: a part, where there are several ranks."""
    tokenizer: LoadedTokenizer | None
    precision: Precision
    shape: CacheShape

    @property
    def num_parameters(self) -> int:
        """Of the whole model; where that is not known before they are read, 0."""
        native = self.description.native
        if native is None:
            return 0
        return count_parameters(native if native.part is None else native.part.whole)


def find_facts(
    config: EngineConfig, device: torch.device, company: Company | None, downloading: Downloading
) -> ModelFacts:
    """Find the model, and read all but its weights.

    Args:
        config: which model, in which types.
        device: where it is to run.
        company: all ranks, where this is to be a part of it.
        downloading: told of files that are not here yet.

    Raises:
        ModelError: it cannot be found or read.
        InvalidValueError: a setting that it does not allow.
    """
    description = _describe(config, company, downloading)
    tokenizer = _tokenizer(config, description, downloading)
    precision = choose_precision(config.model, device, description)
    return ModelFacts(description, tokenizer, precision, _shape(config, description, precision.dtype))


def _describe(config: EngineConfig, company: Company | None, downloading: Downloading) -> ModelDescription:
    wanted = config.model
    folder = find_model(wanted.model, downloading)
    described = _of_length(describe_model(wanted.model, folder, wanted.implementation), wanted.max_model_len)
    return described if company is None else cut_for_rank(described, company.rank, company.size)


def _tokenizer(
    config: EngineConfig, description: ModelDescription, downloading: Downloading
) -> LoadedTokenizer | None:
    wanted = config.model
    if wanted.skip_tokenizer_init:
        return None
    folder = find_tokenizer(wanted.tokenizer, downloading) if wanted.tokenizer else description.folder
    name = wanted.tokenizer or description.name
    in_file = folder.is_file()
    tokenizer = (
        load_gguf_tokenizer(name, folder) if in_file else load_tokenizer(name, folder, description.model_type)
    )
    tokenizer.check_fits(name, description.name, description.vocab_size)
    return tokenizer


def _shape(config: EngineConfig, description: ModelDescription, dtype: torch.dtype) -> CacheShape:
    kind = config.cache.kv_cache_dtype
    return CacheShape(
        num_layers=description.num_layers,
        block_size=config.cache.block_size,
        num_heads=description.num_heads,
        num_kv_heads=description.num_kv_heads,
        head_dim=description.head_dim,
        dtype=dtype,
        kind=None if kind == "auto" else kind,
    )


def _of_length(description: ModelDescription, wanted: int | None) -> ModelDescription:
    """The model with sequences of at most so many tokens.

    Raises:
        InvalidValueError: its positions do not allow so many.
    """
    if wanted is None:
        return description
    most = description.max_model_len
    if wanted > most:
        raise InvalidValueError(
            f"--max-model-len is {wanted}, but {description.name} has {most} positions.",
            "Leave it out, or lower it.",
        )
    return replace(description, max_model_len=wanted)
