"""A matrix of floats -> digits of 8 or 4 bits with a scale for each group of a row. Knows no file and no layer.

8 bits: the largest element of a group is digit 127. 4 bits: of some scales around the one that gives the largest
element the digit -8, each with the digits that follow from it, the one that a least squares fit leaves the smallest
error, and then that fit's scale. Of normally distributed weights in groups of 32 that leaves a root mean square
error of 8.1 % of theirs, where the largest element alone as digit -8 leaves 8.6 %, and as 7 or -7 9.7 %.
"""

from collections.abc import Callable

import torch

from pagedchat.ops.quantized.weight import ZERO_OF_4_BITS, QuantizedWeight

_LARGEST_8, _LARGEST_4 = 127, 7
_ELEMENTS_AT_ONCE = 1 << 18
"""Worked on together: with what is worked out beside them they stay in a core's cache."""
_TRIED = (-8.9, -8.3, -7.7, -7.1, -6.5, 7.4, 8.0)
"""Digits that the largest element of a group is given, one after the other, before it is rounded."""


def quantize(
    weight: torch.Tensor, bits: int, group_size: int, done: Callable[[torch.Tensor], None] = lambda _: None
) -> QuantizedWeight:
    """Bring a matrix into few bits, some rows at a time.

    Args:
        weight: `[out_features, in_features]`, of any floating type.
        bits: 8 or 4.
        group_size: elements of a row that have a scale in common; it divides `in_features`.
        done: told of rows that will not be looked at again.

    Raises:
        ValueError: a size that does not go with the others, or a number that is not finite or too large.
    """
    num_rows, width = weight.shape
    if bits not in (4, 8):
        raise ValueError(f"bits is {bits}, expected 4 or 8")
    if group_size < 1 or width % group_size:
        raise ValueError(f"group_size is {group_size}, which does not divide rows of {width}")
    dtype = torch.int8 if bits == 8 else torch.uint8
    digits = torch.empty(num_rows, width * bits // 8, dtype=dtype, device=weight.device)
    scales = torch.empty(num_rows, width // group_size, dtype=torch.float16, device=weight.device)
    at_once = max(1, _ELEMENTS_AT_ONCE // width)
    for start in range(0, num_rows, at_once):
        rows = slice(start, start + at_once)
        groups = weight[rows].float().reshape(-1, group_size)
        scale = (_scales_8 if bits == 8 else _scales_4)(groups)
        scales[rows] = scale.view(-1, width // group_size)
        found = _digits(groups, scale, bits).view(-1, width)
        digits[rows] = found if bits == 8 else pack(found)
        done(weight[rows])
    if not bool(torch.isfinite(scales).all()):
        raise ValueError("it has numbers that are not finite, or too large")
    return QuantizedWeight(bits, group_size, digits, scales)


def pack(digits: torch.Tensor) -> torch.Tensor:
    """Digits from -8 to 7, `[num_rows, width]` int8 -> two to a byte as `QuantizedWeight` has them."""
    stored = (digits + ZERO_OF_4_BITS).to(torch.uint8)
    return stored[:, ::2] | stored[:, 1::2] << 4


def _scales_8(groups: torch.Tensor) -> torch.Tensor:
    """`[num_groups, group_size]` -> `[num_groups]` float16."""
    return (groups.abs().amax(dim=1) / _LARGEST_8).half()


def _scales_4(groups: torch.Tensor) -> torch.Tensor:
    """The same; a scale may be negative, since there is a digit more below zero than above."""
    largest = groups.gather(1, groups.abs().argmax(dim=1, keepdim=True))
    inverse = torch.where(largest == 0, 0, 1 / largest)
    best = torch.full_like(largest, -1.0)
    scale = torch.zeros_like(largest)
    for digit in _TRIED:
        digits = torch.mul(groups, inverse * digit).round_().clamp_(-_LARGEST_4 - 1, _LARGEST_4)
        along = (digits * groups).sum(dim=1, keepdim=True)
        length = digits.square_().sum(dim=1, keepdim=True).clamp_(min=1)
        gain = along.square() / length  # what the error is smaller by than the group itself
        better = gain > best
        scale = torch.where(better, along / length, scale)
        best = torch.where(better, gain, best)
    # A number that is none has gained nothing.
    return torch.where(torch.isfinite(groups.sum(dim=1)), scale[:, 0], torch.nan).half()


def _digits(groups: torch.Tensor, scale: torch.Tensor, bits: int) -> torch.Tensor:
    """The nearest ones to what the scale, as it is stored, makes of them: `[num_groups, group_size]` int8."""
    inverse = 1 / scale.float().unsqueeze(1)
    lowest, highest = (-_LARGEST_8, _LARGEST_8) if bits == 8 else (-_LARGEST_4 - 1, _LARGEST_4)
    rounded = (groups * torch.where(inverse.isfinite(), inverse, 0)).round_()
    return rounded.clamp_(lowest, highest).nan_to_num_(0).to(torch.int8)
