"""How ranks find each other, and by what their sums are made."""

from pathlib import Path

import pytest
import torch

from pagedchat.distributed import group
from pagedchat.distributed.group import RankGroup
from pagedchat.errors import DeviceError

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_a_group_of_one_is_itself(tmp_path: Path) -> None:
    ranks = RankGroup(0, 1, str(tmp_path), CPU)
    rows = torch.randn(3, 8)
    assert torch.equal(ranks.sum(rows.clone()), rows)
    assert torch.equal(ranks.side_by_side(rows), rows)
    assert ranks.least([4, 2]) == [4, 2]
    ranks.close()


@pytest.fixture
def _no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is met, and no memory is shared."""
    monkeypatch.setattr(group, "_gloo", lambda *_: None)
    monkeypatch.setattr(group, "Nccl", lambda *_: None)
    monkeypatch.setattr(RankGroup, "_share_mailboxes", lambda _: None)


@pytest.mark.usefixtures("_no_gpus")
def test_sums_in_order_want_gpus_that_reach_each_other(tmp_path: Path) -> None:
    RankGroup(0, 3, str(tmp_path), GPU)
    with pytest.raises(
        DeviceError, match="batch_invariant takes sums in the order of the ranks, and 3 GPUs"
    ) as error:
        RankGroup(0, 3, str(tmp_path), GPU, in_order=True)
    assert "2, 4 or 8" in error.value.hint
