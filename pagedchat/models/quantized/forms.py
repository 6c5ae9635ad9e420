"""Which weights of a model are brought into how many bits, and in which groups. Knows no values.

Into few bits go the products of the layers and the head. Where that is 4, values have 8 (of keys, values and
queries they are the ones whose error no softmax takes back; on the model in the box that is a third of the
divergence, and in a model of grouped heads next to nothing of its weights). In narrow models so does what goes into
an activation without a gate: such a one lets through what is above zero, so that errors around it do not cancel out
but add to its output. In the model in the box that alone was 2.7 % of the perplexity, of 3.0 % in all, for a third
of the weights. How much it is in wide ones nobody has measured, and their steps are as slow as bytes are many.

Of a mixture the experts go into few bits, a router and the gate of what all tokens share do not: they are narrow,
and a token that another expert gets is another token.

All else stays: norms, biases and what turns positions into rows are next to nothing of a model, an error in an
embedding's row goes through all layers, and the narrow products around them, which only one old family has, too.
The head has 8 bits even where the layers have 4: its error is in every logit as it is. A tied head is a copy of its
own, and the table stays as it is stored, in its file: a step reads one row of that for each token and every row of
the head, which in 8 bits is a quarter of the bytes of float32, and half the memory that a table of 16 bits would
take.

On a GPU bytes are time and products are launches: 8 bits have a scale a row, and groups of 4 bits are as large as
can be. What no kernel takes stays whole.
"""

from dataclasses import dataclass
from typing import Literal

from pagedchat.errors import InvalidValueError
from pagedchat.layers.attention import Attention
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import Mlp
from pagedchat.layers.quantized_experts import QuantizedExperts, SeparateLinears
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.experts.few_bits_tiles import objection_to_experts
from pagedchat.ops.products.streamed_plan import UNIT, takes
from pagedchat.ops.quantized.weight_form import WeightForm

Quantization = Literal["int8", "int4", "fp8"]
"""Of the layers' products."""

_SMALLEST_GROUP, _LARGEST_GROUP = 32, 128
_NARROW = 1024
"""Inputs of a product, up to which a model is narrow."""
_BITS: dict[Quantization, int] = {"int8": 8, "int4": 4, "fp8": 8}
_GROUPS_ON_GPU = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class Form:
    """Of the rows of a weight up to one."""

    stop: int
    """The first row that is not among them."""
    bits: int
    group_size: int
    floats: bool = False
    """8-bit floats instead of integers."""


def forms(name: str, model: NativeModel, quantization: Quantization) -> dict[QuantizedLinear, list[Form]]:
    """The products that are quantised, each with the forms of its rows in their order.

    Args:
        name: of the model, for the message.
        model: of quantised layers, without values.
        quantization: of the layers.

    Raises:
        InvalidValueError: no groups of 4 bits divide the width of a product.
    """
    bits = _BITS[quantization]
    found: dict[QuantizedLinear, list[Form]] = {}
    whole = _kept_whole(model)
    for module in model.get_submodule("layers").modules():
        if isinstance(module, Attention) and bits == 4:
            _add(found, name, module.qkv, (module.qkv.out_features - module.heads.kv_width, 4))
            _add(found, name, module.qkv, (module.qkv.out_features, 8))
        elif isinstance(module, Mlp) and module.up.in_features <= _NARROW:
            _add(found, name, module.up, (module.up.out_features, 8))
        elif isinstance(module, QuantizedLinear) and module not in found and module not in whole:
            _add(found, name, module, (module.out_features, bits))
    _add(found, name, model.head, (model.head.out_features, 8))
    return found


def _kept_whole(model: NativeModel) -> set[Linear]:
    mixtures = [module for module in model.modules() if isinstance(module, SparseMlp)]
    return {each for mixture in mixtures for each in (mixture.router, mixture.shared_gate) if each is not None}


