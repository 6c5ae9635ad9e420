"""The walk of a decode step in ARCHITECTURE.md names the files that run in one, and no others."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch

from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.resources import resource_dir
from pagedchat.service.commands import Generate
from tests.fakes import FakeClock
from tests.runtime.graphs.case import LATE, make_engine, make_runner, tiny_model
from tests.service.engine_rig import EngineRig

ROOT = resource_dir("kernels").parent
PACKAGE = ROOT / "pagedchat"
IS_FUNCTION = 1
"""Flag of code that is neither a module's nor a class's."""
MOST_FILES = 12


def files_run(work: Callable[[], object]) -> set[str]:
    """Files of the package whose functions run; what a captured step replays is the GPU's work, not the host's."""
    found: set[str] = set()
    replays = 0

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal replays
        code = frame.f_code
        if code.co_name == "replay":
            replays += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not replays and code.co_flags & IS_FUNCTION:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                found.add(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def named_in_walk(title: str) -> set[str]:
    """Files that the numbered steps of a walk name."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = page.partition(f"### {title}\n")[2].partition("\n### ")[0]
    steps = "\n".join(re.findall(r"^(?:\d\.|  ).*$", walk, re.MULTILINE))
    return set(re.findall(r"`([\w/]+\.py)`", steps))


def test_a_decode_step_passes_the_files_of_its_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 64, captured=True, clock=FakeClock(LATE))
    core = make_engine(runner)
    monkeypatch.setattr("tests.service.engine_rig.EngineCore", lambda *_, **__: core)
    rig = EngineRig(plain=True)
    rig.send(Generate(1, 1, [Turn("user", "hello")], SamplingOverrides(max_tokens=200, temperature=0)))
    rig.step(20)
    ahead = runner.decodes.num_ahead
    rig.publisher.flush()
    passed = files_run(rig.loop.step)  # no time passes: as of hundreds of steps, nothing of it is told at once
    assert runner.decodes.num_ahead == ahead + 1
    assert passed == named_in_walk("A decode step on a GPU")
    assert len(passed) <= MOST_FILES
