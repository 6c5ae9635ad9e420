"""Makes a model's replies the same in any company, bit for bit, or says in one sentence why it cannot.

Knows what that takes of the device, the type and the layers; what it is made of is in `layers.arithmetic`, in the
attention backends and in `ops`.
"""

from typing import NoReturn

import torch

from pagedchat.errors import InvalidValueError
from pagedchat.jit.driver import gpu
from pagedchat.jit.variant import Variant
from pagedchat.layers.arithmetic import InvariantArithmetic, use_arithmetic
from pagedchat.layers.linear import Linear
from pagedchat.models.description import ModelDescription
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.attention.prefill_plan import choose_invariant_tile
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.products import invariant_linear
from pagedchat.ops.products.invariant_plan import TILES, plan_tile
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendChoice
from pagedchat.runtime.attention.kernel_support import uses_tensor_cores


def refuse_description(description: ModelDescription, shape: CacheShape, device: torch.device) -> None:
    """Refuse what can be told before weights are read.

    Raises:
        InvalidValueError: another's modules run the model; the GPU's tensor cores do not multiply its type, or have
            no room for its heads.
    """
    if description.native is None:
        _refuse(f"transformers runs {description.name}, whose sums have no order of ours", "Leave the option out.")
    if device.type != "cuda":
        return
    dtype = str(shape.dtype).removeprefix("torch.")
    if not uses_tensor_cores(shape.dtype, device):
        _refuse(f"tensor cores of this GPU do not multiply {dtype}", "Use --dtype float16 or bfloat16.")
    limit = gpu(device.index or 0).shared_bytes
    if choose_invariant_tile(shape.head_dim, shape.block_size, limit) is None:
        _refuse(f"this GPU has too little shared memory for heads of {shape.head_dim}", "Leave the option out.")


def refuse_attention(attention: BackendChoice, device: torch.device) -> None:
    """Refuse attention by torch on a GPU.

    Raises:
        InvalidValueError: that was chosen.
    """
    if device.type == "cuda" and attention.name != "cuda":
        reason = attention.reason or "attention is that of torch."
        _refuse(f"on a GPU it takes our own attention: {reason.rstrip('.')}", "Use --attention-backend cuda.")


def make_invariant(name: str, model: torch.nn.Module) -> None:
    """Have all layers do their sums so that no row depends on others.

    Args:
        name: of the model.
        model: of our own modules.

    Raises:
        InvalidValueError: the kernel does not do one of its products.
    """
    for linear in _linears(model):
        missing = invariant_linear.missing_kernel(linear.weight) if linear.weight.is_cuda else ""
        if missing:
            _refuse(f"{name} has a product that its kernel does not do: {missing}", "Leave the option out.")
    use_arithmetic(model, InvariantArithmetic())


def product_variants(model: NativeModel) -> list[Variant]:
    """What the products of a model on a GPU are made by, for every number of rows."""
    weights = [linear.weight for linear in _linears(model)]
    device = weights[0].device
    limit = gpu(device.index).shared_bytes
    plans = {
        plan
        for in_features in {weight.shape[1] for weight in weights}
        for tile in TILES
        if (plan := plan_tile(tile, in_features, limit)) is not None
    }
    element = element_name(weights[0].dtype)
    return [Variant.of(invariant_linear.NAME, ELEMENT=element, **plan.constants) for plan in plans]


def _linears(model: torch.nn.Module) -> list[Linear]:
    return [module for module in model.modules() if isinstance(module, Linear)]


def _refuse(why: str, hint: str) -> NoReturn:
    raise InvalidValueError(f"--batch-invariant was asked for, but it cannot be had: {why}.", hint)
