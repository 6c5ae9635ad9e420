"""Tensor maps as the driver makes them."""

import pytest
import torch

from pagedchat.errors import KernelError
from pagedchat.jit.tensor_map import tensor_map

pytestmark = pytest.mark.gpu


def test_a_map_is_what_a_kernel_takes_by_value_and_knows_where_its_matrix_is() -> None:
    matrices = [torch.empty(70, 136, dtype=torch.float16, device="cuda") for _ in range(2)]
    first, second = (tensor_map(matrix.data_ptr(), 70, 136, 16, "float16", 32) for matrix in matrices)
    assert len(first) == 128
    assert first != second
    assert first == tensor_map(matrices[0].data_ptr(), 70, 136, 16, "float16", 32)


def test_what_the_driver_cannot_map_is_one_sentence() -> None:
    matrix = torch.empty(70, 136, dtype=torch.float16, device="cuda")
    with pytest.raises(KernelError, match="makes no tensor map of 70 rows of 136 float16 at 0x"):
        tensor_map(matrix.data_ptr() + 2, 70, 136, 16, "float16")
    with pytest.raises(KernelError, match="in tiles of 300 rows"):
        tensor_map(matrix.data_ptr(), 70, 136, 300, "float16")
