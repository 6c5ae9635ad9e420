"""A model as kernels of many layers see it, which are compiled for its numbers."""

from dataclasses import dataclass
from typing import Any, Self

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.common.model_sizes import ModelSizes


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """Every number is a constant of the compiled variant."""

    hidden: int
    middle: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    block_size: int

    @classmethod
    def of(cls, sizes: ModelSizes, block_size: int, **more: Any) -> Self:
        """Of a model and the blocks of its cache, with what else a kernel wants to know."""
        return cls(
            hidden=sizes.hidden,
            middle=sizes.middle,
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_size=sizes.head_dim,
            block_size=block_size,
            **more,
        )

    @property
    def group_size(self) -> int:
        """Query heads of a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def attended(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_size

    @property
    def qkv_rows(self) -> int:
        """Rows of the product that makes queries, keys and values."""
        return self.attended + 2 * self.num_kv_heads * self.head_size

    @property
    def sizes_as_constants(self) -> Constants:
        """Those that every such kernel asks for."""
        return {
            "HIDDEN": self.hidden,
            "MIDDLE": self.middle,
            "NUM_HEADS": self.num_heads,
            "GROUP_SIZE": self.group_size,
            "HEAD_SIZE": self.head_size,
            "BLOCK_SIZE": self.block_size,
        }
