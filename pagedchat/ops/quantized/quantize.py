"""A matrix of floats -> digits of 8 or 4 bits with a scale for each group of a row. Knows no file and no layer.

8 bits: the largest element of a group is digit 127 or -127; as floats, 448 or -448, the largest that there is.
4 bits: 16 steps from a minimum on, first over all of
the group and then over less of it, each time moved to where a least squares fit to the digits puts them, twice; the
steps that leave the smallest error are taken. Of normally distributed weights in groups of 32 that leaves a root
mean square error of 7.2 % of theirs. Steps from the least to the largest element leave 7.8 %, and steps around
zero, without a minimum, 8.1 % at best and 8.6 % by the largest element.
"""

from collections.abc import Callable

import torch

from pagedchat.ops.common.in_threads import in_threads
from pagedchat.ops.quantized.steps import FITS, SHARES, STEPS_4, ZERO_OF_4_BITS
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight

ROWS_TOGETHER = 16
"""Rows that some orders have side by side: who takes rows is given a multiple of it, but for the last ones."""

_LARGEST_8 = 127
_LARGEST_FP8 = 448
_ELEMENTS_AT_ONCE, _ON_GPU = 1 << 18, 1 << 24
"""Worked on together: with what is worked out beside them they stay in a core's cache; a GPU wants more of them."""

Take = Callable[[int, QuantizedWeight], None]
"""Is given rows in few bits, and the number of the first of them; in several threads, in any order."""


FourBits = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Groups, float32 `[num_groups, group_size]` -> scales and minimums, float16 `[num_groups, 1]`, and digits as
`QuantizedWeight` has them; in any thread."""


def quantize(
    weight: torch.Tensor,
    bits: int,
    group_size: int,
    done: Callable[[torch.Tensor], None] = lambda _: None,
    *,
    floats: bool = False,
    four_bits: FourBits | None = None,
) -> QuantizedWeight:
    """Bring a matrix into few bits, some rows at a time.

    Args:
        weight: `[out_features, in_features]`, of any floating type.
        bits: 8 or 4.
        group_size: elements of a row that have a scale in common; it divides `in_features`.
        done: told of rows that will not be looked at again.
        floats: 8-bit floats (e4m3) instead of integers.
        four_bits: what brings groups into 4 bits; None: torch.

    Raises:
        ValueError: a size that does not go with the others, or a number that is not finite or too large.
    """
    num_rows, width = weight.shape
    _check(bits, group_size, width, floats=floats)
    dtype = FP8 if floats else torch.int8 if bits == 8 else torch.uint8
    digits = torch.empty(num_rows, width * bits // 8, dtype=dtype, device=weight.device)
    scales = torch.empty(num_rows, width // group_size, dtype=torch.float16, device=weight.device)
    minimums = torch.empty_like(scales) if bits == 4 else None

    def take(start: int, few: QuantizedWeight) -> None:
        rows = slice(start, start + few.out_features)
        digits[rows], scales[rows] = few.digits, few.scales
        if minimums is not None and few.minimums is not None:
            minimums[rows] = few.minimums

    quantize_rows(weight, bits, group_size, take, done, floats=floats, four_bits=four_bits)
    return QuantizedWeight(bits, group_size, digits, scales, minimums)


def quantize_rows(
    weight: torch.Tensor,
    bits: int,
    group_size: int,
    take: Take,
    done: Callable[[torch.Tensor], None] = lambda _: None,
    *,
    floats: bool = False,
    four_bits: FourBits | None = None,
) -> None:
    """The same for who wants the rows elsewhere than in a matrix: some at a time, from a multiple of 16 on.

    Args:
        weight, bits, group_size, done, floats, four_bits: as of `quantize`.
        take: is given them.

    Raises:
        ValueError: as `quantize` does.
    """
    num_rows, width = weight.shape
    _check(bits, group_size, width, floats=floats)
    most = _ON_GPU if weight.is_cuda else _ELEMENTS_AT_ONCE
    at_once = max(1, most // (width * ROWS_TOGETHER)) * ROWS_TOGETHER

    def bring(start: int) -> None:
        rows = weight[start : start + at_once]
        few = _few_bits(
            rows.float().reshape(-1, group_size), len(rows), bits, four_bits or _in_4_bits, floats=floats
        )
        if not all(bool(torch.isfinite(part).all()) for part in (few.scales, few.minimums) if part is not None):
            raise ValueError("it has numbers that are not finite, or too large")
        take(start, few)

    starts = range(0, num_rows, at_once)
    if weight.is_cuda:
        for start in starts:
            bring(start)
            done(weight[start : start + at_once])
    else:
        in_threads(starts, bring, lambda start: done(weight[start : start + at_once]))


def _check(bits: int, group_size: int, width: int, *, floats: bool) -> None:
    if bits not in (4, 8):
        raise ValueError(f"bits is {bits}, expected 4 or 8")
    if floats and bits != 8:
        raise ValueError(f"floats of {bits} bits, expected 8")
    if group_size < 1 or width % group_size:
        raise ValueError(f"group_size is {group_size}, which does not divide rows of {width}")


def _few_bits(
    groups: torch.Tensor, num_rows: int, bits: int, four_bits: FourBits, *, floats: bool
) -> QuantizedWeight:
    """`[num_rows * groups of a row, group_size]`."""
    group_size = groups.shape[1]
    if bits == 8:
        scale, found = _in_8_bit_floats(groups) if floats else _in_8_bits(groups)
        return QuantizedWeight(8, group_size, found.view(num_rows, -1), scale.view(num_rows, -1))
    scale, minimum, digits = (part.view(num_rows, -1) for part in four_bits(groups))
    return QuantizedWeight(4, group_size, digits, scale, minimum)


def pack(digits: torch.Tensor) -> torch.Tensor:
    """Digits from -8 to 7, `[num_rows, width]` int8 -> two to a byte as `QuantizedWeight` has them."""
    stored = (digits + ZERO_OF_4_BITS).to(torch.uint8)
    return stored[:, ::2] | stored[:, 1::2] << 4


def _in_8_bits(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`[num_groups, group_size]` -> scales `[num_groups, 1]` float16, and digits."""
    scale = (groups.abs().amax(dim=1, keepdim=True) / _LARGEST_8).half()
    return scale, _nearest(groups, scale, -_LARGEST_8, _LARGEST_8)


