"""What a step is made of, as values: kernels of ours, and what a library does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagedchat.jit.variant import Constant

HEAD = "vocabulary"
"""The part of a step that is the product with it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of ours."""

    part: str
    """What of a step it does."""
    kernel: str
    """Its file's name below `kernels/`, without `.cu`."""
    constants: Mapping[str, Constant] = field(default_factory=dict)
    """Those that its speed depends on."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a library does."""

    part: str
    library: str
    """`"cuBLAS"`, `"torch"` or both."""
    why: str
    """In words that go after "since"."""


Work = Launch | Fallback
