"""Loads a checkpoint in a process of its own and prints how far its memory went up: `python peak_memory.py DIR
FORM`.

Kernels have it, where there are any. Prints, in bytes: the peak above what there was before, what is held at last,
what the weights take then, and a layer's floats.
"""

import gc
import sys
from pathlib import Path

import torch

from pagedchat.layers.quantized_linear import stored_parts
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.description import ModelDescription
from pagedchat.models.loader import load_weights
from pagedchat.models.quantized.shell import quantized_shell
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.ops.cpu.packing import packed_weight
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.runtime.loading.cpu_process import give_back_now


def in_use(field: str) -> int:
    """Of this process, by the kernel's account: `VmHWM` is the peak, `VmRSS` what is held now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def warm_up(description: ModelDescription) -> None:
    """What torch imports and takes once, however small a model is."""
    assert description.native is not None
    quantized_shell(description.native, torch.float32)
    for bits in (4, 8):
        few = quantize(torch.randn(512, 1024), bits, 32)
        torch.cat((few.dequantized(), torch.ones(1, 1024)))
        packed_weight(few, 128)
    cpu_kernels()


def main(folder: str, quantization: str) -> None:
    torch.set_num_threads(1)
    description = describe_model("m", Path(folder))
    warm_up(description)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = in_use("VmRSS")
    model = load_weights(
        description, attention="", dtype=torch.float32, device=torch.device("cpu"), quantization=quantization,
        kernels=cpu_kernels(),
    )  # fmt: skip
    use_cpu_linears(model, available=0)
    peak = in_use("VmHWM") - before
    give_back_now()
    held = in_use("VmRSS") - before
    table = model.embedding.table  # stays in its file
    kept = sum(part.nbytes for part in stored_parts(model) if part is not table)
    kept += sum(each.nbytes for each in model.parameters())
    layer = sum(
        linear.in_features * linear.out_features * 4
        for linear in model.layers[0].modules()
        if hasattr(linear, "parts")
    )
    print(peak, held, kept, layer)


main(*sys.argv[1:])
