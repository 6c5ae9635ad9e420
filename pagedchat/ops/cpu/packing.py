"""Quantised weights as the kernels read them: 16 rows side by side. By torch, once for each weight. Knows no
model.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.cpu.quantized_product import LONGEST_GROUP, PIECE, TILE
from pagedchat.ops.quantized.weight import ZERO_OF_4_BITS, QuantizedWeight

_GROUP_SIZES = (64, 32, 16)
"""What a group that is too long is cut into, each part with the same scale: inputs have a scale for each."""
_BYTES_AT_ONCE = 1 << 18
"""Of digits, that are rearranged at a time: what is in between stays small, and in a core's cache."""


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

    @property
    def nbytes(self) -> int:
        """Of all its tensors."""
        parts = (self.digits, self.scales, self.minimums)
        return sum(part.nbytes for part in parts if part is not None)

    def floats(self, rows: slice, dtype: torch.dtype) -> torch.Tensor:
        """Some rows, the first of them a multiple of 16, `[num_rows, in_features]`: float32, rounded once."""
        tiles = slice(rows.start // TILE, -(-rows.stop // TILE))
        minimums = None if self.minimums is None else self.minimums[tiles].transpose(1, 2)
        dense = self._meaning(self.digits[tiles].transpose(1, 2), self.scales[tiles].transpose(1, 2), minimums)
        return dense.flatten(0, 1)[: rows.stop - rows.start].to(dtype)

    def floats_at(self, indices: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Rows by their numbers, `[num_rows]` int64, in their order: `[num_rows, in_features]`."""
        tiles, lanes = indices // TILE, indices % TILE
        minimums = None if self.minimums is None else self.minimums[tiles, :, lanes]
        return self._meaning(self.digits[tiles, :, lanes], self.scales[tiles, :, lanes], minimums).to(dtype)

    def _meaning(self, digits: torch.Tensor, scales: torch.Tensor, minimums: torch.Tensor | None) -> torch.Tensor:
        """Of rows `[..., lines, 4]`, with `[..., groups]` scales and minimums: `[..., in_features]`, float32."""
        if self.bits == 4:
            digits = torch.stack((digits & 15, digits >> 4), dim=-2)
        elif not self.zero:
            digits = digits.contiguous().view(torch.int8)
        numbers = digits.reshape(*scales.shape[:-1], -1, self.group_size).float() - self.zero
        numbers *= scales.float().unsqueeze(-1)
        if minimums is not None:
            numbers += minimums.float().unsqueeze(-1)
        return numbers.flatten(-2)


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
    digits = torch.empty(tiles, weight.digits.shape[1] // 4, TILE, 4, dtype=torch.uint8, device="cpu")
    at_once = max(1, _BYTES_AT_ONCE // (TILE * weight.digits.shape[1]))
    for start in range(0, tiles, at_once):
        rows = weight.digits[start * TILE : (start + at_once) * TILE]
        digits[start : start + at_once] = _tiled(rows, weight.bits, zero_of_8_bits)
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


def _tiled(digits: torch.Tensor, bits: int, zero_of_8_bits: int) -> torch.Tensor:
    """Digits of some rows -> those of their tiles, with rows added to the last one, as a view."""
    missing = -len(digits) % TILE
    if bits == 4:
        return _packed_halves(_filled(digits, missing, ZERO_OF_4_BITS * 17))
    raw = digits.view(torch.uint8)
    filled = _filled(raw ^ 0x80 if zero_of_8_bits else raw, missing, zero_of_8_bits)
    return filled.view(-1, TILE, filled.shape[1] // 4, 4).transpose(1, 2)


def _packed_halves(digits: torch.Tensor) -> torch.Tensor:
    """`[rows, in_features / 2]`, neighbours in a byte, -> `[tiles, in_features / 8, 16, 4]`, those four apart."""
    low, high = digits & 15, digits >> 4
    single = torch.stack((low, high), dim=-1).view(-1, TILE, digits.shape[1] // 4, 2, 4)
    both = single[:, :, :, 0] | (single[:, :, :, 1] << 4)  # of [tiles, 16, eights, half, 4]
    return both.transpose(1, 2)


def _by_tile(part: torch.Tensor, tiles: int, times: int) -> torch.Tensor:
    spread = part.repeat_interleave(times, dim=1) if times > 1 else part
    return spread.view(tiles, TILE, -1).transpose(1, 2).contiguous()


def _filled(part: torch.Tensor, missing: int, value: int) -> torch.Tensor:
    """With rows added."""
    if not missing:
        return part.contiguous()
    return torch.cat((part, part.new_full((missing, part.shape[1]), value)))
