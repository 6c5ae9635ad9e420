"""Products of many rows with a weight in bfloat16 by kernels of our own. Knows no model; see `long_product`."""

from threading import Lock

import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.long_product import GROUP, RUN, TILE_COLUMNS, TILE_ROWS

_GROUPED, _PRODUCT = 0, 1
"""The two jobs of a program."""


class LongLinear:
    """`rows @ weight.T + bias`, for any number of rows.

    Args:
        weight: contiguous bfloat16 `[out_features, in_features]`, to which there is no objection; used where it is.
        bias: contiguous float32 `[out_features]`.
        kernels: of this process.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, kernels: CpuKernels) -> None:
        self._weight, self._bias = weight, bias
        self._out_features, self._in_features = weight.shape
        bias_at = 0 if bias is None else bias.data_ptr()
        arguments = (weight.data_ptr(), 0, 0, bias_at, self._out_features, self._in_features, 0)
        grouped = Job(kernels.address("grouped_bf16"), 0, 1, (0, 0, 0, self._in_features, self._in_features))
        self._program = Program(kernels.pool, (grouped, Job(kernels.address("long_bf16"), 0, 1, arguments)))
        self._lock = Lock()

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`, both bfloat16."""
        check_shape("rows", rows, None, self._in_features)
        rows = rows.to(torch.bfloat16).contiguous()
        num_rows, groups = len(rows), -(-len(rows) // GROUP)
        output = torch.empty(num_rows, self._out_features, dtype=torch.bfloat16)
        grouped = torch.empty(groups * GROUP * self._in_features)
        tiles = -(-self._out_features // TILE_COLUMNS) * -(-num_rows // TILE_ROWS)
        with self._lock:
            program = self._program
            program.set_units(_GROUPED, groups)
            program.set_units(_PRODUCT, tiles)
            for index, word in ((0, rows.data_ptr()), (1, grouped.data_ptr()), (2, num_rows)):
                program.set_argument(_GROUPED, index, word)
            for index, word in ((1, grouped.data_ptr()), (2, output.data_ptr()), (6, num_rows)):
                program.set_argument(_PRODUCT, index, word)
            program.run()
        return output


def objection_to(weight: torch.Tensor, kernels: CpuKernels) -> str:
    """Why these kernels do not multiply by a weight, to go after "since"; empty where they do."""
    if weight.dtype != torch.bfloat16:
        return f"it is {weight.dtype}"
    if weight.shape[1] % RUN:
        return f"its rows of {weight.shape[1]} are no multiple of {RUN}"
    return "" if kernels.has_long_products else "a library is faster on this processor"
