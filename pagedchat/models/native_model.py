"""What a model of our own modules is: weights, and one forward pass over a flat batch. Knows no family."""

from abc import ABC, abstractmethod

import torch

from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.layers.paged import PagedAttention
from pagedchat.layers.weights import Places
from pagedchat.models.checkpoint_layout import Joined, Orders
from pagedchat.models.parts.tensor_cuts import Cuts


class NativeModel(Calculating, ABC):
    """A decoder-only language model.

    Nothing in its forward pass waits for the device, and no shape in it depends on what a tensor holds, so that a
    step can be captured in a CUDA graph.
    """

    tied: bool
    """The head is meant to be the token embedding."""
    embedding: Embedding
    head: Linear
    vocab_size: int
    """Logits of a token."""

    @abstractmethod
    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, paged: PagedAttention, last_rows: torch.Tensor
    ) -> torch.Tensor:
        """Logits of some tokens.

        Args:
            token_ids, positions: `[num_tokens]`, int64.
            paged: told which sequences they belong to.
            last_rows: `[num_sampled]`, int64: the tokens whose logits are wanted.

        Returns:
            `[num_sampled, vocab_size]`, of the model's type.
        """

    @abstractmethod
    def places(self) -> Places:
        """Where every tensor of a checkpoint goes; that of a tied head is left out."""

    @abstractmethod
    def orders(self) -> Orders:
        """In which order the rows of some of these tensors go to their places; of others than there are too."""

    @abstractmethod
    def cuts(self) -> Cuts:
        """What of some of these tensors, in that order, goes to their places: where this is a part of a model."""

    @abstractmethod
    def joined(self) -> Joined:
        """Tensors that a checkpoint may have instead of several that have places."""

    @property
    @abstractmethod
    def prefixes(self) -> tuple[str, ...]:
        """What names in a checkpoint may lack at their beginning."""

    @property
    @abstractmethod
    def embedding_name(self) -> str:
        """Of the token embedding's place."""

    @property
    @abstractmethod
    def head_name(self) -> str:
        """Of the head, whether or not it has a place."""
