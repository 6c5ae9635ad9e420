"""`invariant_linear`, whose order of sums no company changes, beside cuBLAS, whose order may be any."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from pagedchat.bench.kernels.figures import OURS, Bench, Figure, relative_error
from pagedchat.bench.kernels.products.beside_torch import measure_beside_torch
from pagedchat.bench.kernels.products.shapes import INVARIANT, LinearShape
from pagedchat.bench.kernels.random_cache import num_rotated_sets, random_tensor
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.products.invariant_linear import invariant_linear

CUBLAS = "cuBLAS"


def measure_invariant(bench: Bench, shapes: Sequence[LinearShape] = INVARIANT) -> list[Figure]:
    """At every shape."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: LinearShape) -> list[Figure]:
    inputs = LinearInputs(shape)
    ways = {OURS: inputs.calls, CUBLAS: inputs.cublas_calls}
    return measure_beside_torch(bench, "invariant", shape, shape.moved_bytes, inputs.check, ways)


class LinearInputs:
    """Rows, and several weights."""

    def __init__(self, shape: LinearShape) -> None:
        num_sets = num_rotated_sets(2 * shape.in_features * shape.out_features)
        self.rows = random_tensor(shape.num_rows, shape.in_features)
        self.weights = random_tensor(num_sets, shape.out_features, shape.in_features) / shape.in_features**0.5

    def calls(self) -> list[Call]:
        """By the kernel, which may begin while the one before still runs, as in a step."""
        return [
            lambda weight=weight: invariant_linear(self.rows, weight, overlap=True)  # type: ignore[misc]
            for weight in self.weights
        ]

    def cublas_calls(self) -> list[Call]:
        """By the library."""
        return [
            lambda weight=weight: functional.linear(self.rows, weight)  # type: ignore[misc]
            for weight in self.weights
        ]

    def check(self, calls: Sequence[Call]) -> float:
        """Of the first weight."""
        found = calls[0]()
        if not isinstance(found, torch.Tensor):
            return float("nan")
        return relative_error(found, self.rows.double() @ self.weights[0].double().T)
