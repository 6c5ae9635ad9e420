import pytest
import torch

from pagedchat.models.staged_copy import _PIECE_BYTES, StagedCopies

SIZES = [(), (0,), (7,), (33, 5), (_PIECE_BYTES // 2,), (3, _PIECE_BYTES // 2 + 1)]
GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def copied(place: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
    """`place` on the CPU after all tensors were brought to it, one after the other."""
    copies = StagedCopies(place.device)
    for tensor in tensors:
        copies.copy(place, tensor)
    copies.finish()
    return place.cpu()


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_everything_arrives_in_the_type_of_its_place(size: tuple[int, ...], device: str) -> None:
    tensor = torch.randn(size)
    for dtype in (torch.float32, torch.float16):
        assert torch.equal(copied(torch.empty(size, dtype=dtype, device=device), tensor), tensor.to(dtype))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_later_copy_does_not_run_into_an_earlier_one(device: str) -> None:
    whole = torch.empty(8, 1 << 20, device=device)
    rows = [torch.full((1 << 20,), float(i)) for i in range(8)]
    copies = StagedCopies(whole.device)
    for place, row in zip(whole, rows, strict=True):
        copies.copy(place, row)
    copies.finish()
    assert torch.equal(whole.cpu(), torch.stack(rows))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_places_and_tensors_with_gaps(device: str) -> None:
    columns, tensor = torch.zeros(40, 6, device=device), torch.randn(40, 3)
    assert torch.equal(copied(columns[:, ::2], tensor), tensor)
    assert torch.equal(copied(torch.empty(3, 40, device=device), tensor.T), tensor.T)
    assert torch.equal(copied(torch.empty(40, 3, device=device), torch.zeros(40, 3), tensor), tensor)
