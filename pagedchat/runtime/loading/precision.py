"""In how many bits a model computes and its weights are kept, and why. Reads no weights.

Rows that are multiplied by weights of few bits have 32 bits on a CPU, where nearly all of what is read are
weights, and 16 on a GPU, whose tensor cores multiply those. What is asked for is done or refused; checkpoints that
are stored in few bits become floats where kernels for them are missing. If nothing is asked for, a GPU has the
checkpoint's own type. On a CPU a token takes as long
as its weights take to be read, so a large model of 16 bits has bfloat16 where the processor multiplies that, and
else 8 bits, if there are kernels for that. A small one is quick enough as it is, and stays exact.
"""

from dataclasses import dataclass, replace
from typing import NoReturn

import torch

from pagedchat.config import ModelConfig
from pagedchat.errors import InvalidValueError
from pagedchat.jit.architecture import architecture_of
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.jit.driver import gpu
from pagedchat.models.description import ModelDescription
from pagedchat.models.native import count_parameters
from pagedchat.models.quantized.forms import Quantization
from pagedchat.models.quantized.mxfp4 import STORED_AS
from pagedchat.runtime.loading.device import choose_dtype

_FIRST_GPU = (9, 0)
"""Compute capability of the first GPU that has the copies by which kernels for few bits get weights."""
_FEW_BITS = ("int8", "int4", "fp8")
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
    keeps_bits: bool = True
    """Whether weights that are stored in few bits are kept so; else they become floats."""
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
    if device.type == "cpu" and description.stored_as == STORED_AS:
        # Experts alone have few bits in it: there all weights do, or none.
        return replace(_choose(wanted, device, replace(description, stored_as="")), keeps_bits=False)
    return _choose(wanted, device, description)


def _choose(wanted: ModelConfig, device: torch.device, description: ModelDescription) -> Precision:
    few_bits = wanted.quantization in _FEW_BITS or bool(description.stored_as)
    whole = description.native if device.type == "cpu" and not few_bits else None
    large = whole is not None and count_parameters(whole) > LARGE
    dtype = choose_dtype(wanted.dtype, device, description.dtype, large=large)
    if device.type == "cuda" and few_bits and wanted.dtype == "auto":
        dtype = dtype_beside_few_bits(dtype)
    asked = _asked(wanted)
    if asked is not None:
        objection = _objection(asked, dtype, device, description, invariant=wanted.batch_invariant)
        if objection is not None:
            refuse(asked, *objection)
        return Precision(dtype, asked)
    if device.type == "cuda" and description.stored_as:
        return _of_stored(dtype, device, description, invariant=wanted.batch_invariant)
    if not large or wanted.dtype != "auto":
        return Precision(dtype)
    if dtype == torch.bfloat16:
        return Precision(
            dtype, reason="bfloat16, since this processor multiplies it; --dtype float32 computes in 32 bits."
        )
    quantizes = INT8_BY_DEFAULT and wanted.quantization == "auto" and isinstance(host_target(), CpuTarget)
    if quantizes and _objection("int8", dtype, device, description, invariant=False) is None:
        return Precision(
            dtype,
            "int8",
            reason="Weights in 8 bits, since the model is large; --quantize none keeps all of theirs.",
        )
    return Precision(dtype)


def dtype_beside_few_bits(dtype: torch.dtype) -> torch.dtype:
    """Of rows on a GPU, if nothing is said: the checkpoint's, or one that tensor cores multiply."""
    return torch.bfloat16 if dtype == torch.float32 else dtype


def _asked(wanted: ModelConfig) -> Quantization | None:
    name = wanted.quantization
    return None if name == "auto" or name == "none" else name  # noqa: PLR1714 - mypy follows these


def _of_stored(
    dtype: torch.dtype, device: torch.device, description: ModelDescription, *, invariant: bool
) -> Precision:
    """Of a checkpoint in few bits, on a GPU."""
    capability = gpu(device.index or 0).compute_capability
    objection = objection_on_gpu(description, dtype, capability, invariant=invariant)
    if objection is None:
        return Precision(dtype)
    reason = f"Weights that are stored in {description.stored_as} became floats, since {objection[0]}."
    return Precision(dtype, keeps_bits=False, reason=reason)


def _objection(
    quantization: Quantization,
    dtype: torch.dtype,
    device: torch.device,
    description: ModelDescription,
    *,
    invariant: bool,
) -> tuple[str, str] | None:
    """Why there is no quantising, and what to do instead; None: there is."""
    if device.type == "cpu" and quantization == "fp8":
        return "processors multiply no 8-bit floats", "Use --quantize int8."
    if device.type == "cpu":
        return _objection_to_model(description)
    return objection_on_gpu(description, dtype, gpu(device.index or 0).compute_capability, invariant=invariant)


def objection_on_gpu(
    description: ModelDescription, dtype: torch.dtype, capability: tuple[int, int], *, invariant: bool
) -> tuple[str, str] | None:
    """What speaks against weights of few bits on a GPU, and what to do instead.

    Args:
        description: of the model.
        dtype: of rows.
        capability: of the GPU.
        invariant: whether replies are to be the same in any company.
    """
    return _objection_to_model(description) or _objection_of_gpu(dtype, capability, invariant=invariant)


def _objection_of_gpu(
    dtype: torch.dtype, capability: tuple[int, int], *, invariant: bool
) -> tuple[str, str] | None:
    """Whatever the model."""
    if capability < _FIRST_GPU:
        there, first = architecture_of(*capability), architecture_of(*_FIRST_GPU)
        return f"GPUs have kernels for it from {first} on, and this one is {there}", "Leave the option out."
    if dtype not in (torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        return f"tensor cores do not multiply {name}", "Use --dtype float16 or bfloat16."
    if invariant:
        return "replies that are the same in any company take weights of 16 bits", "Leave out --batch-invariant."
    return None


def _objection_to_model(description: ModelDescription) -> tuple[str, str] | None:
    """Wherever it runs."""
    if description.native is None:
        return f"transformers runs {description.name}, whose layers are not ours", "Leave the option out."
    return None


def refuse(quantization: Quantization, why: str, hint: str) -> NoReturn:
    """Say that a quantisation cannot be had.

    Raises:
        InvalidValueError: always.
    """
    raise InvalidValueError(f"--quantize {quantization} was asked for, but it cannot be had: {why}.", hint)