def forms_on_gpu(model: NativeModel, quantization: Quantization) -> dict[QuantizedLinear, list[Form]]:
    """The same for kernels of a GPU."""
    layers = model.get_submodule("layers")
    values = {each.qkv: each.heads.kv_width for each in layers.modules() if isinstance(each, Attention)}
    whole = _kept_whole(model)
    found = _forms_of_experts(model, quantization)
    of_experts = {linear for module in _experts(model) for weight in module.separate for linear in weight.linears}
    for module in (*layers.modules(), model.head):
        if isinstance(module, QuantizedLinear) and module not in {*found, *whole, *of_experts}:
            in_8 = module.out_features if module is model.head else values.get(module, 0)
            whole_units = module is model.head or module.out_features % UNIT == 0
            chosen = _forms_on_gpu(module, quantization, in_8)
            if chosen and whole_units:
                found[module] = chosen
    return found


def _experts(model: NativeModel) -> list[QuantizedExperts]:
    return [module for module in model.modules() if isinstance(module, QuantizedExperts)]


def _forms_of_experts(model: NativeModel, quantization: Quantization) -> dict[QuantizedLinear, list[Form]]:
    """Of all that a kernel of a GPU takes: both products of all experts, or nothing."""
    found: dict[QuantizedLinear, list[Form]] = {}
    for module in _experts(model):
        into, out = module.separate
        forms = [_form_of_expert(each, paired=each is into, quantization=quantization) for each in (into, out)]
        for weight, form in zip((into, out), forms, strict=True):
            if form is not None and None not in forms:
                found |= {linear: [form] for linear in weight.linears}
    return found


def _form_of_expert(weight: SeparateLinears, *, paired: bool, quantization: Quantization) -> Form | None:
    _, num_rows, width = weight.shape
    columns = num_rows // 2 if paired else num_rows
    if quantization == "int4":
        for group in _GROUPS_ON_GPU:
            form = WeightForm("int4", group, has_minimums=True)
            if width % group == 0 and not objection_to_experts(form, width, columns):
                return Form(num_rows, 4, group)
    if objection_to_experts(WeightForm("int8"), width, columns):
        return None
    return Form(num_rows, 8, width, floats=quantization == "fp8")


def _forms_on_gpu(linear: QuantizedLinear, quantization: Quantization, in_8: int) -> list[Form]:
    """`in_8`: the last rows, which have 8 bits where others have 4. Empty: no kernel takes these sizes."""
    width, num_rows = linear.in_features, linear.out_features
    of_4 = _form_of_4(width, num_rows - in_8) if quantization == "int4" and in_8 % UNIT == 0 else None
    if of_4 is not None and not in_8:
        return [of_4]
    if not takes(WeightForm("int8"), width, num_rows):
        return []
    of_8 = Form(num_rows, 8, width, floats=quantization == "fp8")
    return [of_8] if of_4 is None else [of_4, of_8]


def _form_of_4(width: int, num_rows: int) -> Form | None:
    for group in _GROUPS_ON_GPU:
        fits = width % group == 0 and takes(WeightForm("int4", group, has_minimums=True), width, num_rows)
        if fits and num_rows % UNIT == 0 and num_rows > 0:
            return Form(num_rows, 4, group)
    return None


def _add(
    found: dict[QuantizedLinear, list[Form]], name: str, linear: Linear, stop_and_bits: tuple[int, int]
) -> None:
    if isinstance(linear, QuantizedLinear):
        stop, bits = stop_and_bits
        found.setdefault(linear, []).append(Form(stop, bits, _group_size(name, linear.in_features, bits)))


def _group_size(name: str, width: int, bits: int) -> int:
    """8 bits: groups of 32, or else whole rows. 4 bits: the smallest that divides the width."""
    if bits == 8:
        return width if width % _SMALLEST_GROUP else _SMALLEST_GROUP
    groups = range(_SMALLEST_GROUP, _LARGEST_GROUP + 1)
    found = next((group for group in groups if width % group == 0), None)
    if found is None or width % 2:
        raise InvalidValueError(
            f"--quantize int4 takes groups of {_SMALLEST_GROUP} to {_LARGEST_GROUP} weights, and {name} has a "
            f"product of {width} inputs, which none of them divides.",
            "Use --quantize int8 or none.",
        )
    return found
