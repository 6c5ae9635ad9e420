import pytest
import torch

from pagedchat.ops.common.checks import check_dtype, check_pairs, check_same_type, check_shape


def test_any_size_fits_none_and_every_other_must_be_there() -> None:
    check_shape("key", torch.zeros(2, 3), None, 3)
    with pytest.raises(ValueError, match=r"key has shape \[2, 3\], expected \[\*, 4\]"):
        check_shape("key", torch.zeros(2, 3), None, 4)
    with pytest.raises(ValueError, match=r"key has shape \[2, 3\], expected \[2\]"):
        check_shape("key", torch.zeros(2, 3), 2)


def test_types_are_named() -> None:
    with pytest.raises(ValueError, match=r"ids is torch\.float32, expected torch\.int32"):
        check_dtype("ids", torch.zeros(1), torch.int32)
    with pytest.raises(ValueError, match=r"value is torch\.float64 on cpu, expected torch\.float32 on cpu"):
        check_same_type("value", torch.zeros(1).double(), torch.zeros(1))


def test_pairs_are_as_many_ids_on_either_side() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    check_pairs(ids, ids)
    with pytest.raises(ValueError, match=r"dst has shape \[1\], expected \[2\]"):
        check_pairs(ids, ids[:1])
