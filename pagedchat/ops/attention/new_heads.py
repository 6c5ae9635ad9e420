"""What decode attention does to the newest tokens' heads before it puts them into the cache. Launches nothing."""

from dataclasses import dataclass

import torch

from pagedchat.ops.attention.decode_plan import TURNED_MULTIPLE
from pagedchat.ops.common.launch import address
from pagedchat.ops.common.norm import HeadNorms

_RMS_NORM = 2
"""The kind of norm that the kernel has, by `Norm.constant`."""


@dataclass(frozen=True, slots=True)
class NewHeads:
    """Queries and keys are normed, then turned, as `ops.cache.heads_to_cache` does it in a launch before.

    For heads to which `objection` has none.
    """

    norms: HeadNorms | None = None
    """Of each head by itself."""
    rotations: torch.Tensor | None = None
    """`[max_positions, head_size / 2, 2]`, float32: cosine and sine of every position's angles."""

    @property
    def mode(self) -> int:
        """The `WRITES_NEW` constant of the kernel."""
        return 1 if self.rotations is None else 2 if self.norms is None else 3

    @property
    def arguments(self) -> tuple[int, int, int]:
        """Addresses: rotations, the weights of the norms of queries and keys."""
        query, key = (None, None) if self.norms is None else (self.norms.query.weight, self.norms.key.weight)
        return address(self.rotations), address(query), address(key)

    @property
    def epsilons(self) -> tuple[float, float]:
        """Of the norms of queries and keys."""
        return (0.0, 0.0) if self.norms is None else (self.norms.query.eps, self.norms.key.eps)

    def objection(self, head_size: int) -> str:
        """What keeps the kernel from it; empty if nothing does."""
        if self.norms is not None:
            if self.rotations is None:
                return "heads are normed and not turned"
            if self.norms.constant(head_size) != 1 or self.norms.query.constant != _RMS_NORM:
                return "another norm than an RMS norm of each head"
        if self.rotations is None:
            return ""
        whole = 2 * self.rotations.shape[1] == head_size and head_size % TURNED_MULTIPLE == 0
        return "" if whole else f"heads of {head_size}, of which {2 * self.rotations.shape[1]} are turned"
