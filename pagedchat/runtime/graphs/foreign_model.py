"""A model of transformers as captured steps take models: a flat batch in, logits of some rows out.

Its modules do what they like. What waits for the device, or takes its shapes from what a tensor holds, cannot be
captured, and who tries is told so; what gives other results when it is captured, the self-check finds.
"""

import inspect
from typing import Any

import torch

from pagedchat.errors import ModelError, PagedChatError, first_line
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.transformers_attention import Attended, attending

OBJECTION = "transformers' own modules run it"
"""What all faster steps have against such a model, in words that go after "since"."""


class ForeignModel(torch.nn.Module):
    """See the page.

    Args:
        model: a causal language model, in evaluation mode, whose attention is ours.

    Raises:
        ModelError: nothing says how many logits it makes.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        head = model.get_output_embeddings()
        if not isinstance(getattr(head, "weight", None), torch.Tensor):
            raise ModelError("It does not say which of its modules makes logits.")
        self.model = model
        self.head = head
        self.vocab_size = len(head.weight)
        self._selects_rows = "logits_to_keep" in inspect.signature(model.forward).parameters

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, paged: Attended, last_rows: torch.Tensor
    ) -> torch.Tensor:
        """See `NativeModel.forward`; integers may be int32.

        Raises:
            PagedChatError, RuntimeError: it does not run like this.
        """
        rows = last_rows.long()
        select = {"logits_to_keep": rows} if self._selects_rows else {}
        ids, places = token_ids.long()[None], positions.long()[None]
        try:
            with attending(paged):
                output = self.model(input_ids=ids, position_ids=places, use_cache=False, **select)
        except (PagedChatError, RuntimeError):
            raise
        except Exception as error:  # of many kinds: its modules are strangers
            raise ModelError(f"{type(error).__name__}: {first_line(error)}") from error
        logits: torch.Tensor = output.logits[0]
        logits = logits if select else logits[rows]
        if logits.shape[1] != len(self.head.weight):
            raise ModelError(f"It makes {logits.shape[1]} logits of {len(self.head.weight)} rows of its head.")
        return logits


StepModel = NativeModel | ForeignModel
"""What steps can be made of."""


def foreign_sizes(model: ForeignModel, shape: CacheShape) -> ModelSizes:
    """What is known of its sizes; of the rest nobody asks, since no step but that of modules has a use for it.

    Args:
        model: whose.
        shape: of its cache.
    """
    vocab_size, width = model.head.weight.shape
    return ModelSizes(
        num_layers=shape.num_layers,
        hidden=width,
        middle=0,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=vocab_size,
        norm="layer",
        gated=False,
        activation="none",
        rotary=False,
    )
