"""Linear layers that are fast on a CPU for one row and for many. Knows nothing of attention or of the engine.

One weight layout is not best for both. A single row is a matrix-vector product, limited by memory, and quickest
with the weight stored `[in_features, out_features]`. For several rows (chats decoding together) oneDNN with a
weight that it has packed for itself is quickest. For a long prompt it makes little difference: some percent in
favour of the packed one where the output is much wider than the input, as in gate and up of a gated feed-forward,
and against it elsewhere. So each layer keeps both, as long as memory is plentiful.
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

from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear

MEMORY_SHARE = 0.125
"""Part of free memory that second copies of weights may take."""

_PACKED_FOR_ROWS = 16
_MAX_PACKED_ROWS = 128
_NO_ACTIVATION: tuple[str, list[float], str] = ("none", [], "")


class CpuLinear(nn.Module):
    """Takes the place of a linear layer for inference in float32.

    Args:
        linear: the layer; its weight `[out_features, in_features]` may be shared with an embedding.
    """

    def __init__(self, linear: nn.Linear | Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(weight.t().contiguous().t(), requires_grad=False)
        self.bias = linear.bias
        self._widens = self.out_features >= 2 * self.in_features
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., in_features]` -> `[..., out_features]`."""
        num_rows = rows.numel() // self.in_features
        if num_rows == 1 or (num_rows > _MAX_PACKED_ROWS and not self._widens):
            return functional.linear(rows, self.weight, self.bias)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, *_NO_ACTIVATION)
        return product


def use_cpu_linears(model: nn.Module, available: int) -> int:
    """Replace linear layers of a float32 model on a CPU, in order, while the copies fit into a part of memory.

    Args:
        model: changed in place.
        available: bytes of free main memory.

    Returns:
        How many layers were replaced; 0 where this build of torch has no oneDNN.
    """
    if not has_packed_linear():
        return 0
    budget, replaced = int(available * MEMORY_SHARE), 0
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding | Embedding)]
    embedded = {embedding.weight.data_ptr() for embedding in embeddings}
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if not isinstance(child, nn.Linear | Linear) or type(child) not in (nn.Linear, Linear):
                continue
            copies = 2 if child.weight.data_ptr() in embedded else 1
            num_bytes = copies * child.weight.numel() * child.weight.element_size()
            if num_bytes <= budget:
                setattr(parent, name, CpuLinear(child))
                budget -= num_bytes
                replaced += 1
    return replaced


def has_packed_linear() -> bool:
    """Whether this build of torch can multiply by weights that oneDNN has packed."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")
