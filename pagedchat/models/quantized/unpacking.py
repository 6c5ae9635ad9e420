"""Tensors of GPTQ, AWQ, compressed-tensors and fp8 -> weights as `QuantizedWeight` has them. Knows no files.

A product that is stored in few bits comes as several tensors: digits, scales, zeros. They are held until all are
there. Zeros become minimums (`scale * (8 - zero)`, rounded to float16 once), unless they are all in the middle.
8-bit floats have exponents of their own. Kernels of a GPU take them as they are; for those of a CPU they are
quantised anew in 8 bits with a scale for every 32: next to their own error, of a sixteenth, that is small.
"""

from collections.abc import Iterator
from typing import Literal

import torch

from pagedchat.errors import ModelError
from pagedchat.layers.quantized_linear import Stored
from pagedchat.models.quantized.packing import OTHER_FILE, Packing
from pagedchat.models.quantized.stacked import Stacked
from pagedchat.ops.common.pages import FilePages
from pagedchat.ops.quantized.quantize import pack, quantize
from pagedchat.ops.quantized.steps import ZERO_OF_4_BITS
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight

FloatsAs = Literal["floats", "int8", "fp8"]
"""What 8-bit floats become: floats, 8-bit integers, or what they are."""

PARTS = {
    "gptq": ("qweight", "scales", "qzeros", "g_idx"),
    "awq": ("qweight", "scales", "qzeros"),
    "packed": ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"),
    "integers": ("weight", "weight_scale", "weight_zero_point"),
    "floats": ("weight", "weight_scale", "weight_scale_inv"),
}
"""What the tensors of one product are called: digits, then scales, then what some lack."""
_NEEDED = {"gptq": 3, "awq": 3}
"""Of these parts the first so many are always there; of other methods two."""
_MATRICES = ("qweight", "qzeros", "scales", "weight_packed")
_DROPPED = ("input_scale", "output_scale", "k_scale", "v_scale", "q_scale", "weight_shape", "input_zero_point")
"""What only those need who quantise rows too."""
_ORDER_OF_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which four bits of 32 have the first of eight columns, the second, and so on."""
_GROUP_OF_FLOATS = 32
_MOST_ERROR_OF_SCALES = 2**-9
"""Of 8-bit floats that are kept, when scales become float16: theirs is a sixteenth."""
_AGAIN = "Download the model again."


class _OrderedError(Exception):
    """Groups are not runs of columns."""


def unpacked(
    name: str, packing: Packing, tensors: Iterator[tuple[str, Stored | Stacked]], *, floats_as: FloatsAs
) -> Iterator[tuple[str, Stored | Stacked]]:
    """The tensors of a checkpoint with its products put together.

    Args:
        name: of the model, for messages.
        packing: of the checkpoint.
        tensors: as they are stored.
        floats_as: what 8-bit floats become; where they cannot stay what they are, floats.

    Raises:
        ModelError: parts are missing, of another shape, or such as are not read.
    """
    held: dict[str, dict[str, torch.Tensor]] = {}
    pages = FilePages()
    parts = PARTS[packing.method]
    for given, tensor in tensors:
        stem, _, part = given.rpartition(".")
        if not isinstance(tensor, torch.Tensor) or part not in parts or _is_whole(part, tensor):
            if part not in _DROPPED:
                yield given, tensor
            continue
        held.setdefault(stem, {})[part] = tensor
    for stem in list(held):
        its_parts = held.pop(stem)
        weight = _put_together(name, packing, stem, its_parts)
        if floats_as == "fp8" and isinstance(weight, torch.Tensor):
            weight = _kept(its_parts) or weight
        if floats_as == "int8" and isinstance(weight, torch.Tensor):
            width = weight.shape[1]
            weight = quantize(weight, 8, width if width % _GROUP_OF_FLOATS else _GROUP_OF_FLOATS)
        yield f"{stem}.weight", weight
        for tensor in its_parts.values():
            pages.forget(tensor)


def _is_whole(part: str, tensor: torch.Tensor) -> bool:
    """An exception, whose weight is stored as floats."""
    return part == "weight" and tensor.is_floating_point() and tensor.itemsize > 1


def _put_together(name: str, packing: Packing, stem: str, parts: dict[str, torch.Tensor]) -> Stored:
    wanted = PARTS[packing.method][: _NEEDED.get(packing.method, 2)]
    if packing.method == "floats" and "weight_scale_inv" in parts:
        wanted = ("weight", "weight_scale_inv")
    missing = [part for part in wanted if part not in parts]
    if missing:
        raise ModelError(
            f"The weights of {name} lack {stem}.{missing[0]}, without which its few bits mean nothing.", _AGAIN
        )
    flat = [part for part in _MATRICES if part in parts and parts[part].dim() != 2]
    if flat:
        raise ModelError(f"{stem}.{flat[0]} of {name} is no matrix.", _AGAIN)
    try:
        return _MAKERS[packing.method](packing, parts)
    except _OrderedError:
        raise ModelError(
            f"The columns of {stem} in {name} were ordered by their activations (desc_act), which is not read.",
            OTHER_FILE,
        ) from None
    except (ValueError, RuntimeError, IndexError) as error:
        raise ModelError(
            f"The few bits of {stem} in {name} do not go together: {str(error).splitlines()[0]:.160}.", _AGAIN
        ) from error


# --- integers ---------------------------------------------------------------------------------------


def _fields(packed: torch.Tensor, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Numbers of so many bits out of 32, the lowest first: `[n, m]` int32 -> `[n, m * 32 / bits]` uint8."""
    if packed.dtype != torch.int32 or packed.dim() != 2:
        raise ValueError(f"packed numbers are {packed.dim()}-dimensional {packed.dtype}")
    octets = packed.contiguous().view(torch.uint8)
    if bits == 8:
        return octets
    fields = torch.stack((octets & 15, octets >> 4), dim=-1).flatten(1)
    return fields if order is None else fields.view(len(fields), -1, 8)[..., list(order)].flatten(1)


