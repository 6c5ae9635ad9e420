"""Few bits in 16 bits by a kernel: the numbers that torch works out."""

import pytest
import torch

from pagedchat.ops.quantized.dequantize import dequantize
from tests.ops.products.small_batch_case import DTYPES
from tests.ops.quantized.few_bits_case import FORMATS, WHERE, device_of, weight_of


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMATS)
def test_elements_are_those_of_torch(form: str, dtype: torch.dtype, where: str) -> None:
    with device_of(where) as device:
        weight = weight_of(*FORMATS[form], 37, 384, device)
        output = torch.full((37, 384), float("nan"), dtype=dtype, device=device)
        assert dequantize(weight, output) is output
        assert torch.equal(output, weight.dequantized(dtype))
        some = slice(5, 9)
        assert torch.equal(dequantize(weight.rows(some), output[some]), weight.floats(some, dtype))


@pytest.mark.parametrize("where", WHERE[:1])
def test_nothing_is_nothing(where: str) -> None:
    with device_of(where) as device:
        weight = weight_of("int8", 0, 3, 64, device).rows(slice(0, 0))
        assert dequantize(weight, torch.empty(0, 64, dtype=torch.float16, device=device)).shape == (0, 64)


def test_wrong_arguments_are_named() -> None:
    weight = weight_of("int8", 12, 5, 24, "cpu")
    with pytest.raises(ValueError, match=r"output has shape \[5, 12\], expected \[5, 24\]"):
        dequantize(weight, torch.empty(5, 12))
    with pytest.raises(ValueError, match="group_size is 12, expected a multiple of 8"):
        dequantize(weight, torch.empty(5, 24))


@pytest.mark.parametrize("where", WHERE[:1])
def test_there_is_no_kernel_for_other_types(where: str) -> None:
    with device_of(where) as device, pytest.raises(ValueError, match=r"output is torch.float32, expected one of"):
        dequantize(weight_of("int8", 0, 5, 64, device), torch.empty(5, 64, device=device))
