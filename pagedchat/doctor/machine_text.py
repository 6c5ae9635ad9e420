"""What was found on the machine as lines for people."""

from pagedchat.doctor.machine import Machine, Torch
from pagedchat.jit.driver import Gpu
from pagedchat.units import format_size

_MISSING = "not installed"


def machine_text(machine: Machine) -> str:
    """All but torch."""
    lines = [
        f"pagedchat {machine.pagedchat} on {machine.system}, Python {machine.python}",
        "",
        _line("driver", _driver(machine)),
        *(_line(f"GPU {gpu.index}", _gpu(gpu)) for gpu in machine.gpus),
        *([_line("GPU", f"none. {machine.no_gpu} Chats run on the CPU.")] if machine.no_gpu else []),
        _line("packages", ", ".join(f"{name} {found or _MISSING}" for name, found in machine.packages.items())),
        *_toolchain(machine),
        _line("CPU kernels", _cpu_kernels(machine)),
        _line("kernel cache", _cache(machine)),
    ]
    return "\n".join(lines)


def torch_text(torch: Torch) -> str:
    """One line."""
    if torch.version is None:
        return _line("torch", f"cannot be imported: {torch.problem}")
    built = f"built for CUDA {torch.cuda}" if torch.cuda else "built without CUDA"
    return _line("torch", f"{torch.version}, {built}, {'sees the GPU' if torch.sees_gpu else 'sees no GPU'}")


def _driver(machine: Machine) -> str:
    if machine.cuda is None:
        return "none"
    release = f"NVIDIA {machine.driver}, " if machine.driver else ""
    return f"{release}CUDA up to {machine.cuda}"


def _gpu(gpu: Gpu) -> str:
    return (
        f"{gpu.name}, {gpu.architecture}, {format_size(gpu.memory_bytes)}, "
        f"{gpu.num_multiprocessors} multiprocessors with {format_size(gpu.shared_bytes)} of shared memory"
    )


def _toolchain(machine: Machine) -> list[str]:
    found = machine.toolchain
    if found is None:
        return [_line("NVRTC", machine.no_toolchain)]
    return [
        _line("NVRTC", f"{found.nvrtc_version}, {found.nvrtc_path}"),
        _line("CUDA headers", f"{found.headers_version}, {found.headers}"),
    ]


def _cpu_kernels(machine: Machine) -> str:
    if machine.no_cpu:
        return f"none, since {machine.no_cpu}; on a CPU torch computes all."
    return f"{machine.cpu}; float32, bfloat16, int8 and int4"


def _cache(machine: Machine) -> str:
    if machine.no_cache:
        return (
            f"{machine.cache_folder} is not used, since {machine.no_cache}. "
            "Set PAGEDCHAT_CACHE_DIR to a folder of your own."
        )
    entries = "1 entry" if machine.cache_entries == 1 else f"{machine.cache_entries} entries"
    return f"{machine.cache_folder}, {entries}, {format_size(machine.cache_bytes)}"


def _line(name: str, text: str) -> str:
    return f"{name:<14}{text}"
