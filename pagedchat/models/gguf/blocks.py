"""The contents of GGUF tensors -> floats, or the few bits that they are stored in. Knows no file and no names.

F16, BF16 and F32 are floats. The rest becomes a `QuantizedWeight` with the digits as they are; layouts are those of
llama.cpp's `ggml-quants.c`. Exact are Q8_0, Q4_0, Q5_0, Q5_1, and MXFP4 in 8 bits, whose scales go down to 2^-24
here. The others have scales (and minimums) that are a product of two numbers and do not always fit in 11 bits, nor
does a Q4's minimum, which here is that of digit -8: they are rounded to float16 once, so that an element is off by
at most 2^-11 of each of the two terms that it is the sum of, or by 2^-24 where they are smaller than float16 goes.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from pagedchat.models.gguf.kinds import KINDS
from pagedchat.models.quantized.mxfp4 import TWICE, powers_beside_digits
from pagedchat.ops.common.in_threads import in_threads
from pagedchat.ops.quantized.weight import QuantizedWeight

_ELEMENTS_AT_ONCE = 1 << 21
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class _Unpacked(NamedTuple):
    """Of some blocks."""

    digits: torch.Tensor
    """`[num_blocks, block_size]` uint8 or int8; of 4 bits from 0 to 15, `ZERO_OF_4_BITS` more than the digit."""
    scales: torch.Tensor
    """`[num_blocks, groups of a block]`, float32 or float16."""
    minimums: torch.Tensor | None = None


def unpack(kind: int, content: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor | QuantizedWeight:
    """A tensor of a file.

    Args:
        kind: in `KINDS`.
        content: its bytes, uint8.
        shape: rows first. What has another number of dimensions than two, norms say, comes as floats.

    Raises:
        ValueError: a scale that is not finite, or beyond float16.
    """
    name, block_size, block_bytes = KINDS[kind]
    if name in _FLOATS:
        return _floats(content, _FLOATS[name]).view(shape)
    rows = content.view(-1, shape[-1] // block_size, block_bytes)
    few = _matrix(name, rows, shape[-1])
    return few if len(shape) == 2 else few.dequantized().view(shape)


def _floats(content: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    aligned = content.data_ptr() % dtype.itemsize == 0
    return (content if aligned else content.clone()).view(dtype)


def _matrix(name: str, rows: torch.Tensor, width: int) -> QuantizedWeight:
    """Some rows at a time: what is worked out meanwhile is larger than the rows."""
    form = _FORMS[name]
    num_rows, num_groups = len(rows), width // form.group_size
    stored = torch.int8 if form.bits == 8 else torch.uint8
    digits = torch.empty(num_rows, width * form.bits // 8, dtype=stored)
    scales = torch.empty(num_rows, num_groups, dtype=torch.float16)
    minimums = torch.empty(num_rows, num_groups, dtype=torch.float16) if form.has_minimums else None
    at_once = max(1, _ELEMENTS_AT_ONCE // width)

    def bring(start: int) -> None:
        chosen = slice(start, start + at_once)
        found = form.unpack(rows[chosen].flatten(0, 1))
        whole = found.digits.reshape(-1, width)
        digits[chosen] = whole if form.bits == 8 else whole[:, ::2] | whole[:, 1::2] << 4
        scales[chosen] = found.scales.reshape(-1, num_groups)
        if minimums is not None and found.minimums is not None:
            minimums[chosen] = found.minimums.reshape(-1, num_groups)
        if not all(bool(torch.isfinite(part[chosen]).all()) for part in (scales, minimums) if part is not None):
            raise ValueError("it has scales that are not finite, or too large")

    in_threads(range(0, num_rows, at_once), bring)
    return QuantizedWeight(form.bits, form.group_size, digits, scales, minimums)


# --- blocks of 32 with a scale or two --------------------------------------------------------------


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """`[num_blocks, 1]` float32: the float16 at a byte of each."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _halves(packed: torch.Tensor) -> torch.Tensor:
    """`[num_blocks, 16]` -> `[num_blocks, 32]`: all lower halves of bytes, then all upper ones."""
    return torch.cat((packed & 15, packed >> 4), dim=1)


def _fifth_bits(packed: torch.Tensor) -> torch.Tensor:
    """`[num_blocks, 4]` -> `[num_blocks, 32]`: 16 or 0 for each element."""
    places = torch.arange(8, dtype=torch.uint8)
    return ((packed.unsqueeze(2) >> places) & 1).flatten(1) << 4


