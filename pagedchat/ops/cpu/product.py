"""A weight that kernels multiply by, and the two jobs of a product: to bring rows into the order that it wants,
and to multiply them. Knows no model; whoever makes jobs keeps the tensors whose addresses are in them.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from pagedchat.jit.cpu.pool import Job
from pagedchat.ops.cpu.dense_elements import RUN, bf16_element
from pagedchat.ops.cpu.dense_tile import COLUMNS as COLUMNS_AT_ONCE
from pagedchat.ops.cpu.dense_tile import ROWS as BLOCK
from pagedchat.ops.cpu.dense_tile import TILE_COLUMNS as DENSE_COLUMNS
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.long_product import RUN as LONG_RUN
from pagedchat.ops.cpu.long_product import TILE_COLUMNS, TILE_ROWS
from pagedchat.ops.cpu.many_bytes_product import BLOCK as ROWS_TOGETHER
from pagedchat.ops.cpu.many_bytes_product import TILE_ROWS as ROWS_OF_BYTES
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.cpu.quantized_product import TILE

_MOST_COLUMNS = {8: 64, 4: 256}
"""Columns of a result that a thread takes at a time, at most, where weights have so many bits."""
_PARTS = 8
"""Chunks of a product that each thread is to have at least: who is slow then leaves the rest to others."""
_COLUMNS_OF_ALL = 24
"""A multiple of what any kernel of floats takes together."""
_TILE_BYTES = 640 << 10
"""Of a weight that is multiplied by row after row, at most: a core's own cache is to hold it."""
_PIECES = 16
"""Runs or groups of a row that a thread brings into order at a time."""


_FLOAT_BYTES = 4


class Rows(NamedTuple):
    """Rows in float32, wherever they are."""

    address: int
    stride: int
    """Elements from one to the next."""