def _in_8_bit_floats(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, digits as floats."""
    scale = (groups.abs().amax(dim=1, keepdim=True) / _LARGEST_FP8).half()
    scaled = (groups * _inverse(scale.float())).nan_to_num_(0)
    return scale, scaled.clamp_(-_LARGEST_FP8, _LARGEST_FP8).to(FP8)


def _in_4_bits(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `FourBits`.

    The minimum is added to digits from -8 on: it is what digit 0 means.
    """
    low, high = groups.amin(dim=1, keepdim=True), groups.amax(dim=1, keepdim=True)
    middle, half = (low + high) / 2, (high - low) / 2
    best = torch.full_like(low, -1.0)
    scale, lowest = torch.zeros_like(low), low
    for share in SHARES:
        step, start, gain = _fitted(groups, 2 * share / STEPS_4 * half, middle - share * half)
        better = gain > best
        scale, lowest = torch.where(better, step, scale), torch.where(better, start, lowest)
        best = torch.where(better, gain, best)
    for _ in range(FITS):
        scale, lowest, _ = _fitted(groups, scale, lowest)
    scale, minimum = scale.half(), (lowest + ZERO_OF_4_BITS * scale).half()
    minimum = torch.where(groups.sum(dim=1, keepdim=True).isfinite(), minimum, torch.nan)
    digits = _nearest(groups - minimum.float(), scale, -ZERO_OF_4_BITS, STEPS_4 - ZERO_OF_4_BITS)
    return scale, minimum, pack(digits)


def _fitted(
    groups: torch.Tensor, step: torch.Tensor, start: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Steps moved by least squares to the digits that they give, and how much smaller than the squares of the group
    the squares of its errors are then; `[num_groups, 1]` each."""
    digits = (groups - start).mul_(_inverse(step)).round_().clamp_(0, STEPS_4)
    count, total = groups.shape[1], groups.sum(dim=1, keepdim=True)
    of_digits = digits.sum(dim=1, keepdim=True)
    along = torch.linalg.vecdot(digits, groups).unsqueeze(1)
    spread = torch.linalg.vecdot(digits, digits).unsqueeze(1) * count - of_digits.square()
    step = torch.where(spread > 0, (along * count - of_digits * total) / spread, 0)
    start = (total - step * of_digits) / count
    return step, start, step * along + start * total


def _nearest(groups: torch.Tensor, scale: torch.Tensor, lowest: int, highest: int) -> torch.Tensor:
    """Digits by a scale as it is stored, int8."""
    rounded = (groups * _inverse(scale.float())).round_()
    return rounded.clamp_(lowest, highest).nan_to_num_(0).to(torch.int8)


def _inverse(scale: torch.Tensor) -> torch.Tensor:
    """One by it; zero of what has none."""
    inverse = 1 / scale
    return torch.where(inverse.isfinite(), inverse, 0)
