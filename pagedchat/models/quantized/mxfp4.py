"""Weights in MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of four bits and the power of two that they are
multiplied by. They become what they mean, exactly in bfloat16 and float32, or weights of 8 bits that mean the same.
Knows no model.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from pagedchat.layers.quantized_linear import Stored
from pagedchat.models.parts.cut import Cut
from pagedchat.models.quantized.stacked import Stacked
from pagedchat.ops.quantized.weight import QuantizedWeight

STORED_AS = "MXFP4 (experts)"
"""What the hub's checkpoints are called that have it: all else in them are floats."""
QUANT_METHOD = "mxfp4"
"""In a config's `quantization_config`."""
_BLOCKS, _SCALES = "_blocks", "_scales"
_PER_BLOCK = 32
_ROWS = 2
"""Dimension of the rows, as places have them."""
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of the lower three bits; the fourth is the sign."""
SIGNED = (*_MAGNITUDES, *(-each for each in _MAGNITUDES))
TWICE = [int(2 * number) for number in SIGNED]
"""What four bits stand for, as whole numbers."""
_NUMBERS = [(SIGNED[byte & 15], SIGNED[byte >> 4]) for byte in range(256)]
"""Of a byte: the first number is in its lower half."""
_DIGITS = [(TWICE[byte & 15], TWICE[byte >> 4]) for byte in range(256)]
_POWERS = [*(2.0 ** (byte - 127) for byte in range(255)), math.nan]
"""Of a scale."""


class Packed(NamedTuple):
    """A tensor `[num_experts, rows, columns]`."""

    blocks: torch.Tensor
    """`[num_experts, rows, columns / 32, 16]`, uint8: of two columns the first is in the lower half of a byte."""
    scales: torch.Tensor
    """`[num_experts, rows, columns / 32]`, uint8: exponents, 127 more than they are; 255 is no number."""

    @property
    def is_whole(self) -> bool:
        """Whether the two have shapes and types that go together."""
        shape = (*self.scales.shape, _PER_BLOCK // 2)
        return self.blocks.dtype == self.scales.dtype == torch.uint8 and self.blocks.shape == shape

    def fits(self, cut: Cut) -> bool:
        """Whether the tensor `[num_experts, columns, rows]`, as places have it, can be cut so."""
        shape = (len(self.scales), self.scales.shape[2] * _PER_BLOCK, self.scales.shape[1])
        return 0 < cut.dim <= _ROWS and shape[cut.dim] == cut.whole

    def experts(self, cut: Cut | None = None) -> "Iterator[PackedExpert]":
        """Each expert's part; one after the other, as they are large.

        Args:
            cut: what of them is wanted, a span of columns or of rows; rows that are not are not even read.
        """
        rows, columns = slice(None), slice(None)
        if cut is not None:
            [(start, count)] = cut.spans
            span = slice(start, start + count)
            rows, columns = (span, columns) if cut.dim == _ROWS else (rows, span)
        for blocks, scales in zip(self.blocks, self.scales, strict=True):
            yield PackedExpert(blocks[rows], scales[rows], columns)


class PackedExpert(NamedTuple):
    """One of them, of which some columns are wanted."""

    blocks: torch.Tensor
    """`[rows, columns / 32, 16]`."""
    scales: torch.Tensor
    """`[rows, columns / 32]`."""
    columns: slice

    def floats(self, device: torch.device) -> torch.Tensor:
        """`[columns, rows]`, float32, on `device`."""
        return unpack(self.blocks.to(device), self.scales.to(device)).T[self.columns]

    def in_8_bits(self, device: torch.device) -> QuantizedWeight | None:
        """`[rows, columns]` on `device`, exactly; None: a scale is beyond float16, or columns are no blocks."""
        start, stop, _ = self.columns.indices(self.scales.shape[-1] * _PER_BLOCK)
        if start % _PER_BLOCK or stop % _PER_BLOCK:
            return None
        wanted = slice(start // _PER_BLOCK, stop // _PER_BLOCK)
        blocks, scales = (part[:, wanted].to(device) for part in (self.blocks, self.scales))
        table = torch.tensor(_DIGITS, dtype=torch.int8, device=device)
        digits = table.index_select(0, blocks.flatten().int()).view(*scales.shape, _PER_BLOCK)
        powers = powers_beside_digits(scales)
        powers = powers.where(digits.any(dim=-1) | powers.isnan(), 1.0)  # of zeros any other will do
        halves = powers.to(torch.float16)
        if not torch.equal(halves.float(), powers):
            return None
        return QuantizedWeight(8, _PER_BLOCK, digits.flatten(-2), halves)


def powers_beside_digits(scales: torch.Tensor) -> torch.Tensor:
    """What the whole numbers of `TWICE` are multiplied by, float32; NaN for what is no number.

    Args:
        scales: uint8, of any shape.
    """
    return torch.tensor(_POWERS, device=scales.device)[scales.int()] / 2


def unpack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What they mean.

    Args:
        blocks: `[..., columns / 32, 16]`, uint8.
        scales: `[..., columns / 32]`, uint8.

    Returns:
        `[..., columns]`, float32.
    """
    numbers, powers = (torch.tensor(table, device=blocks.device) for table in (_NUMBERS, _POWERS))
    unscaled = numbers.index_select(0, blocks.flatten().int()).view(*scales.shape, _PER_BLOCK)
    factors = powers.index_select(0, scales.flatten().int()).view(*scales.shape, 1)
    return (unscaled * factors).flatten(-2)


def with_packed(
    tensors: Iterator[tuple[str, Stored | Stacked]],
) -> Iterator[tuple[str, Stored | Stacked | Packed]]:
    """The same tensors, but for blocks and their scales: both together, under the name that they have in common.

    Args:
        tensors: of a checkpoint; blocks and scales may be far apart.
    """
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors:
        kind = next((kind for kind in (_BLOCKS, _SCALES) if name.endswith(kind)), None)
        if kind is None or not isinstance(tensor, torch.Tensor):
            yield name, tensor
            continue
        base = name.removesuffix(kind)
        halves.setdefault(base, {})[kind] = tensor
        if len(halves[base]) == 2:
            both = halves.pop(base)
            yield base, Packed(both[_BLOCKS], both[_SCALES])