class RowNorm(NamedTuple):
    """A norm of rows, on its way into a product."""

    kind: str
    """"rms" or "layer"."""
    weight: torch.Tensor
    """float32 `[width]`."""
    bias: torch.Tensor | None
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class ProductInputs:
    """Memory for the inputs of one product after the other."""

    numbers: torch.Tensor
    """uint8: floats in runs, or int8."""
    scales: torch.Tensor
    """float32."""
    sums: torch.Tensor
    """int32."""

    @classmethod
    def for_rows(cls, num_rows: int, width: int) -> "ProductInputs":
        """For any product of rows so wide, or narrower."""
        padded = -(-width // RUN) * RUN
        groups = -(-num_rows // ROWS_TOGETHER) * ROWS_TOGETHER * -(-width // TILE)
        return cls(
            torch.empty(num_rows * padded * 4, dtype=torch.uint8, device="cpu"),
            torch.empty(groups, device="cpu"),
            torch.empty(groups, dtype=torch.int32, device="cpu"),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """`rows @ weight.T + bias`, for kernels."""

    weight: torch.Tensor | PackedWeight
    """Contiguous float32 or bfloat16 `[out_features, in_features]`, or few bits."""
    bias: torch.Tensor | None
    """float32 `[out_features]`."""
    out_features: int = field(init=False)
    in_features: int = field(init=False)

    def __post_init__(self) -> None:
        weight = self.weight
        sizes = (weight.out_features, weight.in_features) if isinstance(weight, PackedWeight) else weight.shape
        object.__setattr__(self, "out_features", sizes[0])
        object.__setattr__(self, "in_features", sizes[1])

    @property
    def is_float32(self) -> bool:
        """Whether its weight is."""
        return isinstance(self.weight, torch.Tensor) and self.weight.dtype == torch.float32

    def sink(self, kernels: CpuKernels, num_rows: int) -> str:
        """What its inputs are, see `rows`; for many rows floats are in their order."""
        if isinstance(self.weight, PackedWeight):
            return "int8_blocks" if self._has_many_bytes(kernels, num_rows) else "int8"
        is_plain = self._is_long(kernels, num_rows) or self.is_float32
        return "f32" if is_plain else bf16_element(kernels.target).name

    @property
    def nbytes(self) -> int:
        """Of the weight."""
        return self.weight.nbytes

    def input_form(self, kernels: CpuKernels, num_rows: int) -> tuple[str, int]:
        """What its inputs are, and how many elements have a run or a scale: who has the same can share them."""
        return self.sink(kernels, num_rows), self.weight.group_size if isinstance(
            self.weight, PackedWeight
        ) else RUN

    @property
    def input_stride(self) -> int:
        """Elements of a row of its inputs."""
        return self.in_features if isinstance(self.weight, PackedWeight) else -(-self.in_features // RUN) * RUN

    def input_parts(self) -> int:
        """Runs or groups of a row."""
        if isinstance(self.weight, PackedWeight):
            return self.in_features // self.weight.group_size
        return -(-self.in_features // RUN)

    def input_job(
        self,
        kernels: CpuKernels,
        source: str,
        rows: Rows,
        num_rows: int,
        inputs: ProductInputs,
        norm: RowNorm | None = None,
    ) -> Job:
        """Rows into inputs.

        Args:
            kernels: of this process.
            source: "plain", or an activation of `rows`, gated or not; with a norm it does not matter.
            rows: what becomes inputs.
            num_rows: how many there are.
            inputs: where they go.
            norm: of the rows, if there is one.
        """
        sink, group = self.input_form(kernels, num_rows)
        units_of_row = 1 if norm is not None else self.input_parts()
        arguments = (
            rows.address, inputs.numbers.data_ptr(), self.in_features, rows.stride, self.input_stride,
            0 if norm is None else norm.weight.data_ptr(),
            0 if norm is None or norm.bias is None else norm.bias.data_ptr(),
            float_bits(0.0 if norm is None else norm.eps),
            group, inputs.scales.data_ptr(), inputs.sums.data_ptr(), self.rows_in_blocks(kernels, num_rows),
        )  # fmt: skip
        name = f"{source if norm is None else norm.kind}_{sink}"
        # Rows that lie in the same lines of memory are one thread's: a line goes from core to core for 100 ns.
        chunk = ROWS_TOGETHER * units_of_row if sink == "int8_blocks" else _PIECES if norm is None else 1
        return Job(kernels.address(name), num_rows * units_of_row, chunk, arguments)

    def rows_in_blocks(self, kernels: CpuKernels, num_rows: int) -> int:
        """Of its inputs."""
        if isinstance(self.weight, PackedWeight) or self._is_long(kernels, num_rows):
            return 0
        return num_rows - num_rows % BLOCK if kernels.target.has_wide_registers else 0

    def _is_long(self, kernels: CpuKernels, num_rows: int) -> bool:
        """Whether the kernel of `long_product` multiplies so many rows."""
        return (
            num_rows > kernels.most_rows
            and not isinstance(self.weight, PackedWeight)
            and self.weight.dtype == torch.bfloat16
            and kernels.has_long_products
        )

    def _has_many_bytes(self, kernels: CpuKernels, num_rows: int) -> bool:
        """Whether the kernel of `many_bytes_product` multiplies so many rows."""
        weight = self.weight
        return (
            num_rows > kernels.most_rows
            and isinstance(weight, PackedWeight)
            and weight.name == "int8"
            and kernels.has_many_bytes
        )

    def num_units(self, kernels: CpuKernels, num_rows: int) -> int:
        """Of `job`."""
        if isinstance(self.weight, PackedWeight):
            parts = -(-num_rows // ROWS_OF_BYTES) if self._has_many_bytes(kernels, num_rows) else 1
            return -(-self.out_features // TILE) * parts
        if self._is_long(kernels, num_rows):
            return -(-self.out_features // TILE_COLUMNS) * -(-num_rows // TILE_ROWS)
        return self.out_features

    def job(
        self, kernels: CpuKernels, inputs: ProductInputs, num_rows: int, output: Rows, *, adds: bool = False
    ) -> Job:
        """Inputs into results.

        Args:
            kernels: of this process.
            inputs: of `input_job`.
            num_rows: how many there are.
            output: where they go.
            adds: they are added to what is there.
        """
        weight, bias = self.weight, self.bias
        packed = weight if isinstance(weight, PackedWeight) else None
        if self._is_long(kernels, num_rows):
            return self._job_of_many(kernels, inputs, num_rows, output, adds=adds)
        units = self.num_units(kernels, num_rows)
        arguments = [
            packed.digits.data_ptr() if packed else weight.data_ptr(),  # type: ignore[union-attr]
            inputs.numbers.data_ptr(), output.address, 0 if bias is None else bias.data_ptr(),
            self.out_features, self.in_features, num_rows, self.input_stride, output.stride, int(adds),
        ]  # fmt: skip
        if packed:
            minimums = 0 if packed.minimums is None else packed.minimums.data_ptr()
            arguments += [packed.scales.data_ptr(), minimums]
            arguments += [inputs.scales.data_ptr(), inputs.sums.data_ptr(), packed.group_size]
            is_many = self._has_many_bytes(kernels, num_rows)
            most = 1 if is_many else _MOST_COLUMNS[packed.bits] // TILE
            chunk = max(1, min(units // (kernels.pool.num_threads * _PARTS), most))
            arguments.append(chunk * TILE * self.in_features * packed.bits // 8 * kernels.pool.num_threads)
            name = f"many_{packed.name}" if is_many else packed.name
            return Job(kernels.address(name), units, chunk, arguments)
        row_bytes = weight.nbytes // self.out_features
        chunk = self._dense_columns(kernels.pool.num_threads, row_bytes)
        arguments.append(chunk * row_bytes * kernels.pool.num_threads)
        return Job(kernels.address(f"dense_{self.sink(kernels, num_rows)}"), units, chunk, arguments)

    def _dense_columns(self, num_threads: int, row_bytes: int) -> int:
        """That a thread takes at a time: a few steps of the kernel of many rows, where there are so many."""
        most = min(self.out_features // (num_threads * _PARTS), DENSE_COLUMNS, _TILE_BYTES // row_bytes)
        step = next((step for step in (_COLUMNS_OF_ALL, COLUMNS_AT_ONCE) if step <= most), 1)
        return max(1, most - most % step)

    def beats_library(self, kernels: CpuKernels) -> bool:
        """Whether kernels multiply many rows faster than a library does."""
        return isinstance(self.weight, PackedWeight) or (
            kernels.has_long_products and not self.objection_to_many(kernels)
        )

    def objection_to_many(self, kernels: CpuKernels) -> str:
        """Why kernels do not multiply any number of rows, to go after "since"; empty where they do."""
        if isinstance(self.weight, PackedWeight) or kernels.has_fast_tiles:
            return ""
        if self.weight.dtype != torch.bfloat16:
            return f"it is {self.weight.dtype}"
        if self.in_features % LONG_RUN:
            return f"its rows of {self.in_features} are no multiple of {LONG_RUN}"
        return "" if kernels.has_long_products else "a library is faster on this processor"

    def _job_of_many(
        self, kernels: CpuKernels, inputs: ProductInputs, num_rows: int, output: Rows, *, adds: bool
    ) -> Job:
        """See `long_product`."""
        weight, bias = self.weight, self.bias
        assert isinstance(weight, torch.Tensor)  # noqa: S101 - packed weights have one kernel for all
        arguments = (
            weight.data_ptr(), inputs.numbers.data_ptr(), output.address, 0 if bias is None else bias.data_ptr(),
            self.out_features, self.in_features, num_rows, self.input_stride, output.stride, int(adds),
        )  # fmt: skip
        return Job(kernels.address("long_bf16"), self.num_units(kernels, num_rows), 1, arguments)


def product_jobs(
    kernels: CpuKernels,
    products: Sequence[Product],
    rows: Rows,
    output: Rows,
    num_rows: int,
    inputs: ProductInputs,
    *,
    source: str = "plain",
    norm: RowNorm | None = None,
    adds: bool = False,
) -> list[tuple[bool, Job]]:
    """Products of the same rows whose results stand side by side.

    Args:
        kernels: of this process.
        products: in the order of their columns; neighbours of one form share their inputs.
        rows, num_rows: what is multiplied.
        output: where the first result of the first row goes.
        inputs: where inputs go on the way.
        source, norm: as of `Product.input_job`.
        adds: as of `Product.job`.

    Returns:
        Jobs in their order, each with whether it makes inputs.
    """
    jobs: list[tuple[bool, Job]] = []
    made: tuple[str, int] | None = None
    for product in products:
        if product.input_form(kernels, num_rows) != made:
            made = product.input_form(kernels, num_rows)
            jobs.append((True, product.input_job(kernels, source, rows, num_rows, inputs, norm)))
        jobs.append((False, product.job(kernels, inputs, num_rows, output, adds=adds)))
        output = Rows(output.address + _FLOAT_BYTES * product.out_features, output.stride)
    return jobs


def float_bits(number: float) -> int:
    """A float32 as a word."""
    return int(struct.unpack("I", struct.pack("f", number))[0])
