"""A weight of few bits: what its numbers are, and which parts do not go together."""

import pytest
import torch

from pagedchat.ops.quantized.weight import QuantizedWeight


def of_4_bits(**changes: object) -> QuantizedWeight:
    parts: dict[str, object] = {
        "bits": 4,
        "group_size": 2,
        "digits": torch.tensor([[0x9F, 0x08]], dtype=torch.uint8),
        "scales": torch.tensor([[0.5, 2.0]], dtype=torch.float16),
        "minimums": torch.tensor([[0.0, 1.0]], dtype=torch.float16),
    }
    return QuantizedWeight(**(parts | changes))  # type: ignore[arg-type]


def test_lower_half_of_a_byte_is_the_first_element() -> None:
    weight = of_4_bits()
    assert weight.integers().tolist() == [[7, 1, 0, -8]]
    assert weight.dequantized().tolist() == [[3.5, 0.5, 1.0, -15.0]]
    assert (weight.out_features, weight.in_features, weight.nbytes) == (1, 4, 10)


def test_8_bits_are_their_digits() -> None:
    digits = torch.tensor([[-128, 127]], dtype=torch.int8)
    weight = QuantizedWeight(8, 2, digits, torch.tensor([[0.25]], dtype=torch.float16))
    assert weight.dequantized(torch.bfloat16).tolist() == [[-32.0, 31.75]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bits": 5}, "bits is 5"),
        ({"bits": 8}, "digits is 2-dimensional torch.uint8"),
        ({"group_size": 3}, "does not divide rows of 4"),
        ({"group_size": 0}, "group_size is 0"),
        ({"scales": torch.ones(1, 3, dtype=torch.float16)}, "scales"),
        ({"scales": torch.ones(1, 2)}, "scales is torch.float32"),
        ({"minimums": torch.ones(2, 2, dtype=torch.float16)}, "minimums"),
    ],
)
def test_parts_that_do_not_go_together_are_named(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        of_4_bits(**changes)


def test_columns_are_whole_groups() -> None:
    weight = of_4_bits()
    assert torch.equal(weight.columns(2, 4).dequantized(), weight.dequantized()[:, 2:])
    with pytest.raises(ValueError, match="elements 1 to 3 are no whole groups of 2"):
        weight.columns(1, 3)


def test_columns_of_rows_with_one_scale_are_any() -> None:
    digits = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.int8)
    weight = QuantizedWeight(8, 4, digits, torch.tensor([[0.5], [2.0]], dtype=torch.float16))
    assert weight.columns(1, 4).dequantized().tolist() == [[1.0, 1.5, 2.0], [12.0, 14.0, 16.0]]
    assert weight.of_nothing().dequantized().tolist() == [[0.0] * 4] * 2
