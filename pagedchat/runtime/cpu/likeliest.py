"""The most likely tokens of rows without all of their logits: a copy of the head in 8 bits says which tokens can be
the most likely one, and the head itself is multiplied for these alone. So half of its bytes are read, or a quarter,
and sums are of bytes; the tokens are the same, as bounds of what the copy is off by are strict
(`ops.cpu.likely_columns`).

Knows rows and weights; not whether the most likely tokens are what is wanted.
"""

from typing import NamedTuple

import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.models.cpu_linear import MEMORY_SHARE
from pagedchat.ops.cpu.bounded_copy import GROUP, BoundedCopy, CopyInMaking
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.cpu.product import Product, ProductInputs, RowNorm, Rows, float_bits, product_jobs
from pagedchat.runtime.loading.cpu_process import give_back_now

LEAST_BYTES = 8 << 20
"""Of a head for which that is worth while."""

COPIED_AT_ONCE = 1 << 22
"""Elements of a head that are copied in one step: some 20 ms of processor time."""

_FEWEST = 32
"""Columns that are multiplied once more, rounded up to it, or to twice, four times and so on as many."""
_SHARE = 16
"""More than one in so many columns are not looked at again: then the head is multiplied as a whole."""
_PAUSE = 64
"""Steps after that in which nothing is tried."""
_ROUNDED = 2.0**-8
"""Of an element, that inputs in bfloat16 are off by, at most."""


class Likeliest(NamedTuple):
    """Tokens among which the most likely one of each row is, with no other that is as likely."""

    token_ids: torch.Tensor
    """int64 `[num_tokens]`, in rising order."""
    logits: torch.Tensor
    """float32 `[num_rows, num_tokens]`, until the next step: the bits that the head gives."""


