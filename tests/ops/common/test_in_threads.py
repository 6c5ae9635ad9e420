"""Pieces of work in threads: all are done, told of in order, and may write to what the caller has made."""

import threading

import pytest
import torch

from pagedchat.ops.common.in_threads import in_threads


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)


@pytest.mark.parametrize("infers", [False, True])
def test_what_was_made_while_inferring_may_be_written_to(infers: bool) -> None:
    told: list[int] = []
    workers = set()
    with torch.inference_mode(infers):
        numbers = torch.zeros(40)

        def work(start: int) -> None:
            workers.add(threading.get_ident())
            numbers[start : start + 10] += start

        in_threads(range(0, 40, 10), work, told.append)
    assert numbers.tolist() == [float(i // 10 * 10) for i in range(40)]
    assert told == [0, 10, 20, 30]
    assert threading.get_ident() not in workers


def test_what_a_piece_raises_goes_through() -> None:
    def work(start: int) -> None:
        raise ValueError(f"piece {start}")

    with pytest.raises(ValueError, match="piece 0"):
        in_threads(range(2), work)
