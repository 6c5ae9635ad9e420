"""A local checkpoint -> a model of our own modules: every tensor goes straight from its file to its place."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from pagedchat.layers.few_bits_linear import settle
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.layers.weights import new_tensors
from pagedchat.models.checkpoint_files import check_room
from pagedchat.models.checkpoint_tensors import read_tensors
from pagedchat.models.filling import Filling
from pagedchat.models.native import NativeConfig, build, count_parameters
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.filling import QuantizedFilling
from pagedchat.models.quantized.forms import Form, Quantization, forms, forms_on_gpu
from pagedchat.models.quantized.mxfp4 import with_packed
from pagedchat.models.quantized.packing import Packing
from pagedchat.models.quantized.shell import quantized_shell
from pagedchat.models.quantized.unpacking import FloatsAs, unpacked
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.ranks.company import ALONE, Ranks

log = logging.getLogger(__name__)


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
    keeps_bits: bool = True,
    packing: Packing | None = None,
    kernels: CpuKernels | None = None,
    ranks: Ranks = ALONE,
) -> NativeModel:
    """Build the model and read its weights.

    Args:
        name: of the model, for messages.
        config: its shape.
        files: with the weights.
        dtype, device: what the weights are turned into, and where they go.
        on_progress: told of `(done, total)` tensors.
        quantization: of the weights, one after the other as they are read.
        few_bits: whether the files have weights in few bits.
        keeps_bits: whether they are kept so, as far as kernels take them; else they become floats.
        packing: how they are stored there, if not as GGUF files say themselves.
        kernels: that will multiply by what is quantised, and for which it is arranged at once.
        ranks: who has the other parts, where the config is one of a part.

    Raises:
        ModelError: weights missing, quantised or of another shape; what a damaged file raises goes through.
        InvalidValueError: a quantisation that this model does not allow.
    """
    copies = StagedCopies(device)
    filling: Filling
    on_gpu, stored = device.type != "cpu", few_bits and keeps_bits
    if quantization is None and not stored:
        model = _built(name, config, files, dtype, device, ranks)
        filling = Filling(name, model, copies, on_progress)
    else:
        model = quantized_shell(config, dtype, device, stores_table=not on_gpu, ranks=ranks)
        wanted = _forms(name, model, quantization, on_gpu=on_gpu)
        filling = QuantizedFilling(name, model, copies, on_progress, dtype, wanted, device, kernels)
    tensors = read_tensors(files)
    if packing is None:
        filling.fill(with_packed(tensors))
    else:
        floats: FloatsAs = "floats" if not keeps_bits else "fp8" if on_gpu else "int8"
        filling.fill(unpacked(name, packing, tensors, floats_as=floats))
    copies.finish()
    if on_gpu and isinstance(filling, QuantizedFilling):
        _tell_of(name, settle(model, model.head, dtype))
    return model.to(device)  # what is always worked out on the CPU


def _forms(
    name: str, model: NativeModel, quantization: Quantization | None, *, on_gpu: bool
) -> dict[QuantizedLinear, list[Form]]:
    if quantization is None:
        return {}
    return forms_on_gpu(model, quantization) if on_gpu else forms(name, model, quantization)


def _tell_of(name: str, made_whole: list[str]) -> None:
    if made_whole:
        log.warning(
            "%d products of %s are stored in a form that no kernel takes, %s among them, and became 16-bit floats",
            len(made_whole),
            name,
            made_whole[0],
        )


def _built(
    name: str, config: NativeConfig, files: list[Path], dtype: torch.dtype, device: torch.device, ranks: Ranks
) -> NativeModel:
    """The model without values. Where there is no memory for it, the config may be at fault."""
    try:
        with new_tensors(dtype, device):
            return build(config, ranks).eval()
    except (RuntimeError, MemoryError):
        check_room(name, files, count_parameters(config))
        raise
