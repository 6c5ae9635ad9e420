"""Linear layers that are fast on a CPU for one row and for many. Knows nothing of attention or of the engine.

Where there are kernels of our own (`ops.cpu`) they multiply a few rows, by the weight as checkpoints have it, at
the speed of memory, and on some processors many rows by one in bfloat16; a copy that oneDNN has packed for itself
is for long prompts alone. Without them there are
two more layouts, and one is not best for both. A single row is a matrix-vector product, limited by memory, and
quickest with the weight stored `[in_features, out_features]`. For several rows (chats decoding together) oneDNN
with a weight that it has packed for itself is quickest. For a long prompt it makes little difference: some percent
in favour of the packed one where the output is much wider than the input, as in gate and up of a gated feed-
forward, and against it elsewhere. So each layer keeps both, as long as memory is plentiful.
Products of an OPT-125m step, 48 + 24 layers without the head, on two cores, in ms:

======================== ====== ====== ====== ====== ======
rows                          1      2      8     32    128
======================== ====== ====== ====== ====== ======
as stored in checkpoints   11.1   11.7   26.1   31.9   69.1
`[in, out]`                10.6   17.7   20.7   34.4   65.8
packed by oneDNN           13.9   14.4   16.9   27.4   63.8
======================== ====== ====== ====== ====== ======
"""

import torch
from torch import nn
from torch.nn import functional

from pagedchat.layers.by_torch import HasKernels
from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_linear import QuantizedLinear, StoredEmbedding
from pagedchat.ops.cpu import linear as ops
from pagedchat.ops.cpu.kernels import CpuKernels, cpu_kernels
from pagedchat.ops.cpu.product import Product

MEMORY_SHARE = 0.125
"""Part of free memory that second copies of weights may take."""

_PACKED_FOR_ROWS = 16
_MAX_PACKED_ROWS = 128
_NO_ACTIVATION: tuple[str, list[float], str] = ("none", [], "")


class KernelLinear(nn.Module, HasKernels):
    """Takes the place of a linear layer for inference: a few rows by kernels, more by a library.

    Args:
        linear: the layer, in float32 or bfloat16; its weight stays where it is.
        kernels: of this process.
        packs: whether oneDNN has a copy of the weight.
    """

    def __init__(self, linear: nn.Linear | Linear, kernels: CpuKernels, *, packs: bool) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._by_kernels = ops.CpuLinear(weight, linear.bias, kernels=kernels)
        product = self._by_kernels.product
        self._products: tuple[Product, ...] = () if product is None else (product,)
        self._packed = _packed(weight) if packs else None

    @property
    def products(self) -> tuple[Product, ...]:
        """What whole steps take from here; none where torch multiplies."""
        return () if self.by_torch else self._products

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., in_features]` -> `[..., out_features]`."""
        num_rows = rows.numel() // self.in_features
        if self._by_kernels.takes(num_rows) and not self.by_torch:
            product = self._by_kernels(rows.reshape(num_rows, self.in_features))
            return product.view(*rows.shape[:-1], self.out_features)
        if self._packed is None:
            return functional.linear(rows, self.weight, self.bias)
        return _by_onednn(rows, self._packed, self.bias)


class CpuLinear(nn.Module):
    """The same without kernels.

    Args:
        linear: the layer; its weight `[out_features, in_features]` may be shared with an embedding.
    """

    def __init__(self, linear: nn.Linear | Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._is_float32 = weight.dtype == torch.float32
        kept = weight.t().contiguous().t() if self._is_float32 else weight
        self.weight = nn.Parameter(kept, requires_grad=False)
        self.bias = linear.bias
        self._widens = self.out_features >= 2 * self.in_features
        self._packed = _packed(weight)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., in_features]` -> `[..., out_features]`."""
        num_rows = rows.numel() // self.in_features
        is_long = num_rows > _MAX_PACKED_ROWS and not self._widens
        if self._is_float32 and (num_rows == 1 or is_long):
            return functional.linear(rows, self.weight, self.bias)
        return _by_onednn(rows, self._packed, self.bias)


def use_cpu_linears(model: nn.Module, available: int) -> int:
    """Replace linear layers of a model on a CPU, in order; copies are made while they fit into a part of memory.
    Those with weights of few bits stay, and are given their kernels.

    Args:
        model: changed in place; in float32, or in bfloat16 where the processor multiplies it; filled.
        available: bytes of free main memory.

    Returns:
        How many layers were replaced; 0 where this build of torch has no oneDNN, and there are no kernels.
    """
    kernels = cpu_kernels()
    if kernels is not None:
        tables = [module for module in model.modules() if isinstance(module, StoredEmbedding)]
        for module in model.modules():
            if isinstance(module, QuantizedLinear):
                module.use_kernels(kernels, tables)
    elif not has_packed_linear():
        return 0
    budget, replaced = int(available * MEMORY_SHARE), 0
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding | Embedding)]
    embedded = {embedding.weight.data_ptr() for embedding in embeddings}
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if not isinstance(child, nn.Linear | Linear) or type(child) not in (nn.Linear, Linear):
                continue
            weight = child.weight
            copies = 2 if kernels is None and weight.data_ptr() in embedded else 1
            num_bytes = copies * weight.numel() * weight.element_size()
            fits = num_bytes <= budget and has_packed_linear()
            if kernels is not None and not ops.objection_to(weight):
                fits = fits and weight.dtype == torch.float32  # 16 bits are for those who are short of memory
                setattr(parent, name, KernelLinear(child, kernels, packs=fits))
            elif fits and _onednn_multiplies(weight.dtype):
                setattr(parent, name, CpuLinear(child))
            else:
                continue
            budget -= num_bytes if fits else 0
            replaced += 1
    return replaced


def has_packed_linear() -> bool:
    """Whether this build of torch can multiply by weights that oneDNN has packed."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn_multiplies(dtype: torch.dtype) -> bool:
    """Whether that is fast, or there at all, on this processor."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def _packed(weight: torch.Tensor) -> torch.Tensor | None:
    if not (has_packed_linear() and _onednn_multiplies(weight.dtype)):
        return None
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)
    return packed


def _by_onednn(rows: torch.Tensor, packed: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, *_NO_ACTIVATION)
    return product
