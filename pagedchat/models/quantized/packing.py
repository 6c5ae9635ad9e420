"""How the weights of a checkpoint in few bits are stored, by its config.json: GPTQ, AWQ, compressed-tensors or fp8.
Reads no tensor; what is not known here is left to others, what cannot be used is refused in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pagedchat.bounds import shown
from pagedchat.errors import ModelError
from pagedchat.models.raw_config import NotNativeError

Method = Literal["gptq", "awq", "packed", "integers", "floats"]
"""The last three: integers packed along a row, integers as they are, 8-bit floats."""
OTHER_FILE = "Choose another quantisation of this model, or the model itself with --quantize int4."
"""What to do about one that is not read."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Of all products that are not named as exceptions; those come as floats."""

    name: str
    """For people: `"GPTQ int4"`."""
    method: Method
    bits: int = 8
    zero_is_one_less: bool = False
    """A GPTQ zero is stored as one less than it is."""


def read_packing(name: str, config: object) -> Packing | None:
    """What `quantization_config` says.

    Args:
        name: of the model, for messages.
        config: as it stands in config.json; None where there is none.

    Raises:
        ModelError: a kind of these four that is not used here.
        NotNativeError: another method.
    """
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise NotNativeError(f"its quantization_config is {shown(config)}")
    method = config.get("quant_method")
    reader = _READERS.get(method) if isinstance(method, str) else None
    if reader is None:
        raise NotNativeError(f"its weights are quantised by {shown(method)}")
    found = reader(config)
    if isinstance(found, str):
        raise ModelError(f"The weights of {name} are quantised in a way that is not read: {found}.", OTHER_FILE)
    return found


def _gptq(config: Mapping[str, Any]) -> Packing | str:
    bits, form = config.get("bits"), config.get("checkpoint_format", "gptq")
    if bits not in (4, 8):
        return f"GPTQ in {shown(bits)} bits"
    if form not in ("gptq", "gptq_v2"):
        return f"GPTQ as {shown(form)}"
    return Packing(f"GPTQ int{bits}", "gptq", bits, zero_is_one_less=form == "gptq")


def _awq(config: Mapping[str, Any]) -> Packing | str:
    bits, version = config.get("bits", config.get("w_bit")), config.get("version", "gemm")
    if bits != 4:
        return f"AWQ in {shown(bits)} bits"
    if not isinstance(version, str) or version.lower() != "gemm":
        return f"AWQ of the version {shown(version)}"
    return Packing("AWQ int4", "awq", 4)


def _compressed(config: Mapping[str, Any]) -> Packing | str:
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        return "compressed-tensors without config_groups"
    kinds = {_compressed_kind(group) for group in groups.values()}
    kind = kinds.pop()
    if kinds:
        return "compressed-tensors of several kinds"
    form = config.get("format")
    if form == "pack-quantized" and kind in (("int", 4), ("int", 8)):
        return Packing(f"compressed int{kind[1]}", "packed", int(str(kind[1])))
    if form in ("int-quantized", "naive-quantized") and kind == ("int", 8):
        return Packing("compressed int8", "integers")
    if form in ("float-quantized", "naive-quantized") and kind == ("float", 8):
        return Packing("fp8", "floats")
    return f"compressed-tensors as {shown(form)}, {kind[0]} of {kind[1]} bits"


def _compressed_kind(group: object) -> tuple[str, object]:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        return "none", "no"
    bits = weights.get("num_bits")
    return str(weights.get("type"))[:20], bits if type(bits) is int else shown(bits)


def _fp8(_config: Mapping[str, Any]) -> Packing | str:
    return Packing("fp8", "floats")


_READERS = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8}
