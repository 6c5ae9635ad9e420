"""How well a model with its weights in some form foretells a text, in perplexity: the exponential of the mean
negative logarithm of the probability that each token had. Knows no options and no files of text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pagedchat.layers.quantized_linear import stored_parts
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.description import ModelDescription
from pagedchat.models.loader import load_weights
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.forms import Quantization
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.runtime.attention.dense import DenseAttention

_LOGITS_AT_ONCE = 1 << 24
"""Numbers of logits that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one form."""

    form: str
    """Of the weights, `"none"`, `"int8"` or `"int4"`, and of the cache, if that is not as rows are."""
    perplexity: float
    num_tokens: int
    """That were foretold."""
    weight_bytes: int
    """Of all weights but a table that stays in its file."""


def measure(
    description: ModelDescription,
    quantization: Quantization | None,
    token_ids: Sequence[int],
    window: int,
    cache: CacheKind | None = None,
) -> Quality:
    """Load the model, with its kernels where there are any, and read the text in windows, each for itself.

    Args:
        description: of a model of our own modules.
        quantization: of its weights; None leaves them as they are.
        token_ids: the text.
        window: tokens; of each window all but the first are foretold.
        cache: what keys and values are kept in; None: in the type of rows.
    """
    model: Any = load_weights(
        description, attention="", dtype=torch.float32, device=torch.device("cpu"), quantization=quantization
    )
    use_cpu_linears(model, available=0)
    starts = range(0, len(token_ids), window)
    parts = [part for part in (token_ids[start : start + window] for start in starts) if len(part) > 1]
    lost = sum(_lost(model, part, cache) for part in parts)
    num_tokens = sum(len(part) - 1 for part in parts)
    return Quality(form_name(quantization, cache), math.exp(lost / num_tokens), num_tokens, _weight_bytes(model))


def form_name(quantization: Quantization | None, cache: CacheKind | None) -> str:
    """`"int4"`, or `"none, fp8 cache"`."""
    weights = quantization or "none"
    return weights if cache is None else f"{weights}, {cache} cache"


@torch.inference_mode()
def _lost(model: NativeModel, token_ids: Sequence[int], cache: CacheKind | None) -> float:
    """The sum of the negative logarithms of the tokens' probabilities, the first token's aside."""
    ids = torch.tensor(token_ids)
    positions = torch.arange(len(ids) - 1)
    at_once = max(1, _LOGITS_AT_ONCE // len(model.head.weight))
    lost = 0.0
    for rows in torch.split(positions, at_once):
        logits = model(ids[:-1], positions, DenseAttention(cache), rows).float()
        lost += float(torch.nn.functional.cross_entropy(logits, ids[rows + 1], reduction="sum"))
    return lost


def _weight_bytes(model: NativeModel) -> int:
    table = getattr(model.embedding, "table", None)
    kept = (part for part in stored_parts(model) if part is not table or not isinstance(part, torch.Tensor))
    return sum(part.nbytes for part in kept) + sum(parameter.nbytes for parameter in model.parameters())