def _of_integers(
    digits: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, bits: int
) -> QuantizedWeight:
    """Digits from 0 on.

    Args:
        digits: `[out_features, in_features]` uint8.
        scales: `[out_features, groups]`.
        zeros: of the groups, in digits; None: all in the middle.
        bits: 8 or 4.
    """
    middle = 1 << (bits - 1)
    width, num_groups = digits.shape[1], scales.shape[1]
    if num_groups == 0 or width % num_groups or scales.shape[0] != len(digits):
        raise ValueError(f"scales are {list(scales.shape)}, and digits {list(digits.shape)}")
    minimums = None
    if zeros is not None and bool((zeros != middle).any()):
        if zeros.shape != scales.shape:
            raise ValueError(f"zeros are {list(zeros.shape)}, and scales {list(scales.shape)}")
        minimums = _halves(scales.float() * (middle - zeros.float()))
    if bits == 4:
        stored = pack(digits.to(torch.int8) - ZERO_OF_4_BITS)
    else:
        stored = (digits.to(torch.int16) - middle).to(torch.int8)
    return QuantizedWeight(bits, width // num_groups, stored, _halves(scales), minimums)


def _halves(scales: torch.Tensor) -> torch.Tensor:
    halves = scales.to(torch.float16)
    if not bool(torch.isfinite(halves).all()):
        raise ValueError("scales are not finite, or too large")
    return halves


def _gptq(packing: Packing, parts: dict[str, torch.Tensor]) -> Stored:
    digits = _fields(parts["qweight"].T.contiguous(), packing.bits)
    zeros = _fields(parts["qzeros"], packing.bits).T.to(torch.int16) + packing.zero_is_one_less
    scales, order = parts["scales"].T, parts.get("g_idx")
    if order is not None and not _is_in_order(order, digits.shape[1], scales.shape[1]):
        raise _OrderedError
    return _of_integers(digits, scales, zeros, packing.bits)


def _is_in_order(groups: torch.Tensor, width: int, num_groups: int) -> bool:
    """Whether each column is in the group that its number says."""
    expected = torch.arange(width, device=groups.device) // max(1, width // max(1, num_groups))
    return groups.shape == expected.shape and bool((groups == expected).all())


def _awq(packing: Packing, parts: dict[str, torch.Tensor]) -> Stored:
    digits, zeros = (_fields(parts[part], packing.bits, _ORDER_OF_AWQ).T for part in ("qweight", "qzeros"))
    return _of_integers(digits.contiguous(), parts["scales"].T, zeros, packing.bits)


def _packed(packing: Packing, parts: dict[str, torch.Tensor]) -> Stored:
    digits, scales, zeros = _fields(parts["weight_packed"], packing.bits), parts["weight_scale"], None
    order, shape = parts.get("weight_g_idx"), parts.get("weight_shape")
    if shape is not None:
        digits = digits[: int(shape[0]), : int(shape[1])]  # rows are filled up to whole numbers of 32 bits
    if order is not None and bool((order >= 0).all()) and not _is_in_order(order, digits.shape[1], scales.shape[1]):
        raise _OrderedError
    if "weight_zero_point" in parts:
        zeros = _fields(parts["weight_zero_point"].T.contiguous(), packing.bits).T[: len(digits)]
    return _of_integers(digits, scales, zeros, packing.bits)


def _integers(_packing: Packing, parts: dict[str, torch.Tensor]) -> Stored:
    digits, scales, zeros = parts["weight"], parts["weight_scale"], parts.get("weight_zero_point")
    if digits.dtype != torch.int8 or digits.dim() != 2:
        raise ValueError(f"digits are {digits.dim()}-dimensional {digits.dtype}")
    scales = _by_row(scales, len(digits))
    shifted = None if zeros is None else _by_row(zeros, len(digits)).to(torch.int16) + 128
    return _of_integers((digits.to(torch.int16) + 128).to(torch.uint8), scales, shifted, 8)


def _by_row(scales: torch.Tensor, num_rows: int) -> torch.Tensor:
    """`[out_features, groups]`; one for all, or one for each row, as well."""
    return scales.reshape(-1, 1).expand(num_rows, 1) if scales.dim() < 2 or len(scales) == 1 else scales


# --- floats -----------------------------------------------------------------------------------------


def _floats(_packing: Packing, parts: dict[str, torch.Tensor]) -> Stored:
    digits = parts["weight"]
    scales = parts["weight_scale_inv"] if "weight_scale_inv" in parts else parts["weight_scale"]
    if digits.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2) or digits.dim() != 2:
        raise ValueError(f"the weight is {digits.dim()}-dimensional {digits.dtype}")
    floats = digits.float() * _spread(scales.float(), digits.shape)
    if not bool(torch.isfinite(floats).all()):
        raise ValueError("it has numbers that are not finite")
    return floats


