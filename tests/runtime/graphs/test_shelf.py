"""Steps that are missing are made in pieces, and nobody waits for a compiler meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pagedchat.errors import KernelError
from pagedchat.jit.launch import NotBuiltError
from pagedchat.jit.variant import Variant
from pagedchat.runtime.graphs import shelf as shelf_module
from pagedchat.runtime.graphs.capture import GraphRecorder
from pagedchat.runtime.graphs.decode.steps import Step
from pagedchat.runtime.graphs.shelf import Shelf
from tests.fakes import FakeClock


class Kernels:
    """Stands for a `BuildAhead`."""

    def __init__(self) -> None:
        self.done = False
        self.failure: KernelError | None = None

    def wait(self, seconds: float) -> bool:
        assert seconds == 0
        return self.done


class NumberShelf(Shelf[int]):
    """Steps of a number; notes all that is done, and builds nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, at_first_use: bool = False) -> None:
        self.clock = FakeClock()
        super().__init__(torch.device("cpu"), at_first_use=at_first_use, clock=self.clock)
        self.done: list[str] = []
        self.kernels = Kernels()
        self.step: Callable[[int], Step] = lambda key: lambda: torch.tensor([key])
        monkeypatch.setattr(shelf_module, "build_kernels_of", self._found)
        monkeypatch.setattr(shelf_module, "build_ahead", self._missing)

    def _found(self, steps: list[Any], _device: torch.device, *, quietly: bool) -> Kernels:
        assert quietly
        self.done.append(f"kernels of {len(steps)}")
        return self.kernels

    def _missing(self, variants: list[Variant], _index: int, *, quietly: bool) -> Kernels:
        assert quietly
        self.done += map(str, variants)
        self.kernels = Kernels()
        return self.kernels

    def _make(self, key: int) -> Step:
        self.done.append(f"made {key}")
        return self.step(key)

    def _clear(self, key: int) -> None:
        self.done.append(f"cleared {key}")

    def _kind(self, key: int) -> str:
        return "odd" if key % 2 else "even"

    def _what(self, key: int) -> str:
        return f"Steps of {key}"


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> NumberShelf:
    return NumberShelf(monkeypatch)


def test_who_asks_is_answered_at_once_until_the_step_is_there(shelf: NumberShelf) -> None:
    assert shelf.find(3) is None
    assert shelf.done == []
    shelf.go_on(3)
    assert shelf.done == ["kernels of 1"]
    assert not shelf.making[3].may_go_on
    shelf.kernels.done = True
    assert shelf.making[3].may_go_on
    for piece in ("layout", "trial", "capture", "start"):
        assert shelf.find(3) is None
        assert shelf.making[3].piece == piece
        shelf.go_on(3)
    assert shelf.done[1:] == ["cleared 3", "made 3", *["cleared 3"] * 3]
    step = shelf.find(3)
    assert step is not None
    assert not shelf.making
    step.replay()
    assert step.logits.tolist() == [3]
    assert shelf.capture(3) is step
    assert shelf.done.count("made 3") == 1


def test_what_is_wanted_again_keeps_its_place_and_its_age(shelf: NumberShelf) -> None:
    shelf.find(3)
    shelf.go_on(3)
    shelf.clock.now += 5
    shelf.find(3)
    making = shelf.making[3]
    assert (making.asked - making.since, making.piece) == (5, "layout")


def test_who_may_wait_has_it_made_at_once_whatever_was_begun(shelf: NumberShelf) -> None:
    shelf.find(3)
    shelf.go_on(3)
    assert shelf.capture(3) is not None
    assert not shelf.making
    assert shelf.done.count("made 3") == 1


def test_at_first_use_the_batch_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = NumberShelf(monkeypatch, at_first_use=True)
    assert shelf.find(3) is shelf.find(3) is not None
    assert shelf.done == ["cleared 3", "made 3"]


def test_what_fails_is_given_up_for_good_and_said_once(
    shelf: NumberShelf, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_key: int) -> Step:
        raise RuntimeError("operation not permitted when stream is capturing")

    shelf.step, shelf.kernels.done = fail, True
    for key in (3, 4):
        shelf.find(key)
        shelf.go_on(key)
        shelf.go_on(key)
        assert key in shelf
        assert shelf.find(key) is None
        assert shelf.capture(key) is None
    assert not shelf.making
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["Steps of 3 are not captured: operation not permitted when stream is capturing"]
    assert shelf.done.count("made 3") == 1


def test_kernels_that_cannot_be_built_are_not_tried_again(
    shelf: NumberShelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.find(3)
    shelf.go_on(3)
    shelf.kernels.done, shelf.kernels.failure = True, KernelError("No compiler.")
    shelf.go_on(3)
    assert shelf.find(3) is None
    assert "made 3" not in shelf.done
    assert "Steps of 3 are not captured: No compiler." in caplog.text


def test_a_kernel_that_was_not_looked_for_is_built_beside_too(shelf: NumberShelf) -> None:
    variant = Variant.of("sample", ELEMENT="float16")

    def unexpected(_key: int) -> Step:
        raise NotBuiltError(variant)

    usual = shelf.step
    shelf.find(3)
    shelf.go_on(3)
    shelf.kernels.done, shelf.step = True, unexpected
    shelf.go_on(3)
    assert shelf.done[-1] == str(variant)
    assert not shelf.making[3].may_go_on
    shelf.kernels.done, shelf.step = True, usual
    for _ in range(4):
        assert shelf.find(3) is None
        shelf.go_on(3)
    assert shelf.find(3) is not None


def test_a_kernel_that_only_a_recording_asks_for_is_tried_out_before_the_next_one(
    shelf: NumberShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(_recorder: GraphRecorder, _step: Step) -> None:
        raise NotBuiltError(Variant.of("sample", ELEMENT="float16"))

    shelf.find(3)
    shelf.kernels.done = True
    for _ in range(3):
        shelf.go_on(3)
    with monkeypatch.context() as patched:
        patched.setattr(GraphRecorder, "capture", unexpected)
        shelf.go_on(3)
    assert shelf.making[3].piece == "trial"
    shelf.kernels.done = True
    for _ in range(3):
        shelf.go_on(3)
    assert shelf.find(3) is not None


def test_how_long_pieces_take_is_known_of_steps_of_a_kind_whoever_had_them_made(shelf: NumberShelf) -> None:
    def laid_out(seconds: float) -> Callable[[int], Step]:
        def make(key: int) -> Step:
            shelf.clock.now += seconds
            return lambda: torch.tensor([key])

        return make

    for key in (3, 4):
        shelf.find(key)
        shelf.making[key].piece = "layout"
        assert shelf.expected(shelf.making[key]) is None
    for key, seconds in ((5, 0.5), (7, 0.25), (9, 0.375)):
        shelf.step = laid_out(seconds)
        shelf.capture(key)
    assert shelf.expected(shelf.making[3]) == 0.25
    assert shelf.expected(shelf.making[4]) is None
    shelf.making[3].piece = "trial"
    assert shelf.expected(shelf.making[3]) == 0
    assert shelf.describe(3) == "steps of 3 (odd)"


def test_nothing_is_rehearsed_on_what_another_step_has_left(
    shelf: NumberShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rehearse(steps: list[Callable[[], Step]], _device: torch.device, *, quietly: bool) -> None:
        assert quietly
        for make in steps:
            make()

    monkeypatch.setattr(shelf_module, "build_kernels_of", rehearse)
    shelf.kernels_of([3, 5], quietly=True)
    assert shelf.done == ["cleared 3", "made 3", "cleared 5", "made 5"]
