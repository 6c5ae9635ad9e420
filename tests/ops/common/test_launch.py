import pytest
import torch

from pagedchat.ops.common.launch import (
    ELEMENT_NAMES,
    address,
    ceil_div,
    compute_capability,
    element_name,
    has_tensor_cores,
    has_warpgroups,
    on_cuda,
    with_whole_rows,
)

CPU = torch.device("cpu")


def test_address_of_nothing_is_zero() -> None:
    tensor = torch.zeros(3)
    assert address(tensor) == tensor.data_ptr() != 0
    assert address(None) == 0


def test_types_have_the_names_of_the_kernels() -> None:
    assert [element_name(dtype) for dtype in ELEMENT_NAMES] == ["float16", "bfloat16", "float32"]
    with pytest.raises(ValueError, match=r"element type is torch\.float64, expected one of torch\.float16"):
        element_name(torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_rows_that_can_be_read_are_left_where_they_are(dtype: torch.dtype) -> None:
    wide = torch.randn(4, 3, 64).to(dtype)
    for rows in (wide, wide[:, 1:], wide[..., :32], wide[::2, :, 32:]):
        assert with_whole_rows(rows) is rows


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_rows_that_start_elsewhere_are_copied(dtype: torch.dtype) -> None:
    wide = torch.randn(4, 3, 65).to(dtype)
    shifted = torch.randn(4 * 3 * 64 + 1).to(dtype)[1:].view(4, 3, 64)
    for rows in (wide[..., :64], shifted, torch.randn(4, 64, 3).to(dtype).transpose(1, 2)):
        copy = with_whole_rows(rows)
        assert copy is not rows
        assert copy.is_contiguous()
        assert torch.equal(copy, rows)


def test_choices_on_a_cpu_are_those_of_hopper_but_nothing_is_launched() -> None:
    assert compute_capability(CPU) == (9, 0)
    found = {dtype: has_tensor_cores(torch.zeros(1, dtype=dtype)) for dtype in ELEMENT_NAMES}
    assert found == {torch.float16: True, torch.bfloat16: True, torch.float32: False}
    assert not has_warpgroups(torch.zeros(1, dtype=torch.float16))
    assert not on_cuda(torch.zeros(1))


def test_ceil_div_rounds_up() -> None:
    assert [ceil_div(a, 4) for a in (0, 1, 4, 5)] == [0, 1, 1, 2]
