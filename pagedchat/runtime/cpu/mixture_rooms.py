"""Memory for the mixtures of experts of a model, which have it one after the other."""

from collections.abc import Sequence

import torch

from pagedchat.ops.cpu.mixture import MixtureMemory
from pagedchat.runtime.cpu.layer_parts import FeedForwardParts, MixtureParts


class MixtureRooms:
    """For as many rows.

    Args:
        num_rows: at most.
        layers: the feed-forwards of a model; its mixtures are alike.
    """

    def __init__(self, num_rows: int, layers: Sequence[FeedForwardParts | MixtureParts]) -> None:
        mixture = next((parts for parts in layers if isinstance(parts, MixtureParts)), None)
        self._memory: MixtureMemory | None = None
        hidden = 0
        if mixture is not None:
            experts = mixture.experts
            hidden = experts.into.first.in_features
            self._memory = MixtureMemory(num_rows, experts.per_token, experts.into, experts.out)
        self.shared = torch.empty(num_rows, hidden if mixture is not None and mixture.shared is not None else 0)
        """What all rows get besides, float32 `[num_rows, hidden]`."""
        self.shared_logits = torch.empty(num_rows, 1)

    def of(self, parts: MixtureParts) -> MixtureMemory:
        """What there is for one of them.

        Raises:
            LookupError: it is not one of these.
        """
        if self._memory is None or self._memory.logits.shape[1] != parts.experts.into.num_experts:
            raise LookupError("no memory was taken for such a mixture")
        return self._memory
