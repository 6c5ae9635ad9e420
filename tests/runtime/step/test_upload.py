import pytest
import torch

from pagedchat.runtime.step.upload import int32, int64, upload

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def test_lists_become_tensors() -> None:
    assert int32(range(3)).tolist() == [0, 1, 2]
    assert int64([1 << 40, -1]).tolist() == [1 << 40, -1]
    assert (int32([]).dtype, int64([]).dtype) == (torch.int32, torch.int64)
    assert int32([]).shape == int64([]).shape == (0,)


@pytest.mark.parametrize("device", DEVICES)
def test_pieces_arrive_as_they_were(device: str) -> None:
    table = torch.arange(15, dtype=torch.int32).view(3, 5)[:, :4]  # not contiguous
    pieces = [int32([7]), table, int32([]), int32(range(9))]
    sent = upload(pieces, torch.device(device))
    assert [piece.tolist() for piece in sent] == [piece.tolist() for piece in pieces]
    assert all(piece.device.type == device for piece in sent)
    assert upload([], torch.device(device)) == []


@pytest.mark.gpu
def test_pieces_are_aligned_and_contiguous() -> None:
    table = torch.arange(15, dtype=torch.int32).view(3, 5)[:, :4]
    for piece in upload([int32([7]), table, int32(range(9))], torch.device("cuda")):
        assert piece.is_contiguous()
        assert piece.data_ptr() % 16 == 0
