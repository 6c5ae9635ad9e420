"""The experts of a mixture, each with products of its own, whose weights have few bits. Knows no file."""

from collections.abc import Sequence

import torch
from torch import nn

from pagedchat.layers.experts import MixtureConfig, SparseMlp
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_linear import QuantizedLinear, Slot
from pagedchat.layers.weights import Places
from pagedchat.ops.cpu.product import Product
from pagedchat.ops.experts.expert_weight import Tile


class QuantizedExperts(nn.Module):
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
        self._gate_up, self._down = SeparateLinears(self._into), SeparateLinears(self._out)

    @property
    def has_kernels(self) -> bool:
        """Whether kernels multiply by some of them, which round what they multiply."""
        return any(linear.products for linear in (*self._gate_up.linears, *self._down.linears))

    @property
    def gate_up(self) -> "SeparateLinears":
        """See `ExpertProducts`."""
        return self._gate_up

    @property
    def down(self) -> "SeparateLinears":
        """See `ExpertProducts`."""
        return self._down

    def places(self, expert: int, gate: str, up: str, down: str) -> Places:
        """See `ExpertProducts`."""
        into, out = self._gate_up.linears[expert], self._down.linears[expert]
        width = out.in_features
        return into.part_places({gate: width, up: width}) | out.places(down)

    def merged_places(self, expert: int, into: str, out: str) -> Places:
        """See `ExpertProducts`."""
        places = {}
        for name, linear in ((into, self._gate_up.linears[expert]), (out, self._down.linears[expert])):
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


def quantize_experts(mixture: SparseMlp) -> None:
    """Put experts that have no weights yet in the place of those that a mixture has, which have none either."""
    mixture.experts = QuantizedExperts(mixture.config, mixture.router.in_features)


def _quantized(in_features: int, out_features: int) -> QuantizedLinear:
    return QuantizedLinear(Linear(in_features, out_features, bias=False))
