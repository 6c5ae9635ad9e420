"""The experts of a mixture, whose weights have few bits. Knows no file.

Each has products of its own, which are filled one tensor after the other. For a GPU all of them become one, once
they are there; on a CPU they stay as they are.
"""

from collections.abc import Sequence

import torch
from torch import nn

from pagedchat.layers.by_torch import HasKernels
from pagedchat.layers.experts import MixtureConfig, SparseMlp
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_linear import QuantizedLinear, Slot
from pagedchat.layers.weights import Places
from pagedchat.ops.cpu.product import Product
from pagedchat.ops.experts.expert_weight import ExpertWeight, Tile
from pagedchat.ops.experts.few_bits_tiles import objection_to_experts
from pagedchat.ops.experts.stacked_weight import ByTorch, StackedWeight
from pagedchat.ops.quantized.weight import QuantizedWeight, form, stacked


class QuantizedExperts(nn.Module, HasKernels):
    """See `ExpertProducts`. Nothing of the weights is there before it is filled.

    Args:
        config: of the mixture.
        hidden_size: of the rows.
    """

    def __init__(self, config: MixtureConfig, hidden_size: int) -> None:
        super().__init__()
        experts = range(config.num_experts)
        self._into = nn.ModuleList(_quantized(hidden_size, 2 * config.width) for _ in experts)
        self._out = nn.ModuleList(_quantized(config.width, hidden_size) for _ in experts)
        self._separate = SeparateLinears(self._into), SeparateLinears(self._out)
        self._stacked: tuple[ExpertWeight, ExpertWeight] | None = None

    @property
    def separate(self) -> "tuple[SeparateLinears, SeparateLinears]":
        """What goes into the experts and what goes out, unless they are stacked."""
        return self._separate

    @property
    def has_kernels(self) -> bool:
        """Whether kernels multiply by some of them, which round what they multiply."""
        return any(linear.products for weight in self._separate for linear in weight.linears)

    @property
    def gate_up(self) -> ExpertWeight:
        """See `ExpertProducts`."""
        return self._weight(0)

    @property
    def down(self) -> ExpertWeight:
        """See `ExpertProducts`."""
        return self._weight(1)

    def _weight(self, index: int) -> ExpertWeight:
        weight = self._separate[index] if self._stacked is None else self._stacked[index]
        return ByTorch(weight) if self.by_torch and isinstance(weight, StackedWeight) else weight

    def stack(self, dtype: torch.dtype) -> bool:
        """Make one weight of those of all experts, in few bits where a kernel takes both products so, else floats.

        Args:
            dtype: of floats.

        Returns:
            Whether what came in few bits has few.
        """
        keeps = all(_have_kernel(weight, paired=weight is self._separate[0]) for weight in self._separate)
        came = any(
            isinstance(part, QuantizedWeight)
            for weight in self._separate
            for linear in weight.linears
            for part in linear.parts
        )
        into, out = (weight.stacked() if keeps else weight.stacked_floats(dtype) for weight in self._separate)
        self._stacked = into, out
        self._into = self._out = nn.ModuleList()  # in which nothing is left
        return keeps or not came

    def places(self, expert: int, gate: str, up: str, down: str) -> Places:
        """See `ExpertProducts`."""
        into, out = (weight.linears[expert] for weight in self._separate)
        width = out.in_features
        return into.part_places({gate: width, up: width}) | out.places(down)

    def merged_places(self, expert: int, into: str, out: str) -> Places:
        """See `ExpertProducts`."""
        places = {}
        for name, weight in zip((into, out), self._separate, strict=True):
            linear = weight.linears[expert]
            linear.slots[name] = Slot(linear, 0, transposed=True, in_turns=name == into)
            places[name] = linear.weight.T
        return places


class SeparateLinears:
    """See `SeparateWeights`.

    Args:
        linears: of the experts, in order.
    """

    def __init__(self, linears: nn.ModuleList) -> None:
        self.linears = [linear for linear in linears if isinstance(linear, QuantizedLinear)]
        self.shape = torch.Size((len(linears), *self.linears[0].weight.shape))

    @property
    def kernel_products(self) -> list[Product]:
        """What kernels multiply by, expert by expert.

        Raises:
            LookupError: torch does some of it, or a weight comes in several parts.
        """
        found = [linear.products for linear in self.linears]
        if any(len(each) != 1 for each in found):
            raise LookupError("an expert has no kernels, or several")
        return [product for each in found for product in each]

    def products(self, rows: torch.Tensor, tiles: Sequence[Tile]) -> torch.Tensor:
        """See `SeparateWeights`."""
        output = rows.new_empty(len(rows), self.shape[1])
        for expert, first, num_rows in tiles:
            its_rows = slice(first, first + num_rows)
            output[its_rows] = self.linears[expert](rows[its_rows])
        return output

    def stacked(self) -> StackedWeight:
        """All in one, of the form that they have in common; nothing is left here."""
        parts = [part for linear in self.linears for part in linear.parts if isinstance(part, QuantizedWeight)]
        for linear in self.linears:
            linear.parts = []
        return StackedWeight(len(self.linears), stacked(parts))

    def stacked_floats(self, dtype: torch.dtype) -> torch.Tensor:
        """The same as floats."""
        whole = None
        for expert, linear in enumerate(self.linears):
            floats = torch.cat([_as_floats(part, dtype) for part in linear.parts])
            whole = floats.new_empty(self.shape) if whole is None else whole
            whole[expert] = floats
            linear.parts = []
        assert whole is not None  # noqa: S101 - a mixture has experts
        return whole


def quantize_experts(mixture: SparseMlp) -> None:
    """Put experts that have no weights yet in the place of those that a mixture has, which have none either."""
    mixture.experts = QuantizedExperts(mixture.config, mixture.router.in_features)


def _quantized(in_features: int, out_features: int) -> QuantizedLinear:
    return QuantizedLinear(Linear(in_features, out_features, bias=False))


def _have_kernel(weight: SeparateLinears, *, paired: bool) -> bool:
    """Whether all experts have one form, which a kernel takes."""
    parts = [linear.parts for linear in weight.linears]
    few = [each[0] for each in parts if len(each) == 1 and isinstance(each[0], QuantizedWeight)]
    if len(few) < len(parts) or len({form(each) for each in few}) > 1:
        return False
    out_features = weight.shape[1] // (2 if paired else 1)
    return not objection_to_experts(few[0].form, weight.shape[2], out_features)


def _as_floats(part: object, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(part, QuantizedWeight):
        return part.dequantized(dtype)
    assert isinstance(part, torch.Tensor)  # noqa: S101 - a CPU's kernels stack nothing
    return part.to(dtype)
