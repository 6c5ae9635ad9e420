import pytest
import torch

from pagedchat.ops.products.add_norm import Update, add_norm
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, NORMS, error, exact_norm, make_norm, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("kind", NORMS[1:])
@pytest.mark.parametrize("width", [8, 100, 768, 4096, 10240])
def test_agrees_with_the_definition(width: int, kind: str, dtype: torch.dtype, device: str) -> None:
    norm = make_norm(kind, width, device, dtype)
    assert norm is not None
    for num_rows in (1, 70):
        hidden = normal(num_rows, width, device=device, dtype=dtype) + 3
        before = hidden.clone()
        update = normal(num_rows, width, device=device, dtype=dtype, seed=4)
        normed = add_norm(hidden, update, norm)
        assert torch.equal(hidden, before + update)
        tolerance = 2 * torch.finfo(dtype).eps
        assert error(normed, exact_norm(norm, hidden.cpu().double())) < tolerance
        unchanged = hidden.clone()
        assert torch.equal(add_norm(hidden, None, norm), normed)
        assert torch.equal(hidden, unchanged)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("first", NORMS)
def test_what_is_added_may_be_two_rows_normed_and_scaled(
    first: str | None, kind: str | None, dtype: torch.dtype, device: str
) -> None:
    eps = torch.finfo(dtype).eps
    for width, with_other in ((136, True), (768, False)):
        norm, of_update = (make_norm(each, width, device, dtype) for each in (kind, first))
        hidden, rows, other = (normal(5, width, device=device, dtype=dtype, seed=seed) for seed in (1, 2, 3))
        update = Update(rows, other if with_other else None, of_update, 0.6)
        wanted = exact_norm(of_update, (rows + other if with_other else rows).cpu().double()) * 0.6
        wanted += hidden.cpu().double()
        got = add_norm(hidden, update, norm)
        assert error(hidden, wanted) < 2 * eps
        assert error(got, exact_norm(norm, hidden.cpu().double())) < 2 * eps
        assert (got is hidden) == (norm is None)


def test_nothing_to_do_is_nothing() -> None:
    hidden = torch.ones(2, 8)
    assert add_norm(hidden, None, None) is hidden


def test_wrong_arguments_are_named() -> None:
    norm = make_norm("layer", 8, "cpu", torch.float32)
    assert norm is not None
    with pytest.raises(ValueError, match=r"update has shape \[2, 8\], expected \[3, 8\]"):
        add_norm(torch.zeros(3, 8), torch.zeros(2, 8), norm)
    with pytest.raises(ValueError, match=r"update\.beside has shape \[1, 8\], expected \[3, 8\]"):
        add_norm(torch.zeros(3, 8), Update(torch.zeros(3, 8), torch.zeros(1, 8)), norm)
    with pytest.raises(ValueError, match=r"norm\.weight has shape \[8\], expected \[16\]"):
        add_norm(torch.zeros(3, 16), None, norm)