def _kept(parts: dict[str, torch.Tensor]) -> QuantizedWeight | None:
    """As they are, which `_floats` has found to be in order; None where their scales are no groups of rows, or too
    small for float16."""
    digits = parts["weight"]
    scales = (parts["weight_scale_inv"] if "weight_scale_inv" in parts else parts["weight_scale"]).float()
    if digits.dtype != FP8:
        return None
    num_rows, width = digits.shape
    if scales.dim() == 2 and scales.shape[1] > 1:
        heights, groups = -(-num_rows // len(scales)), scales.shape[1]
        if width % groups:
            return None
        height = 1 << (heights - 1).bit_length()
        by_row = scales.repeat_interleave(height, 0)[:num_rows]
    else:
        by_row = _by_row(scales.reshape(-1, 1) if scales.numel() > 1 else scales, num_rows)
    halves = by_row.to(torch.float16).contiguous()
    error = (halves.float() - by_row).abs() / by_row.abs().clamp_min(1e-30)
    if not bool(torch.isfinite(halves).all()) or float(error.max()) > _MOST_ERROR_OF_SCALES:
        return None
    return QuantizedWeight(8, width // halves.shape[1], digits.contiguous(), halves)


def _spread(scales: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """To all elements: from one for all, one for each row, or one for each square of 128."""
    if scales.dim() < 2 or scales.shape[1] == 1:
        return _by_row(scales.reshape(-1, 1) if scales.numel() > 1 else scales, shape[0])
    blocks = [-(-size // count) for size, count in zip(shape, scales.shape, strict=True)]
    wide = [1 << (block - 1).bit_length() for block in blocks]  # the last squares may be cut off
    spread = scales.repeat_interleave(wide[0], 0).repeat_interleave(wide[1], 1)
    return spread[: shape[0], : shape[1]]


_MAKERS = {"gptq": _gptq, "awq": _awq, "packed": _packed, "integers": _integers, "floats": _floats}
