"""One kernel file with values for its compile-time constants: what is compiled, cached and loaded as a unit."""

from dataclasses import dataclass
from typing import Self

Constant = str | int | bool
"""The value of a `-D` constant; booleans become 1 and 0."""


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """Hashable, and equal however the constants were ordered when they were given."""

    stem: str
    """The file's name without its `.cu`; it is the only one of this name below `kernels/`."""
    defines: tuple[tuple[str, str], ...] = ()
    """`(name, value)` in the order of the names."""

    @classmethod
    def of(cls, stem: str, **constants: Constant) -> Self:
        """`Variant.of("copy_blocks", ELEMENT="float16", HEAD_SIZE=64)`."""
        return cls(stem, tuple(sorted((name, _text(value)) for name, value in constants.items())))

    @property
    def constants(self) -> dict[str, str]:
        """The constants by name."""
        return dict(self.defines)

    def __str__(self) -> str:
        """For people: `"copy_blocks ELEMENT=float16 HEAD_SIZE=64"`."""
        return " ".join([self.stem, *(f"{name}={value}" for name, value in self.defines)])


def _text(value: Constant) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