class LikeliestTokens:
    """Of the rows of one model's steps.

    Args:
        kernels: of this process.
        head: with floats as weights; see `objection_to`.
        norm: of rows before it.
        rows: where they are.
        inputs: memory for its inputs.
        logits: float32 `[most_rows, vocab_size]`, memory for what the copy says.
    """

    def __init__(
        self,
        kernels: CpuKernels,
        head: Product,
        norm: RowNorm | None,
        rows: Rows,
        inputs: ProductInputs,
        logits: torch.Tensor,
    ) -> None:
        self._kernels, self._head, self._norm, self._rows = kernels, head, norm, rows
        self._inputs, self._logits = inputs, logits
        assert isinstance(head.weight, torch.Tensor)  # noqa: S101 - `objection_to` has looked
        self._in_making: CopyInMaking | None = CopyInMaking(head.weight, kernels.zero_of_8_bits)
        self._copy: BoundedCopy | None = None
        """None until it is there, or for ever where the head has numbers that 8 bits cannot stand for."""
        self._marks = torch.zeros(-(-head.out_features // 8) * 8, dtype=torch.uint8)
        self._some: dict[int, tuple[Product, torch.Tensor]] = {}
        """Number of columns -> memory for them, and for results."""
        self._programs: dict[tuple[int, int], Program] = {}
        self._pause = 0

    def is_ready(self) -> bool:
        """Whether this is to be tried in a step; to be asked once in each, since until the copy is there some of it
        is made each time."""
        if self._in_making is not None:
            self._go_on(self._in_making)
        self._pause = max(0, self._pause - 1)
        return self._copy is not None and not self._pause

    def _go_on(self, making: CopyInMaking) -> None:
        try:
            self._copy = making.go_on(COPIED_AT_ONCE)
        except ValueError:
            self._in_making = None
        if self._copy is not None:
            self._in_making = None
            give_back_now()  # what it was made in

    def jobs(self, num_rows: int) -> list[Job]:
        """What marks the columns, when the rows are there."""
        bounded, inputs = self._copy, self._inputs
        assert bounded is not None  # noqa: S101 - `is_ready` was asked
        copy = Product(bounded.packed, self._head.bias)
        output = Rows(self._logits.data_ptr(), self._logits.shape[1])
        multiply = product_jobs(self._kernels, (copy,), self._rows, output, num_rows, inputs, norm=self._norm)
        is_rounded = self._head.sink(self._kernels, num_rows) == "rounded"
        arguments = (
            output.address, output.stride, copy.out_features, bounded.lengths.data_ptr(), bounded.lost.data_ptr(),
            inputs.numbers.data_ptr(), inputs.scales.data_ptr(), copy.in_features, GROUP,
            float_bits(_ROUNDED if is_rounded else 0.0), self._marks.data_ptr(),
        )  # fmt: skip
        mark = Job(self._kernels.address("likely_columns"), num_rows, 1, arguments)
        return [*(job for _, job in multiply), mark]

    def find(self, num_rows: int) -> Likeliest | None:
        """What the columns that were marked say; None where there are too many, or numbers that are none."""
        token_ids = self._marked()
        count = len(token_ids)
        if 0 < count * _SHARE <= self._head.out_features:
            logits = self._exact(token_ids, num_rows)[:, :count]
            if bool(torch.isfinite(logits).all()):
                return Likeliest(token_ids, logits)
        self._pause = _PAUSE
        return None

    def _marked(self) -> torch.Tensor:
        """int64, in rising order; from now on they are not marked."""
        eights = self._marks.view(torch.int64).nonzero().flatten()
        places = self._marks.view(-1, 8)[eights].nonzero()
        self._marks.view(torch.int64)[eights] = 0
        return eights[places[:, 0]] * 8 + places[:, 1]

    def _exact(self, token_ids: torch.Tensor, num_rows: int) -> torch.Tensor:
        """Logits of these and of some more, `[num_rows, num_columns]`."""
        num_columns = _FEWEST << max(0, (len(token_ids) - 1).bit_length() - _FEWEST.bit_length() + 1)
        product, results = self._memory(num_columns)
        wanted = torch.cat((token_ids, token_ids[-1:].expand(num_columns - len(token_ids))))
        weight, some = self._head.weight, product.weight
        assert isinstance(weight, torch.Tensor)  # noqa: S101 - floats
        assert isinstance(some, torch.Tensor)  # noqa: S101
        torch.index_select(weight, 0, wanted, out=some)
        if self._head.bias is not None and product.bias is not None:
            torch.index_select(self._head.bias, 0, wanted, out=product.bias)
        self._program(product, results, num_rows).run()
        return results[:num_rows]

    def _memory(self, num_columns: int) -> tuple[Product, torch.Tensor]:
        if num_columns not in self._some:
            head = self._head
            assert isinstance(head.weight, torch.Tensor)  # noqa: S101
            weight = head.weight.new_empty(num_columns, head.in_features)
            bias = None if head.bias is None else torch.empty(num_columns)
            self._some[num_columns] = Product(weight, bias), torch.empty(len(self._logits), num_columns)
        return self._some[num_columns]

    def _program(self, product: Product, results: torch.Tensor, num_rows: int) -> Program:
        key = num_rows, product.out_features
        if key not in self._programs:
            output = Rows(results.data_ptr(), results.shape[1])
            jobs = product_jobs(
                self._kernels, (product,), self._rows, output, num_rows, self._inputs, norm=self._norm
            )
            self._programs[key] = Program(self._kernels.pool, [job for _, job in jobs])
        return self._programs[key]


def objection_to(head: tuple[Product, ...], kernels: CpuKernels, available: int) -> str:
    """Why there is no copy of a head, to go after "since"; empty where there may be one.

    Args:
        head: what is multiplied by.
        kernels: of this process.
        available: bytes of free memory.
    """
    if len(head) != 1:
        return "it comes in several forms"
    if isinstance(head[0].weight, PackedWeight):
        return "it has few bits"
    if not kernels.has_fast_bytes:
        return "bytes are not fast on this processor"
    if head[0].in_features % GROUP:
        return f"its rows of {head[0].in_features} are no multiple of {GROUP}"
    if head[0].nbytes < LEAST_BYTES:
        return "it is small"
    elements = head[0].out_features * head[0].in_features
    return "" if elements <= available * MEMORY_SHARE else "memory is short"
