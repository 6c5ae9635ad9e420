"""Products with a weight on a CPU: by kernels of our own where there are any, else by torch, behind one name.

A row's result follows from the row alone, bit for bit, whatever else is in the batch, as long as kernels of one
kind compute it: weights of few bits always, others up to `CpuKernels.most_rows` if whole steps ask for it, while
layers leave more than a few rows to a library where that is faster. For more there is another one for weights in
bfloat16, on processors where no library is.
"""

from threading import Lock

import torch
from torch.nn import functional

from pagedchat.jit.cpu.pool import Program
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.cpu import packing
from pagedchat.ops.cpu.kernels import FEW_ROWS, CpuKernels, cpu_kernels
from pagedchat.ops.cpu.packing import PackedWeight, packed_weight
from pagedchat.ops.cpu.product import Product, ProductInputs, Rows
from pagedchat.ops.quantized.weight import QuantizedWeight

_INPUT, _PRODUCT = 0, 1
"""The two jobs of a program."""


class CpuLinear:
    """`rows @ weight.T + bias`.

    Args:
        weight: `[out_features, in_features]`, float32, bfloat16 or float16; contiguous ones are used where they
        are.
            Or a quantised one, which is rearranged: nothing of it is kept; or what that has become, for kernels.
        bias: `[out_features]`, floating.
        kernels: None: those of this process, if it has any.
        by_torch: do without kernels.
    """

    def __init__(
        self,
        weight: torch.Tensor | QuantizedWeight | PackedWeight,
        bias: torch.Tensor | None = None,
        *,
        kernels: CpuKernels | None = None,
        by_torch: bool = False,
    ) -> None:
        found = None if by_torch or objection_to(weight) else kernels or cpu_kernels()
        self._kernels = found
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._dense: torch.Tensor | None = None
        self.product: Product | None = None
        """What whole steps take; None where torch multiplies."""
        if isinstance(weight, PackedWeight):
            if found is None:
                raise ValueError("by_torch is True or there are no kernels, expected them for a packed weight")
            self.out_features, self.in_features = weight.out_features, weight.in_features
            self.product = Product(weight, self._bias)
        elif isinstance(weight, QuantizedWeight):
            self.out_features, self.in_features = weight.out_features, weight.in_features
            if found is None:
                self._dense = weight.dequantized()
            else:
                self.product = Product(packed_weight(weight, found.zero_of_8_bits), self._bias)
        else:
            self.out_features, self.in_features = weight.shape
            self._dense = weight.detach().contiguous()
            self.product = None if found is None else Product(self._dense, self._bias)
        self._programs: dict[bool, Program] = {}
        """For few rows, and for many."""
        self._lock = Lock()

    @property
    def weight(self) -> torch.Tensor | PackedWeight:
        """What is kept of it, whoever multiplies."""
        if self._dense is not None:
            return self._dense
        assert self.product is not None  # noqa: S101 - one of them holds it
        return self.product.weight

    def takes(self, num_rows: int) -> bool:
        """Whether kernels are to multiply so many rows, where a library can do it too."""
        product, kernels = self.product, self._kernels
        return (
            product is not None and kernels is not None and (num_rows <= FEW_ROWS or product.beats_library(kernels))
        )

    @property
    def by_kernels(self) -> bool:
        """Whether kernels of our own multiply by it."""
        return self.product is not None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]`, float32 or bfloat16 -> `[num_rows, out_features]` of the same type."""
        check_shape("rows", rows, None, self.in_features)
        product, kernels = self.product, self._kernels
        if product is None or kernels is None or not self.takes(len(rows)):
            return self._by_torch(rows)
        return self._by_kernels(kernels, product, rows)

    def _by_torch(self, rows: torch.Tensor) -> torch.Tensor:
        dense = self._dense
        if dense is None:
            raise RuntimeError("a packed weight is multiplied by kernels")
        bias = self._bias
        if dense.dtype != rows.dtype:
            return functional.linear(rows.to(dense.dtype), dense, _like(bias, dense)).to(rows.dtype)
        return functional.linear(rows, dense, _like(bias, dense))

    def _by_kernels(self, kernels: CpuKernels, product: Product, rows: torch.Tensor) -> torch.Tensor:
        floats = rows.float().contiguous()
        num_rows = len(floats)
        output = torch.empty(num_rows, self.out_features)
        if num_rows == 0:
            return output.to(rows.dtype)
        inputs = ProductInputs.for_rows(num_rows, self.in_features)
        with self._lock:
            program = self._program(kernels, product, is_many=num_rows > kernels.most_rows)
            program.set_units(_INPUT, num_rows * product.input_parts())
            program.set_units(_PRODUCT, product.num_units(kernels, num_rows))
            program.set_argument(_INPUT, 0, floats.data_ptr())
            program.set_argument(_INPUT, 11, product.rows_in_blocks(kernels, num_rows))
            program.set_argument(_PRODUCT, 2, output.data_ptr())
            program.set_argument(_PRODUCT, 6, num_rows)
            for job, places in ((_INPUT, (1, 9, 10)), (_PRODUCT, (1, 12, 13))):
                for index, part in zip(places, (inputs.numbers, inputs.scales, inputs.sums), strict=True):
                    program.set_argument(job, index, part.data_ptr())
            program.run()
        return output.to(rows.dtype)

    def _program(self, kernels: CpuKernels, product: Product, *, is_many: bool) -> Program:
        """Made once; where its rows and results are is said at each call."""
        if is_many not in self._programs:
            inputs, num_rows = ProductInputs.for_rows(1, self.in_features), kernels.most_rows + 1 if is_many else 1
            jobs = (
                product.input_job(kernels, "plain", Rows(0, self.in_features), num_rows, inputs),
                product.job(kernels, inputs, num_rows, Rows(0, self.out_features)),
            )
            self._programs[is_many] = Program(kernels.pool, jobs)
        return self._programs[is_many]


def objection_to(weight: torch.Tensor | QuantizedWeight | PackedWeight) -> str:
    """Why kernels do not multiply by a weight, to go after "since"; empty where they do."""
    if isinstance(weight, PackedWeight):
        return ""
    if isinstance(weight, QuantizedWeight):
        return packing.objection_to(weight)
    if weight.device.type != "cpu":
        return f"it is on {weight.device}"
    return "" if weight.dtype in (torch.float32, torch.bfloat16) else f"it is {weight.dtype}"


def _like(bias: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor | None:
    return None if bias is None else bias.to(weight.dtype)


__all__ = ["FEW_ROWS", "CpuLinear", "PackedWeight", "objection_to"]
