"""A checkpoint whose weights are those that another has once they are quantised: what transformers is asked."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pagedchat.layers.quantized_linear import QuantizedLinear, Slot
from pagedchat.models.config import describe_model
from pagedchat.models.quantized.forms import Form, Quantization, forms, forms_on_gpu
from pagedchat.models.quantized.shell import quantized_shell
from pagedchat.ops.cpu.four_bits import FitFourBits
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.ops.cpu.packing import takes_groups_of
from pagedchat.ops.quantized.quantize import FourBits, quantize


def dequantised_checkpoint(
    folder: Path, checkpoint: Path, quantization: Quantization, *, on_gpu: bool = False, device: str = "cpu"
) -> Path:
    """Save it in `folder`; returns that. The head has weights of its own. `on_gpu`: in the forms that a GPU has.
    `device`: where weights are quantised, whose sums need not be the same bits elsewhere."""
    config = describe_model("tiny", checkpoint).native
    assert config is not None
    model = quantized_shell(config, torch.float32)
    model.places()
    slots = {
        name: slot
        for module in model.modules()
        if isinstance(module, QuantizedLinear)
        for name, slot in module.slots.items()
    }
    wanted = forms_on_gpu(model, quantization) if on_gpu else forms("tiny", model, quantization)
    tensors = load_file(checkpoint / "model.safetensors")
    if model.tied:
        own = next(name for name in tensors if any(p + name == model.embedding_name for p in model.prefixes))
        tensors[model.head_name] = tensors[own].clone()
    kernels = None if on_gpu else cpu_kernels()
    four_bits = None if kernels is None else FitFourBits(kernels.address("fit_4_bits"))
    orders, joined = model.orders(), model.joined()
    for name, tensor in tensors.items():
        full = next((p + name for p in ("", *model.prefixes) if p + name in slots or p + name in joined), None)
        if full in joined:
            names = joined[full]
            parts = tensor if len(tensor) == len(names) else tensor.flatten(0, -2).chunk(len(names))
            meant = [
                _meant(part.to(device), slots[at], None, wanted, four_bits).cpu()
                for part, at in zip(parts, names, strict=True)
            ]
            tensors[name] = torch.cat(meant).view(tensor.shape)
        elif full is not None:
            tensors[name] = _meant(tensor.to(device), slots[full], orders.get(full), wanted, four_bits).cpu()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((checkpoint / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"tie_word_embeddings": False}))
    return folder


def _meant(
    tensor: torch.Tensor,
    slot: Slot,
    order: torch.Tensor | None,
    wanted: dict[QuantizedLinear, list[Form]],
    four_bits: FourBits | None,
) -> torch.Tensor:
    """What few bits stand for, in the order of the checkpoint; what stays whole as it is."""
    if slot.linear not in wanted:
        return tensor
    rows = tensor.T if slot.transposed else tensor
    if order is None:
        order = torch.arange(len(rows))
        order = torch.cat((order[::2], order[1::2])) if slot.in_turns else order
    floats, first = torch.empty_like(rows), 0
    for form in wanted[slot.linear]:
        stop = max(first, min(form.stop - slot.start, len(rows)))
        chosen = order[first:stop]
        if len(chosen):
            by = four_bits if takes_groups_of(form.group_size) else None
            few = quantize(rows[chosen], form.bits, form.group_size, floats=form.floats, four_bits=by)
            floats[chosen] = few.dequantized()
        first = stop
    return (floats.T if slot.transposed else floats).contiguous()
