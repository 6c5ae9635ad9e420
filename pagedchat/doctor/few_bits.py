"""In which forms the weights of a model would be if it were quantised on a GPU: what `pagedchat doctor --model X
--quantize FORM` asks the tables with. Reads no weights.
"""

import torch

from pagedchat.errors import InvalidValueError
from pagedchat.jit.driver import Gpu
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_experts import QuantizedExperts
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_layer import DecoderLayer
from pagedchat.models.description import ModelDescription
from pagedchat.models.quantized.forms import Form, Quantization, forms_on_gpu
from pagedchat.models.quantized.shell import quantized_shell
from pagedchat.ops.quantized.weight_form import Kind, WeightForm
from pagedchat.runtime.graphs.step_facts import EXPERTS, HEAD, VALUES
from pagedchat.runtime.loading.precision import objection_on_gpu, refuse

_KINDS: dict[str, Quantization] = {"int8": "int8", "int4": "int4", "fp8": "fp8"}


def forms_if_quantised(
    description: ModelDescription, wanted: str, dtype: torch.dtype, gpu: Gpu | None, *, invariant: bool
) -> dict[str, WeightForm]:
    """By the names of products, `HEAD` and `EXPERTS`, those that stay whole left out.

    Args:
        description: of the model.
        wanted: what `--quantize` says.
        dtype: of rows.
        gpu: where it would run; None for a CPU.
        invariant: whether replies are to be the same in any company.

    Raises:
        InvalidValueError: another form, or one that cannot be had.
    """
    quantization = _KINDS.get(wanted)
    if quantization is None:
        raise InvalidValueError(f"--quantize is {wanted!r:.60}.", f"Choose one of {', '.join(_KINDS)}.")
    if gpu is None:
        return {}
    objection = objection_on_gpu(description, dtype, gpu.compute_capability, invariant=invariant)
    if objection is not None:
        refuse(quantization, *objection)
    assert description.native is not None  # noqa: S101 - else there is an objection
    shell = quantized_shell(description.native, dtype, torch.device("meta"))
    assert isinstance(shell, Decoder)  # noqa: S101 - all of ours are
    found = forms_on_gpu(shell, quantization)
    named: dict[str, Linear] = {HEAD: shell.head}
    layer = shell.layers[0]
    assert isinstance(layer, DecoderLayer)  # noqa: S101 - a decoder has no others
    named |= layer.products
    experts = next((each for each in shell.modules() if isinstance(each, QuantizedExperts)), None)
    if experts is not None:
        named[EXPERTS] = experts.separate[0].linears[0]
    chosen = {name: found.get(linear) for name, linear in named.items() if isinstance(linear, QuantizedLinear)}
    as_weights = {
        name: [_as_weight_form(named[name], form) for form in found] for name, found in chosen.items() if found
    }
    values = {VALUES: as_weights["qkv"][-1]} if "qkv" in as_weights else {}
    return {name: found[0] for name, found in as_weights.items()} | values


def _as_weight_form(linear: Linear, form: Form) -> WeightForm:
    kind: Kind = "fp8" if form.floats else "int8" if form.bits == 8 else "int4"
    group = 0 if form.group_size == linear.in_features else form.group_size
    return WeightForm(kind, group, has_minimums=kind == "int4")
