"""Our attention as transformers' models call it, registered under the name `ATTENTION_NAME`.

The batch is flattened to `[1, num_tokens]`. The backend does not travel through the model's arguments, which not
every family hands on to its attention: it is the one that `attending` names. No mask function is registered under
our name, and so transformers builds no mask at all (a registered one would cost a look at the positions, which on a
GPU waits for the device, in every forward).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch

from pagedchat.errors import ModelError
from pagedchat.layers.paged import PagedAttention
from pagedchat.runtime.attention.backend import CacheShape

ATTENTION_NAME = "pagedchat"

_NOT_DONE = {
    "sinks": "attention sinks under another name",
    "position_bias": "a learned position bias",
    "indices": "sparse attention",
    "block_indices": "sparse attention",
}
_HINT = "Choose a model with plain causal attention, such as OPT, GPT-2, Llama, Mistral, Qwen2 or GPT-NeoX."


class Attended(PagedAttention, Protocol):
    """Who keeps keys and values: a backend, or the attention of a captured step."""

    @property
    def shape(self) -> CacheShape:
        """Of the cache."""
        ...


_backend: ContextVar[Attended] = ContextVar("_backend")


def register() -> None:
    """Make `attn_implementation=ATTENTION_NAME` known to transformers."""
    from transformers import AttentionInterface  # noqa: PLC0415 - seconds of imports that our own models do without

    AttentionInterface.register(ATTENTION_NAME, attention_forward)


@contextmanager
def attending(backend: Attended) -> Iterator[None]:
    """Whose cache models attend to in this block, in this thread.

    Args:
        backend: told of this step's batch.
    """
    token = _backend.set(backend)
    try:
        yield
    finally:
        _backend.reset(token)


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **extras: Any,
) -> tuple[torch.Tensor, None]:
    """Write the new keys and values, then attend: to the cache of the backend that `attending` names.

    Args:
        module: the attention layer; its `layer_idx` says which layer's cache is meant.
        query: `[1, num_heads, num_tokens, head_dim]`.
        key, value: `[1, num_kv_heads, num_tokens, head_dim]`.
        attention_mask: none.
        scaling: factor of the scores; by default `head_dim ** -0.5`.
        sliding_window: a query sees this many tokens, itself included.
        softcap: bound of the scores.
        s_aux: `[num_heads]`: attention sinks, as gpt-oss has them.
        is_causal: false is refused.
        extras: what else the model passes; refused where it would change the result.

    Returns:
        `[1, num_tokens, num_heads, head_dim]`, and no attention weights.

    Raises:
        ModelError: the model asks for something that the paged attention does not do.
    """
    _refuse_what_is_not_done(attention_mask, is_causal, extras)
    rows = (
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
    )  # [num_tokens, heads, head_dim]
    layer_idx: int = module.layer_idx  # type: ignore[assignment]
    paged = _backend.get()
    _refuse_other_heads(paged, rows[1])
    paged.write(layer_idx, rows[1], rows[2])
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    sinks = None if s_aux is None else s_aux.float()
    output = paged.attend(layer_idx, *rows, scale=scale, sliding_window=sliding_window, cap=softcap, sinks=sinks)
    return output[None], None


def _refuse_what_is_not_done(mask: torch.Tensor | None, is_causal: bool | None, extras: dict[str, Any]) -> None:
    wanted = {words for name, words in _NOT_DONE.items() if extras.get(name) is not None}
    if mask is not None:
        wanted.add("an attention mask of its own")
    if is_causal is False:
        wanted.add("attention to later tokens")
    if wanted:
        raise ModelError(
            f"This model uses {' and '.join(sorted(wanted))}, which the paged attention does not do.",
            _HINT,
        )


def _refuse_other_heads(paged: Attended, key: torch.Tensor) -> None:
    _, num_heads, head_dim = key.shape
    shape = paged.shape
    if (num_heads, head_dim) != (shape.num_kv_heads, shape.head_dim):
        raise ModelError(
            f"This model makes keys of {num_heads} heads of {head_dim}, "
            f"where its config says {shape.num_kv_heads} of {shape.head_dim}.",
            _HINT,
        )
