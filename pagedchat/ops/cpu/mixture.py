"""A mixture of experts with weights of few bits as jobs for kernels: from rows and a router's logits to the sum of
what each row gets. Knows no model; whoever makes jobs keeps what their addresses are of.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from pagedchat.jit.cpu.pool import Job
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.mixture_kernels import COLUMNS_OF_SUM, RUN_WORDS
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.cpu.product import Product, ProductInputs, RowNorm, Rows, float_bits
from pagedchat.ops.experts.gate import Gate

_COPIES_AT_ONCE = 4


class ExpertTables:
    """One of the two products of all experts.

    Args:
        products: of the experts, in order, without biases.
        biases: `[num_experts, out_features]`; None adds nothing.

    Raises:
        LookupError: their weights are not of few bits, or not in one form.
    """

    def __init__(self, products: Sequence[Product], biases: torch.Tensor | None = None) -> None:
        packed = [product.weight for product in products if isinstance(product.weight, PackedWeight)]
        forms = {(each.name, each.group_size, each.out_features, each.in_features) for each in packed}
        if len(packed) < len(products) or len(forms) > 1:
            raise LookupError("experts have weights that are not of one form of few bits")
        self.first = products[0]
        """Whose sizes all have."""
        self.name = packed[0].name
        """Of the kernel of one product."""
        self.num_experts = len(products)
        self._products = tuple(products)
        self.digits, self.scales = (_addresses([getattr(each, part) for each in packed]) for part in _PARTS)
        minimums = [each.minimums for each in packed if each.minimums is not None]
        self.minimums = _addresses(minimums) if minimums else None
        self.biases = None if biases is None else biases.detach().float().contiguous()

    @property
    def nbytes(self) -> int:
        """Of all weights."""
        return sum(product.nbytes for product in self._products)

    def job(
        self, kernels: CpuKernels, inputs: ProductInputs, runs: torch.Tensor, output: Rows, num_runs: int
    ) -> Job:
        """Of all runs."""
        alone = self.first.job(kernels, inputs, 1, output)
        words = list(alone.arguments)
        words[0], words[10] = self.digits.data_ptr(), self.scales.data_ptr()
        words[11] = 0 if self.minimums is None else self.minimums.data_ptr()
        words[3] = 0 if self.biases is None else self.biases.data_ptr()
        words[6] = runs.data_ptr()
        address = kernels.address(f"experts_{self.name}")
        return Job(address, num_runs * alone.units, alone.chunk, [*words, alone.units])


class MixtureMemory:
    """For as many rows of mixtures of the same sizes, one after the other.

    Args:
        num_rows: at most.
        per_token: experts of a row.
        into, out: of any of the mixtures.
    """

    def __init__(self, num_rows: int, per_token: int, into: ExpertTables, out: ExpertTables) -> None:
        num_pairs, width = num_rows * per_token, out.first.in_features
        num_experts, hidden = into.num_experts, into.first.in_features
        self.logits = torch.empty(num_rows, num_experts)
        self.experts = torch.zeros(num_pairs, dtype=torch.int64)
        self.weights = torch.empty(num_pairs)
        self.counts = torch.zeros(num_experts, dtype=torch.int64)
        self.runs = torch.zeros(min(num_pairs, num_experts), RUN_WORDS, dtype=torch.int64)
        self.places = torch.zeros(num_pairs, dtype=torch.int64)
        self.rows = torch.zeros(num_pairs, dtype=torch.int64)
        self.inputs = ProductInputs.for_rows(num_rows, hidden)
        self.gathered = ProductInputs.for_rows(num_pairs, max(hidden, width))
        self.middle = torch.empty(num_pairs, into.first.out_features)
        self.products = torch.empty(num_pairs, hidden)


class Mixed(NamedTuple):
    """What becomes of products, and where it goes."""

    output: Rows
    adds: bool = False
    """To what the output holds."""
    shared: int = 0
    """Address of what all rows get besides, float32 `[num_rows, hidden]`; 0: of nothing."""
    shared_logits: int = 0
    """Of logits of the sigmoid that this is multiplied by, float32 `[num_rows]`."""


class CpuMixture(NamedTuple):
    """The experts of one layer."""

    into: ExpertTables
    out: ExpertTables
    per_token: int
    sums_to_one: bool
    """The weights of a row."""
    gate: Gate

    def jobs(
        self,
        kernels: CpuKernels,
        memory: MixtureMemory,
        rows: Rows,
        num_rows: int,
        mixed: Mixed,
        *,
        norm: RowNorm | None = None,
    ) -> list[tuple[str, Job]]:
        """All of it, each with a name for what is done; the logits are in the memory.

        Args:
            kernels: of this process.
            memory: for so many rows.
            rows: what experts get.
            num_rows: how many there are.
            mixed: where the sum goes.
            norm: of the rows, if there is one.
        """
        num_pairs = num_rows * self.per_token
        num_runs = min(num_pairs, self.into.num_experts)
        middle, products = (Rows(each.data_ptr(), each.shape[1]) for each in (memory.middle, memory.products))
        return [
            ("which experts", self._routes_job(kernels, memory, num_rows)),
            ("rows by experts", self._groups_job(kernels, memory, num_pairs, num_runs)),
            ("input of experts", self._inputs_job(kernels, memory.inputs, rows, num_rows, norm)),
            ("input of experts", self._gathering_job(kernels, memory, num_pairs)),
            ("experts up", self.into.job(kernels, memory.gathered, memory.runs, middle, num_runs)),
            ("input of experts down", self._gates_job(kernels, memory.gathered, middle, num_pairs)),
            ("experts down", self.out.job(kernels, memory.gathered, memory.runs, products, num_runs)),
            ("sum of experts", self._sum_job(kernels, memory, num_rows, mixed)),
        ]

    def _routes_job(self, kernels: CpuKernels, memory: MixtureMemory, num_rows: int) -> Job:
        arguments = (
            memory.logits.data_ptr(), memory.logits.shape[1], self.into.num_experts, self.per_token,
            int(self.sums_to_one), memory.experts.data_ptr(), memory.weights.data_ptr(),
        )  # fmt: skip
        return Job(kernels.address("route_rows"), num_rows, 1, arguments)

    def _groups_job(self, kernels: CpuKernels, memory: MixtureMemory, num_pairs: int, num_runs: int) -> Job:
        arguments = (
            memory.experts.data_ptr(), num_pairs, self.into.num_experts, self.per_token,
            memory.counts.data_ptr(), memory.runs.data_ptr(), num_runs, memory.places.data_ptr(),
            memory.rows.data_ptr(),
        )  # fmt: skip
        return Job(kernels.address("group_pairs"), 1, 1, arguments)

    def _inputs_job(
        self, kernels: CpuKernels, inputs: ProductInputs, rows: Rows, num_rows: int, norm: RowNorm | None
    ) -> Job:
        """In the order that a product of one row has, however many there are."""
        alone = self.into.first.input_job(kernels, "plain", rows, 1, inputs, norm)
        return replace(alone, units=num_rows * alone.units)

    def _gathering_job(self, kernels: CpuKernels, memory: MixtureMemory, num_pairs: int) -> Job:
        into, parts = self.into.first, (memory.inputs, memory.gathered)
        addresses = (each.data_ptr() for part in parts for each in (part.numbers, part.scales, part.sums))
        arguments = (*addresses, memory.rows.data_ptr(), into.in_features, into.input_parts())
        return Job(kernels.address("gather_rows"), num_pairs, _COPIES_AT_ONCE, arguments)

    def _gates_job(self, kernels: CpuKernels, inputs: ProductInputs, middle: Rows, num_pairs: int) -> Job:
        limit = self.gate.limit
        source = "silu_gated" if limit is None else "limited_gated"
        alone = self.out.first.input_job(kernels, source, middle, 1, inputs)
        bounds = (float_bits(limit or 0.0), float_bits(self.gate.sharpness))
        return replace(alone, units=num_pairs * alone.units, arguments=[*alone.arguments, *bounds])

    def _sum_job(self, kernels: CpuKernels, memory: MixtureMemory, num_rows: int, mixed: Mixed) -> Job:
        width = memory.products.shape[1]
        arguments = (
            memory.products.data_ptr(), memory.places.data_ptr(), memory.weights.data_ptr(), self.per_token, width,
            *mixed.output, int(mixed.adds), mixed.shared, mixed.shared_logits,
        )  # fmt: skip
        return Job(kernels.address("sum_experts"), num_rows * -(-width // COLUMNS_OF_SUM), 1, arguments)


_PARTS = ("digits", "scales")


def _addresses(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64)