def _q4_0(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(_halves(blocks[:, 2:]), _half(blocks, 0))


def _q4_1(blocks: torch.Tensor) -> _Unpacked:
    scale = _half(blocks, 0)
    return _Unpacked(_halves(blocks[:, 4:]), scale, _half(blocks, 2) + 8 * scale)


def _q5_0(blocks: torch.Tensor) -> _Unpacked:
    digits = (_halves(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])).to(torch.int8) - 16
    return _Unpacked(digits, _half(blocks, 0))


def _q5_1(blocks: torch.Tensor) -> _Unpacked:
    digits = (_halves(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])).to(torch.int8)
    return _Unpacked(digits, _half(blocks, 0), _half(blocks, 2))


def _mxfp4(blocks: torch.Tensor) -> _Unpacked:
    """Digits are twice what four bits stand for, so that they are whole."""
    digits = torch.tensor(TWICE, dtype=torch.int8)[_halves(blocks[:, 1:]).int()]
    return _Unpacked(digits, powers_beside_digits(blocks[:, :1]))


def _q8_0(blocks: torch.Tensor) -> _Unpacked:
    return _Unpacked(blocks[:, 2:].view(torch.int8), _half(blocks, 0))


# --- blocks of 256, whose groups have scales of few bits -------------------------------------------


def _six_bits(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`[num_blocks, 12]` -> scales and minimums of 8 groups, `[num_blocks, 8]` float32 each, from 0 to 63."""
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat((low & 63, (high & 15) | (low >> 6) << 4), dim=1)
    minimums = torch.cat((middle & 63, high >> 4 | (middle >> 6) << 4), dim=1)
    return scales.float(), minimums.float()


def _nibbles_of_64(packed: torch.Tensor) -> torch.Tensor:
    """`[num_blocks, 128]` -> `[num_blocks, 8, 32]`: each 32 bytes are two groups, the lower halves first."""
    quarters = packed.reshape(-1, 4, 32)
    return torch.stack((quarters & 15, quarters >> 4), dim=2).flatten(1, 2)


def _q4_k(blocks: torch.Tensor) -> _Unpacked:
    scales, minimums = _six_bits(blocks[:, 4:16])
    scales = _half(blocks, 0) * scales
    return _Unpacked(_nibbles_of_64(blocks[:, 16:]).flatten(1), scales, 8 * scales - _half(blocks, 2) * minimums)


def _q5_k(blocks: torch.Tensor) -> _Unpacked:
    scales, minimums = _six_bits(blocks[:, 4:16])
    places = torch.arange(8, dtype=torch.uint8).view(8, 1)
    fifth = ((blocks[:, 16:48].unsqueeze(1) >> places) & 1) << 4
    digits = (_nibbles_of_64(blocks[:, 48:]) | fifth).flatten(1).to(torch.int8)
    return _Unpacked(digits, _half(blocks, 0) * scales, -_half(blocks, 2) * minimums)


def _q6_k(blocks: torch.Tensor) -> _Unpacked:
    low = blocks[:, :128].reshape(-1, 2, 64)
    four = torch.cat((low & 15, low >> 4), dim=2).view(-1, 2, 4, 32)
    places = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    two = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> places) & 3
    digits = (four | two << 4).flatten(1).to(torch.int8) - 32
    return _Unpacked(digits, _half(blocks, 208) * blocks[:, 192:208].view(torch.int8).float())


class _Form(NamedTuple):
    """What becomes of a kind."""

    bits: int
    group_size: int
    has_minimums: bool
    unpack: Callable[[torch.Tensor], _Unpacked]


_FORMS = {
    "Q4_0": _Form(4, 32, False, _q4_0),
    "Q4_1": _Form(4, 32, True, _q4_1),
    "Q5_0": _Form(8, 32, False, _q5_0),
    "Q5_1": _Form(8, 32, True, _q5_1),
    "Q8_0": _Form(8, 32, False, _q8_0),
    "MXFP4": _Form(8, 32, False, _mxfp4),
    "Q4_K": _Form(4, 32, True, _q4_k),
    "Q5_K": _Form(8, 32, True, _q5_k),
    "Q6_K": _Form(8, 16, False, _q6_k),
}
