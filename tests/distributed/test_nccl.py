"""How ranks part: what is called meanwhile, and who waits for whom. A stand-in has NCCL's part."""

import threading
import time

import pytest
import torch

from pagedchat.distributed import nccl
from pagedchat.distributed.nccl import Nccl
from pagedchat.errors import DeviceError

SOON = 5.0


class Group:
    """Like NCCL's: it ends when captured steps are gone, and locks calls out meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.steps_are_gone, self.aborts, self.answers = threading.Event(), threading.Event(), threading.Event()
        self.answers.set()

    def allreduce(self, tensors: list[torch.Tensor]) -> "Group":
        with self.lock:
            while not self.answers.wait(0.01):
                if self.aborts.is_set():
                    raise RuntimeError("aborted")
        tensors[0] *= 2
        return self

    def wait(self) -> None:
        pass

    def abort(self) -> None:
        self.aborts.set()
        with self.lock:
            self.steps_are_gone.wait()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group()
    fake = type("Fake", (), {"__call__": lambda *_: made, "Options": type("Options", (), {})})
    monkeypatch.setattr(nccl.dist, "ProcessGroupNCCL", fake(), raising=False)
    monkeypatch.setattr(nccl, "_LONGEST_CALL", 0.1)
    return made


def test_a_call_after_the_end_has_begun_is_an_error_and_waits_for_nobody(group: Group) -> None:
    ranks = Nccl(None, 0, 2)
    rows = torch.ones(3)
    assert ranks.sum(rows).tolist() == [2, 2, 2]
    ranks.close()
    ranks.close()
    assert group.aborts.wait(SOON)
    with pytest.raises(DeviceError, match="A rank is gone"):
        ranks.sum(rows)
    assert not ranks.wait_closed(0.05)  # captured steps are still there
    group.steps_are_gone.set()
    assert ranks.wait_closed(SOON)
    assert ranks._group is None


def test_who_waits_for_one_that_is_gone_is_freed_by_the_end(group: Group) -> None:
    ranks = Nccl(None, 0, 2)
    group.answers.clear()
    errors: list[str] = []

    def call() -> None:
        try:
            ranks.sum(torch.ones(1))
        except RuntimeError as error:
            errors.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    while not group.lock.locked():
        time.sleep(0.001)
    group.steps_are_gone.set()
    ranks.close()
    assert ranks.wait_closed(SOON)
    caller.join(SOON)
    assert errors == ["aborted"]


def test_what_was_not_closed_has_not_ended(group: Group) -> None:
    assert not Nccl(None, 0, 2).wait_closed(0.01)
