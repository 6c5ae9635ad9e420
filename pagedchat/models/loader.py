"""A local checkpoint -> a model, of our own modules or of transformers. Runs no code from the checkpoint."""

from collections.abc import Callable

import torch

from pagedchat.errors import DeviceError, InvalidValueError, is_out_of_memory
from pagedchat.models.checkpoint_files import check_whole, weight_files
from pagedchat.models.checkpoint_tensors import explain
from pagedchat.models.description import ModelDescription
from pagedchat.models.native_loader import load_native
from pagedchat.models.quantized.forms import Quantization
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.ranks.company import ALONE, Ranks


def load_weights(
    description: ModelDescription,
    *,
    attention: str,
    dtype: torch.dtype,
    device: torch.device,
    on_progress: Callable[[int, int], None] = lambda *_: None,
    quantization: Quantization | None = None,
    kernels: CpuKernels | None = None,
    keeps_bits: bool = True,
    ranks: Ranks = ALONE,
) -> torch.nn.Module:
    """Read the weights.

    Args:
        description: from `describe_model`.
        attention: name of the attention function that a transformers model calls.
        dtype: element type that the weights are turned into.
        device: where they go.
        on_progress: told of `(done, total)` tensors.
        quantization: of the weights of a model of our own modules, while they are read.
        kernels: of this CPU, that will multiply by what is quantised, and for which it is arranged at once.
        keeps_bits: whether weights that are stored in few bits are kept so; else they become floats.
        ranks: who has the other parts of a model of our own modules, where the description is of one.

    Returns:
        The model, in evaluation mode, without gradients; a `NativeModel` where the description has a native config.

    Raises:
        ModelError: weights missing, damaged or of another model.
        DeviceError: not enough memory.
        InvalidValueError: a quantisation that this model does not allow.
    """
    files = weight_files(description.name, description.folder)
    check_whole(description.name, files, description.num_layers)
    try:
        if description.native is not None:
            return load_native(
                description.name,
                description.native,
                files,
                dtype=dtype,
                device=device,
                on_progress=on_progress,
                quantization=quantization,
                few_bits=bool(description.stored_as),
                keeps_bits=keeps_bits,
                packing=description.packing,
                kernels=kernels,
                ranks=ranks,
            )
        from pagedchat.models.transformers_loader import load_transformers  # noqa: PLC0415 - not always needed

        return load_transformers(
            description, files, attention=attention, dtype=dtype, device=device, on_progress=on_progress
        )
    except InvalidValueError:
        raise
    except Exception as error:  # of many kinds, for the many ways in which a checkpoint can be wrong
        if is_out_of_memory(error):
            raise DeviceError(
                f"There is not enough memory on {device} for the weights of {description.name}.",
                "Free some memory, or choose a smaller model.",
            ) from error
        explained = explain(description.name, files, error)
        if explained is error:
            raise
        raise explained from error
