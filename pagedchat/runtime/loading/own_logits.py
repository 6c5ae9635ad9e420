"""What a model says without any cache: the whole text in one forward pass, each token attending to those before it.

The paged attention is held against this.
"""

from typing import Any

import torch

from pagedchat.models.native_model import NativeModel
from pagedchat.ops.attention.dense_attention import dense_attention
from pagedchat.runtime.attention.interface import ATTENTION_NAME


@torch.inference_mode()
def own_logits(model: torch.nn.Module, token_ids: list[int], device: torch.device) -> torch.Tensor:
    """Logits after the last token: `[vocab_size]`, float32.

    Args:
        model: of our own modules, or of transformers with our attention.
        token_ids: the text.
        device: where the model is.
    """
    ids = torch.tensor(token_ids, device=device)
    return (_native(model, ids) if isinstance(model, NativeModel) else _transformers(model, ids)).float()


def _native(model: NativeModel, ids: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(len(ids), device=ids.device)
    logits: torch.Tensor = model(ids, positions, DenseAttention(), positions[-1:])
    return logits[0]


def _transformers(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Through the attention that the model brings."""
    model.set_attn_implementation("eager")
    try:
        logits: torch.Tensor = model(input_ids=ids[None], use_cache=False).logits[0, -1]
        return logits
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


class DenseAttention:
    """`PagedAttention` for one sequence that is there in whole: keeps nothing, needs no pages."""

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Nothing is to be kept: `attend` is given the same K and V."""

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
    ) -> torch.Tensor:
        """See `PagedAttention`."""
        heads_first = [rows.transpose(0, 1)[None] for rows in (query, key, value)]
        mask = _causal_mask(query, sliding_window)
        attended = dense_attention(*heads_first, scale=scale, mask=mask, cap=cap)
        return attended[0].transpose(0, 1)


def _causal_mask(query: torch.Tensor, sliding_window: int | None) -> torch.Tensor:
    """`[num_tokens, num_tokens]`, to be added to the scores."""
    num_tokens = query.shape[0]
    seen = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=query.device).tril()
    if sliding_window is not None:
        seen &= seen.new_ones(seen.shape).triu(1 - sliding_window)
    return torch.zeros(seen.shape, dtype=query.dtype, device=query.device).masked_fill(~seen, float("-inf"))
