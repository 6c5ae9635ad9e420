"""In how many bits a model computes and its weights are kept, and why. Reads no weights.

Rows that are multiplied by weights of few bits have 32 bits on a CPU: nearly all of what is read are weights. What
is asked for is done or refused. If nothing is, a GPU has the checkpoint's own type. On a CPU a token takes as long
as its weights take to be read, so a large model of 16 bits has bfloat16 where the processor multiplies that, and
else 8 bits, if there are kernels for that. A small one is quick enough as it is, and stays exact.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch

from pagedchat.config import ModelConfig
from pagedchat.errors import InvalidValueError
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.models.description import ModelDescription
from pagedchat.models.native import count_parameters
from pagedchat.models.quantized.forms import Quantization
from pagedchat.runtime.loading.device import choose_dtype

LARGE = 300_000_000
"""Parameters from which on a model is large."""
INT8_BY_DEFAULT = True
"""Whether a large model has 8 bits on a CPU that multiplies no bfloat16, if nothing is said; where there are
kernels. By torch a step would take longer than with the weights in float32."""


@dataclass(frozen=True, slots=True)
class Precision:
    """What was chosen."""

    dtype: torch.dtype
    """Of rows and cache, and of weights that are not quantised."""
    quantization: Quantization | None = None
    """Of weights that come as floats."""
    reason: str = ""
    """In one sentence, with the option that turns it off; empty where it was asked for or goes without saying."""


def choose_precision(wanted: ModelConfig, device: torch.device, description: ModelDescription) -> Precision:
    """Choose it before any weight is read.

    Args:
        wanted: by the user.
        device: where the model runs.
        description: of the model.

    Raises:
        InvalidValueError: a quantisation that cannot be had.
    """
    few_bits = wanted.quantization in ("int8", "int4") or bool(description.stored_as)
    whole = description.native if device.type == "cpu" and not few_bits else None
    large = whole is not None and count_parameters(whole) > LARGE
    dtype = choose_dtype(wanted.dtype, device, description.dtype, large=large)
    if wanted.quantization in ("int8", "int4"):
        _refuse_if_impossible(wanted.quantization, device, description)
        return Precision(dtype, wanted.quantization)
    if not large or wanted.dtype != "auto":
        return Precision(dtype)
    if dtype == torch.bfloat16:
        return Precision(
            dtype, None, "bfloat16, since this processor multiplies it; --dtype float32 computes in 32 bits."
        )
    quantizes = INT8_BY_DEFAULT and wanted.quantization == "auto" and isinstance(host_target(), CpuTarget)
    if quantizes and _objection(device, description) is None:
        return Precision(
            dtype, "int8", "Weights in 8 bits, since the model is large; --quantize none keeps all of theirs."
        )
    return Precision(dtype)


def _refuse_if_impossible(quantization: Quantization, device: torch.device, description: ModelDescription) -> None:
    objection = _objection(device, description)
    if objection is not None:
        _refuse(quantization, *objection)


def _objection(device: torch.device, description: ModelDescription) -> tuple[str, str] | None:
    """Why there is no quantising, and what to do instead; None: there is."""
    if device.type != "cpu":
        return "it is for CPUs so far", "Use --device cpu, or leave the option out."
    if description.native is None:
        return f"transformers runs {description.name}, whose layers are not ours", "Leave the option out."
    if description.native.mixture is not None:
        return f"{description.name} is a mixture of experts", "Leave the option out."
    return None


def _refuse(quantization: Quantization, why: str, hint: str) -> NoReturn:
    raise InvalidValueError(f"--quantize {quantization} was asked for, but it cannot be had: {why}.", hint)
