"""A local checkpoint -> a model of our own modules: every tensor goes straight from its file to its place."""

from collections.abc import Callable
from pathlib import Path

import torch

from pagedchat.layers.weights import new_tensors
from pagedchat.models.checkpoint_files import check_room
from pagedchat.models.checkpoint_tensors import read_tensors
from pagedchat.models.filling import Filling
from pagedchat.models.native import NativeConfig, build, count_parameters
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.filling import QuantizedFilling
from pagedchat.models.quantized.forms import Quantization, forms
from pagedchat.models.quantized.mxfp4 import with_packed
from pagedchat.models.quantized.packing import Packing
from pagedchat.models.quantized.shell import quantized_shell
from pagedchat.models.quantized.unpacking import unpacked
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.cpu.kernels import CpuKernels


def load_native(
    name: str,
    config: NativeConfig,
    files: list[Path],
    *,
    dtype: torch.dtype,
    device: torch.device,
    on_progress: Callable[[int, int], None],
    quantization: Quantization | None = None,
    few_bits: bool = False,
    packing: Packing | None = None,
    kernels: CpuKernels | None = None,
) -> NativeModel:
    """Build the model and read its weights.

    Args:
        name: of the model, for messages.
        config: its shape.
        files: with the weights.
        dtype, device: what the weights are turned into, and where they go.
        on_progress: told of `(done, total)` tensors.
        quantization: of the weights, one after the other as they are read; on a CPU.
        few_bits: whether the files have weights in few bits. A CPU takes them as they are, a GPU as floats.
        packing: how they are stored there, if not as GGUF files say themselves.
        kernels: that will multiply by what is quantised, and for which it is arranged at once.

    Raises:
        ModelError: weights missing, quantised or of another shape; what a damaged file raises goes through.
        InvalidValueError: a quantisation that this model does not allow.
    """
    copies = StagedCopies(device)
    filling: Filling
    if device.type != "cpu" or (quantization is None and not few_bits):
        model = _built(name, config, files, dtype, device)
        filling = Filling(name, model, copies, on_progress)
    else:
        model = quantized_shell(config, dtype)
        wanted = {} if quantization is None else forms(name, model, quantization)
        filling = QuantizedFilling(name, model, copies, on_progress, dtype, wanted, kernels)
    tensors = read_tensors(files)
    if packing is None:
        filling.fill(with_packed(tensors))
    else:
        filling.fill(unpacked(name, packing, tensors, few_bits=device.type == "cpu"))
    copies.finish()
    return model.to(device)  # what is always worked out on the CPU


def _built(
    name: str, config: NativeConfig, files: list[Path], dtype: torch.dtype, device: torch.device
) -> NativeModel:
    """The model without values. Where there is no memory for it, the config may be at fault."""
    try:
        with new_tensors(dtype, device):
            return build(config).eval()
    except (RuntimeError, MemoryError):
        check_room(name, files, count_parameters(config))
        raise
