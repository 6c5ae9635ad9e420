"""Quantised weights as the kernels read them: 16 rows side by side. By torch, once for each weight. Knows no
model.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.cpu.quantized_product import LONGEST_GROUP, PIECE, TILE
from pagedchat.ops.quantized.weight import ZERO_OF_4_BITS, QuantizedWeight

_GROUP_SIZES = (64, 32, 16)
"""What a group that is too long is cut into, each part with the same scale: inputs have a scale for each."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """`[out_features, in_features]` in tiles, see `quantized_product`."""

    bits: int
    group_size: int
    out_features: int
    in_features: int
    digits: torch.Tensor
    """uint8 `[tiles, in_features / 4, 16, 4]`; of 4 bits half as many, `[tiles, in_features / 8, 16, 4]`."""
    scales: torch.Tensor
    """float16 `[tiles, groups, 16]`."""
    minimums: torch.Tensor | None
    """The same; None: zeros."""
    zero: int
    """What digits are more than the numbers that they stand for."""

    @property
    def name(self) -> str:
        """Of its kernel."""
        return f"int{self.bits}" if self.minimums is None else f"int{self.bits}_min"

    def dequantized(self, rows: slice, dtype: torch.dtype) -> torch.Tensor:
        """Some rows, the first of them a multiple of 16, `[num_rows, in_features]`: float32, rounded once."""
        tiles = slice(rows.start // TILE, -(-rows.stop // TILE))
        digits = self.digits[tiles]
        if self.bits == 4:
            digits = torch.stack((digits & 15, digits >> 4), dim=2).flatten(1, 2)
        if self.bits == 8 and not self.zero:
            digits = digits.view(torch.int8)
        numbers = digits.permute(0, 2, 1, 3).flatten(2).float() - self.zero  # [tiles, 16, in_features]
        groups = numbers.view(*numbers.shape[:2], -1, self.group_size)
        groups *= self.scales[tiles].float().transpose(1, 2).unsqueeze(3)
        if self.minimums is not None:
            groups += self.minimums[tiles].float().transpose(1, 2).unsqueeze(3)
        dense: torch.Tensor = groups.flatten(2).flatten(0, 1)[: rows.stop - rows.start].to(dtype)
        return dense


def objection_to(weight: QuantizedWeight) -> str:
    """Why kernels do not take a weight, to go after "since"; empty where they do."""
    if weight.group_size % PIECE:
        return f"its groups of {weight.group_size} are no multiple of {PIECE}"
    return ""


def packed_weight(weight: QuantizedWeight, zero_of_8_bits: int) -> PackedWeight:
    """Rearrange a weight.

    Args:
        weight: to which there is no objection.
        zero_of_8_bits: 128 or 0, see `quantized_product.zero_of`; 4 bits have 8 everywhere.
    """
    tiles = -(-weight.out_features // TILE)
    missing = tiles * TILE - weight.out_features
    group_size = _group_size(weight.group_size)
    times = weight.group_size // group_size
    if weight.bits == 8:
        digits = weight.digits.view(torch.uint8)
        digits = digits ^ 0x80 if zero_of_8_bits else digits
        digits = _filled(digits, missing, zero_of_8_bits).view(tiles, TILE, -1, 4)
        digits = digits.permute(0, 2, 1, 3).contiguous()
    else:
        digits = _packed_halves(_filled(weight.digits, missing, ZERO_OF_4_BITS * 17), tiles)
    scales, minimums = (
        None if part is None else _by_tile(_filled(part, missing, 0), tiles, times)
        for part in (weight.scales, weight.minimums)
    )
    assert scales is not None  # noqa: S101 - only minimums may be missing
    zero = zero_of_8_bits if weight.bits == 8 else ZERO_OF_4_BITS
    return PackedWeight(
        weight.bits, group_size, weight.out_features, weight.in_features, digits, scales, minimums, zero
    )


def _group_size(wanted: int) -> int:
    if wanted <= LONGEST_GROUP:
        return wanted
    return next(size for size in _GROUP_SIZES if wanted % size == 0)


def _packed_halves(digits: torch.Tensor, tiles: int) -> torch.Tensor:
    """`[rows, in_features / 2]`, neighbours in a byte, -> `[tiles, in_features / 8, 16, 4]`, those four apart."""
    low, high = digits & 15, digits >> 4
    single = torch.stack((low, high), dim=-1).view(tiles, TILE, -1, 2, 4)  # [tiles, 16, eights, half, 4]
    both = single[:, :, :, 0] | (single[:, :, :, 1] << 4)
    return both.permute(0, 2, 1, 3).contiguous()


def _by_tile(part: torch.Tensor, tiles: int, times: int) -> torch.Tensor:
    spread = part.repeat_interleave(times, dim=1) if times > 1 else part
    return spread.view(tiles, TILE, -1).transpose(1, 2).contiguous()


def _filled(part: torch.Tensor, missing: int, value: int) -> torch.Tensor:
    """With rows added."""
    if not missing:
        return part.contiguous()
    return torch.cat((part, part.new_full((missing, part.shape[1]), value)))
