"""Which device and element type the model runs on, and what that device has. Asks torch, decides nothing else."""

import psutil
import torch

from pagedchat.config import Device, DType
from pagedchat.errors import DeviceError
from pagedchat.runtime.step.sizes import CPU_STREAM_TOKENS, CPU_TOKENS, gpu_batch_tokens, gpu_stream_tokens

_OF_16_BITS = (torch.bfloat16, torch.float16)


def choose_device(wanted: Device) -> torch.device:
    """The first GPU if there is one ("auto"), or what was asked for.

    Raises:
        DeviceError: a GPU was asked for and torch finds none.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built_without = torch.version.cuda is None
        advice = "install a torch with CUDA" if built_without else "check the driver with nvidia-smi"
        raise DeviceError(
            "--device cuda was asked for, but there is no GPU that torch can use.",
            f"Use --device cpu, or {advice}.",
        )
    return torch.device("cuda", torch.cuda.current_device())


def choose_dtype(
    wanted: DType, device: torch.device, checkpoint: torch.dtype | None, *, large: bool = False
) -> torch.dtype:
    """The element type of weights and cache.

    Args:
        wanted: from the config; "auto" is the checkpoint's own type on a GPU; on a CPU float32, or bfloat16 for a
            large model of 16 bits that the processor multiplies.
        device: where the model runs.
        checkpoint: the type that the checkpoint names; None where it names none.
        large: whether the time of a step is that of reading the weights.
    """
    if wanted != "auto":
        dtype: torch.dtype = getattr(torch, wanted)
        return dtype
    if device.type == "cpu":
        narrow = large and checkpoint in _OF_16_BITS and multiplies_bfloat16()
        return torch.bfloat16 if narrow else torch.float32
    return checkpoint or torch.float16


def multiplies_bfloat16() -> bool:
    """Whether the processor has products of bfloat16; elsewhere they take longer than those of float32."""
    has: bool = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return has


def describe_device(device: torch.device) -> str:
    """For people: `"CPU, 8 threads"`, `"NVIDIA H200, 140 GiB"`."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU, {threads} {'thread' if threads == 1 else 'threads'}"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory / 1024**3:.0f} GiB"


def default_token_budget(device: torch.device, num_parameters: int, *, streams: bool) -> int:
    """Tokens of a step, at most, if the user does not say.

    Args:
        device: where the model runs.
        num_parameters: of the model.
        streams: whether somebody reads replies as they come.
    """
    if device.type == "cpu":
        return CPU_STREAM_TOKENS if streams else CPU_TOKENS
    gpu = torch.cuda.get_device_properties(device)
    if streams:
        return gpu_stream_tokens(gpu.multi_processor_count, num_parameters)
    return gpu_batch_tokens(gpu.total_memory, num_parameters)


def available_memory() -> int:
    """Bytes of main memory that can be had without swapping."""
    return int(psutil.virtual_memory().available)
