"""A matrix in 8 or 4 bits, integers or 8-bit floats, with a scale for each group of a row: the one form that every
quantised weight is brought into, whoever quantised it. Knows no file and no kernel.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.quantized.steps import ZERO_OF_4_BITS
from pagedchat.ops.quantized.weight_form import WHOLE, Kind, WeightForm

FP8 = torch.float8_e4m3fn
_DIGITS: dict[int, tuple[torch.dtype, ...]] = {8: (torch.int8, FP8), 4: (torch.uint8,)}
_KINDS: dict[torch.dtype, Kind] = {torch.int8: "int8", FP8: "fp8", torch.uint8: "int4"}


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """`[out_features, in_features]`; an element is its digit times the scale of its group, plus the minimum.

    Raises:
        ValueError: shapes, types or sizes that do not go together; it names the part.
    """

    bits: int
    """8 or 4."""
    group_size: int
    """Elements of a row that have a scale in common; it divides `in_features`."""
    digits: torch.Tensor
    """8 bits: int8 or float8_e4m3fn `[out_features, in_features]`. 4 bits: uint8 `[out_features, in_features / 2]`;
    of two elements the first is in the lower half of a byte; each is `ZERO_OF_4_BITS` more than it means."""
    scales: torch.Tensor
    """float16 `[out_features, in_features / group_size]`."""
    minimums: torch.Tensor | None = None
    """float16, as `scales`; None: zeros."""

    def __post_init__(self) -> None:
        wanted = _DIGITS.get(self.bits)
        if wanted is None:
            raise ValueError(f"bits is {self.bits}, expected 4 or 8")
        if self.digits.dim() != 2 or self.digits.dtype not in wanted:
            names = " or ".join(map(str, wanted))
            raise ValueError(
                f"digits is {self.digits.dim()}-dimensional {self.digits.dtype}, expected 2 and {names}"
            )
        if self.group_size < 1 or self.in_features % self.group_size:
            raise ValueError(f"group_size is {self.group_size}, which does not divide rows of {self.in_features}")
        for name, part in (("scales", self.scales), ("minimums", self.minimums)):
            if part is None:
                continue
            check_shape(name, part, self.out_features, self.in_features // self.group_size)
            if part.dtype != torch.float16:
                raise ValueError(f"{name} is {part.dtype}, expected torch.float16")

    @property
    def out_features(self) -> int:
        """Rows."""
        return len(self.digits)

    @property
    def in_features(self) -> int:
        """Elements of a row."""
        return self.digits.shape[1] * (8 // self.bits)

    @property
    def shape(self) -> torch.Size:
        """Rows and elements of a row."""
        return torch.Size((self.out_features, self.in_features))

    def __len__(self) -> int:
        return self.out_features

    @property
    def device(self) -> torch.device:
        """Where all its tensors are."""
        return self.digits.device

    @property
    def form(self) -> WeightForm:
        """What kernels go by."""
        group = 0 if self.group_size == self.in_features else self.group_size
        return WeightForm(_KINDS[self.digits.dtype], group, self.minimums is not None)

    @property
    def nbytes(self) -> int:
        """Of all its tensors."""
        parts = (self.digits, self.scales, self.minimums)
        return sum(part.numel() * part.element_size() for part in parts if part is not None)

    def rows(self, chosen: slice | torch.Tensor) -> "QuantizedWeight":
        """Some of its rows: views for a slice; a copy for their numbers, int64, in their order."""
        minimums = None if self.minimums is None else self.minimums[chosen]
        return QuantizedWeight(self.bits, self.group_size, self.digits[chosen], self.scales[chosen], minimums)

    def columns(self, start: int, stop: int) -> "QuantizedWeight":
        """Some neighbouring elements of each row, views.

        Raises:
            ValueError: they are no whole groups, of rows that have several.
        """
        group = self.group_size
        if group == self.in_features:  # one scale a row, whatever is left of it
            scales, minimums, group = self.scales, self.minimums, stop - start
        elif start % group or stop % group:
            raise ValueError(f"elements {start} to {stop} are no whole groups of {group}")
        else:
            groups = slice(start // group, stop // group)
            scales, minimums = self.scales[:, groups], None if self.minimums is None else self.minimums[:, groups]
        packed = 8 // self.bits
        digits = self.digits[:, start // packed : stop // packed]
        return QuantizedWeight(self.bits, group, digits, scales, minimums)

    def of_nothing(self) -> "QuantizedWeight":
        """As many zeros, in the same form."""
        minimums = None if self.minimums is None else torch.zeros_like(self.minimums)
        return QuantizedWeight(
            self.bits, self.group_size, torch.zeros_like(self.digits), torch.zeros_like(self.scales), minimums
        )

    def to(self, device: torch.device) -> "QuantizedWeight":
        """On a device, each of its tensors contiguous."""
        parts = (self.digits, self.scales, self.minimums)
        moved = [None if part is None else part.to(device).contiguous() for part in parts]
        digits, scales, minimums = moved
        assert digits is not None and scales is not None  # noqa: S101, PT018 - as they were
        return QuantizedWeight(self.bits, self.group_size, digits, scales, minimums)

    def integers(self) -> torch.Tensor:
        """The digits as int8 `[out_features, in_features]`; those that are 8-bit floats as they are."""
        if self.bits == 8:
            return self.digits
        halves = torch.stack((self.digits & 15, self.digits >> 4), dim=-1).flatten(1)
        return halves.to(torch.int8) - ZERO_OF_4_BITS

    def floats(self, rows: slice, dtype: torch.dtype) -> torch.Tensor:
        """Some rows, as `dequantized` gives all of them."""
        return self.rows(rows).dequantized(dtype)

    def dequantized(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """All elements, `[out_features, in_features]`, worked out in float32 and rounded once."""
        groups = self.integers().float().view(
            self.out_features, -1, self.group_size
        ) * self.scales.float().unsqueeze(-1)
        if self.minimums is not None:
            groups += self.minimums.float().unsqueeze(-1)
        return groups.flatten(1).to(dtype)


Weight = torch.Tensor | QuantizedWeight
"""A matrix, `[out_features, in_features]`."""


def form_of(weight: Weight) -> WeightForm:
    """What kernels go by."""
    return weight.form if isinstance(weight, QuantizedWeight) else WHOLE


def check_weight(name: str, weight: Weight, rows: torch.Tensor) -> None:
    """Refuse a weight that rows of this type, on their device, are not multiplied by.

    Raises:
        ValueError: it is of another type, or elsewhere, or its parts are not contiguous.
    """
    if isinstance(weight, QuantizedWeight):
        if weight.device != rows.device:
            raise ValueError(f"{name} is on {weight.device}, expected {rows.device}")
        parts = [part for part in (weight.digits, weight.scales, weight.minimums) if part is not None]
    else:
        check_same_type(name, weight, rows)
        parts = [weight]
    if not all(part.is_contiguous() for part in parts):
        raise ValueError(f"{name} is not contiguous")


def stacked(weights: list[QuantizedWeight]) -> QuantizedWeight:
    """Several of one form, one below the other.

    Raises:
        ValueError: they differ in bits, groups, width or in whether they have minimums.
    """
    first = weights[0]
    if len(weights) == 1:
        return first
    if len({form(weight) for weight in weights}) > 1:
        raise ValueError(f"weights are of the forms {[form(weight) for weight in weights]}, expected one")
    given = [weight.minimums for weight in weights if weight.minimums is not None]
    return QuantizedWeight(
        first.bits,
        first.group_size,
        torch.cat([weight.digits for weight in weights]),
        torch.cat([weight.scales for weight in weights]),
        torch.cat(given) if given else None,
    )


def form(weight: QuantizedWeight) -> tuple[str, int, int, bool]:
    """What those have in common that can be stacked: kind, group size, width, and whether there are minimums."""
    return _KINDS[weight.digits.dtype], weight.group_size, weight.in_features, weight.minimums is not None
