"""Rows of floats on the way into few bits, and where kernels will multiply by them into their order at once, so
that a weight is nowhere twice. Knows no names of tensors and no files.
"""

from collections.abc import Mapping, Set

import torch

from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.quantized.forms import Form
from pagedchat.ops.common.pages import FilePages
from pagedchat.ops.cpu.four_bits import FitFourBits
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.packing import PackedWeight, empty_packed, takes_groups_of
from pagedchat.ops.quantized.quantize import ROWS_TOGETHER, quantize, quantize_rows

_FORGOTTEN_AT_ONCE = 2 << 20
"""Bytes of a file."""


class Quantising:
    """Products that come as floats, in whatever parts and order.

    Args:
        forms: of their rows.
        starts: the first row of each part of a product.
        kernels: None: what is quantised stays in the order of rows.
    """

    def __init__(
        self,
        forms: Mapping[QuantizedLinear, list[Form]],
        starts: Mapping[QuantizedLinear, Set[int]],
        kernels: CpuKernels | None,
    ) -> None:
        self._forms, self._starts, self._kernels = forms, starts, kernels
        self._four_bits = None if kernels is None else FitFourBits(kernels.address("fit_4_bits"))
        self._pages = FilePages()
        self._begun: dict[tuple[QuantizedLinear, int], tuple[PackedWeight, int]] = {}
        """By product and first row: of a form, and how many of its rows are missing."""

    def takes(self, linear: QuantizedLinear) -> bool:
        """Whether this product is to be quantised."""
        return linear in self._forms

    def add(self, linear: QuantizedLinear, start: int, rows: torch.Tensor) -> None:
        """Quantise some rows of a product, from its row `start` on, and give it what is whole.

        Raises:
            ValueError: see `quantize`.
        """
        below = 0
        for form in self._forms[linear]:
            first, stop = max(start, below), min(start + len(rows), form.stop)
            if first < stop:
                self._add(linear, range(below, form.stop), form, first, rows[first - start : stop - start])
            below = form.stop

    def _add(self, linear: QuantizedLinear, span: range, form: Form, first: int, rows: torch.Tensor) -> None:
        """Rows of one form, which is that of a span of rows."""
        kernels, forgetting = self._kernels, _Forgetting(self._pages)
        four_bits = self._four_bits if takes_groups_of(form.group_size) else None
        if kernels is None or not self._is_of_tiles(linear, span, form):
            few = quantize(
                rows, form.bits, form.group_size, forgetting.done, floats=form.floats, four_bits=four_bits
            )
            linear.fill(first, few)
            return
        packed, missing = self._begun.pop((linear, span.start), (None, len(span)))
        if packed is None:
            packed = empty_packed(
                form.bits, form.group_size, len(span), linear.in_features, kernels.zero_of_8_bits,
                minimums=form.bits == 4,
            )  # fmt: skip
        target, offset = packed, first - span.start
        quantize_rows(
            rows, form.bits, form.group_size, lambda at, few: target.write(offset + at, few), forgetting.done,
            four_bits=four_bits,
        )  # fmt: skip
        if missing == len(rows):
            linear.fill(span.start, packed)
        else:
            self._begun[linear, span.start] = packed, missing - len(rows)

    def _is_of_tiles(self, linear: QuantizedLinear, span: range, form: Form) -> bool:
        """Whether every part of the product that begins in a span begins a tile there, too."""
        begins = [start - span.start for start in self._starts.get(linear, ()) if start in span]
        return takes_groups_of(form.group_size) and all(each % ROWS_TOGETHER == 0 for each in begins)


class _Forgetting:
    """Rows of a mapped file that are not needed any more; they are forgotten many at a time."""

    def __init__(self, pages: FilePages) -> None:
        self._pages = pages
        self._rows: list[torch.Tensor] = []
        self._num_bytes = 0

    def done(self, rows: torch.Tensor) -> None:
        """These are not needed any more."""
        self._rows.append(rows)
        self._num_bytes += rows.nbytes
        if self._num_bytes >= _FORGOTTEN_AT_ONCE:
            first, last = self._rows[0], self._rows[-1]
            if first.is_contiguous():
                length = (last.data_ptr() + last.nbytes - first.data_ptr()) // first.itemsize
                self._pages.forget(first.as_strided((length,), (1,)))
            self._rows, self._num_bytes = [], 0
