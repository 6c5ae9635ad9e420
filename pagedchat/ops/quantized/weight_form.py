"""The forms in which kernels take a weight: 16 bits, or few bits with scales. Arithmetic only."""

from dataclasses import dataclass
from typing import Literal

from pagedchat.jit.kernel_file import Constants

Kind = Literal["whole", "int8", "fp8", "int4"]

_KINDS: dict[Kind, tuple[int, int]] = {"whole": (0, 16), "int8": (1, 8), "fp8": (2, 8), "int4": (3, 4)}
"""Numbers and bits in kernels/quantized/weight_kinds.cuh."""
NUMBERS = {kind: number for kind, (number, _) in _KINDS.items()}
"""The `WEIGHT_KIND` constant of kernels."""
FEW_BITS: tuple[Kind, ...] = ("int8", "fp8", "int4")


@dataclass(frozen=True, slots=True)
class WeightForm:
    """Of all elements of a weight."""

    kind: Kind = "whole"
    """Whole weights have the type of the input."""
    scale_group: int = 0
    """Elements of a row that have a scale in common; 0: all of it."""
    has_minimums: bool = False
    """Whether each group has a minimum besides."""

    @property
    def bits(self) -> int:
        """Of an element."""
        return _KINDS[self.kind][1]

    @property
    def few(self) -> bool:
        """Whether it has fewer bits than the input."""
        return self.kind != "whole"

    @property
    def scales(self) -> int:
        """The `SCALES` constant of kernels that take groups as an argument: 0 a scale a row, 1 one for each group,
        2 with minimums."""
        return 2 if self.has_minimums else int(self.scale_group > 0)

    def num_groups(self, in_features: int) -> int:
        """Of a row."""
        return in_features // self.scale_group if self.scale_group else 1

    @property
    def constants(self) -> Constants:
        """For the compiler; none of whole weights."""
        if not self.few:
            return {}
        return {
            "WEIGHT_KIND": NUMBERS[self.kind],
            "SCALE_GROUP": self.scale_group,
            "MINIMUMS": int(self.has_minimums),
        }

    def __str__(self) -> str:
        if not self.few:
            return "16 bits"
        groups = f"groups of {self.scale_group}" if self.scale_group else "a scale a row"
        return f"{self.kind}, {groups}{' with minimums' if self.has_minimums else ''}"


WHOLE = WeightForm()
