"""Quantised weights as the kernels read them: 16 rows side by side. By torch, once for each weight. Knows no
model.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.common.in_threads import in_threads
from pagedchat.ops.cpu.quantized_product import LONGEST_GROUP, PIECE, TILE
from pagedchat.ops.quantized.steps import ZERO_OF_4_BITS
from pagedchat.ops.quantized.weight import QuantizedWeight

_GROUP_SIZES = (64, 32, 16)
"""What a group that is too long is cut into, each part with the same scale: inputs have a scale for each."""
_UPPERMOST_BITS = -0x7F7F7F80
"""Of four bytes, as a number of 32 bits."""
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

    def write(self, start: int, weight: QuantizedWeight) -> None:
        """Put some rows in their places.

        Args:
            start: the first of them, a multiple of 16.
            weight: as many rows as fill tiles, or the last ones.
        """
        tiles = slice(start // TILE, -(-(start + weight.out_features) // TILE))
        words = self.digits.view(torch.int32).squeeze(-1)
        words[tiles] = _tiled(weight.digits, self.bits, self.zero)
        times = weight.group_size // self.group_size
        self.scales[tiles] = _by_tile(weight.scales, times)
        if self.minimums is not None and weight.minimums is not None:
            self.minimums[tiles] = _by_tile(weight.minimums, times)

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
    if not takes_groups_of(weight.group_size):
        return f"its groups of {weight.group_size} are no multiple of {PIECE}"
    return ""


def takes_groups_of(group_size: int) -> bool:
    """Whether kernels take weights of such groups."""
    return group_size % PIECE == 0


def packed_weight(weight: QuantizedWeight, zero_of_8_bits: int) -> PackedWeight:
    """Rearrange a weight.

    Args:
        weight: to which there is no objection.
        zero_of_8_bits: 128 or 0, see `quantized_product.zero_of`; 4 bits have 8 everywhere.
    """
    packed = empty_packed(
        weight.bits,
        weight.group_size,
        weight.out_features,
        weight.in_features,
        zero_of_8_bits,
        minimums=weight.minimums is not None,
    )
    at_once = max(1, _BYTES_AT_ONCE // (TILE * weight.digits.shape[1])) * TILE
    in_threads(
        range(0, weight.out_features, at_once),
        lambda start: packed.write(start, weight.rows(slice(start, start + at_once))),
    )
    return packed


def empty_packed(
    bits: int, group_size: int, out_features: int, in_features: int, zero_of_8_bits: int, *, minimums: bool
) -> PackedWeight:
    """One without values, for `PackedWeight.write`; the arguments are those of the weight that it is to be."""
    tiles, groups = -(-out_features // TILE), in_features // _group_size(group_size)
    digits = torch.empty(tiles, in_features * bits // 32, TILE, 4, dtype=torch.uint8, device="cpu")
    scales, lowest = (torch.empty(tiles, groups, TILE, dtype=torch.float16, device="cpu") for _ in range(2))
    zero = zero_of_8_bits if bits == 8 else ZERO_OF_4_BITS
    return PackedWeight(
        bits, _group_size(group_size), out_features, in_features, digits, scales, lowest if minimums else None, zero
    )


def _group_size(wanted: int) -> int:
    if wanted <= LONGEST_GROUP:
        return wanted
    return next(size for size in _GROUP_SIZES if wanted % size == 0)


def _tiled(digits: torch.Tensor, bits: int, zero_of_8_bits: int) -> torch.Tensor:
    """Digits of some rows -> those of their tiles, int32 `[tiles, lines, 16]`, as a view: four bytes lie together
    in either order. Rows are added to the last tile."""
    missing = -len(digits) % TILE
    empty = ZERO_OF_4_BITS * 17 if bits == 4 else 0
    words = _filled(digits.view(torch.uint8), missing, empty).view(torch.int32)
    if bits == 4:
        words = _apart(words)
    elif zero_of_8_bits:
        words = words ^ _UPPERMOST_BITS
    return words.view(-1, TILE, words.shape[1]).transpose(1, 2)


def _apart(words: torch.Tensor) -> torch.Tensor:
    """Of eight digits of 4 bits, in their order, the first four and the last four become each other's neighbours:
    first the two bytes in the middle change places, then in either half of a word the two digits there."""
    for distance, places in ((8, 0x0000FF00), (4, 0x00F000F0)):
        changed = (words ^ (words >> distance)) & places
        words = words ^ changed ^ (changed << distance)
    return words


def _by_tile(part: torch.Tensor, times: int) -> torch.Tensor:
    """Scales of some rows -> those of their tiles, `[tiles, groups, 16]`, as a view."""
    spread = part.repeat_interleave(times, dim=1) if times > 1 else part
    filled = _filled(spread, -len(part) % TILE, 0)
    return filled.view(-1, TILE, filled.shape[1]).transpose(1, 2)


def _filled(part: torch.Tensor, missing: int, value: int) -> torch.Tensor:
    """With rows added."""
    if not missing:
        return part.contiguous()
    return torch.cat((part, part.new_full((missing, part.shape[1]), value)))
