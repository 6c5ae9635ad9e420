import json
import sys
import time
from pathlib import Path

import pytest

from pagedchat.bench.engine import start
from pagedchat.bench.engine.start_child import Stamps
from pagedchat.errors import PagedChatError
from pagedchat.events import LoadProgress


def test_every_way_is_run_with_cached_kernels_and_with_a_fresh_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders: list[str] = []

    def way(folder: Path, environment: dict[str, str]) -> dict[str, float]:
        assert folder == tmp_path
        assert "PYTHONDONTWRITEBYTECODE" not in environment
        folders.append(environment["PAGEDCHAT_CACHE_DIR"])
        return {"ready": float(len(folders)), "first": 10.0}

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(start, "_WAYS", {"way": way})
    monkeypatch.setattr(start, "_import_torch", lambda *_: {"imports": 0.5})
    said: list[str] = []
    torch_alone, cached, cold = start.measure_start(tmp_path, 5, said.append)
    assert (torch_alone.seconds("imports"), torch_alone.seconds("first")) == (0.5, None)
    assert [run["ready"] for run in cached.runs] == [2, 3, 4, 5, 6]  # the first one does not count
    assert (cached.seconds("ready"), len(cold.runs), cold.name) == (
        4,
        start.MAX_COLD_RUNS,
        "way, no kernels cached",
    )
    assert (len(set(folders[:6])), len(set(folders[6:]))) == (1, 3)
    assert said[-1] == "start: way, no kernels cached: ready 8.00 s, first 10.00 s"


def test_stamps_of_a_process_count_from_its_start() -> None:
    program = "import json, time; print('noise'); print(json.dumps({'first': time.monotonic()}))"
    started = time.monotonic()
    seconds = start._stamps([sys.executable, "-c", program], {})
    assert 0 < seconds["first"] < time.monotonic() - started


def test_first_token_of_a_process_is_its_first_byte(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    popen = start._popen
    program = "import time; print('x', flush=True); time.sleep(0.5)"
    monkeypatch.setattr(start, "_popen", lambda _, environment: popen([sys.executable, "-c", program], environment))
    started = time.monotonic()
    first = start._one_shot(tmp_path, {})["first"]
    assert 0 < first < time.monotonic() - started - 0.4  # it sleeps half a second after it


def test_a_process_that_fails_is_reported_with_its_words() -> None:
    with pytest.raises(PagedChatError, match="failed") as caught:
        start._stamps([sys.executable, "-c", "raise SystemExit('no GPU here')"], {})
    assert "no GPU here" in caught.value.hint


def test_imports_are_done_when_loading_goes_on() -> None:
    stamps = Stamps()
    stamps.loading(LoadProgress("import", "Loading PyTorch"))
    assert stamps.seconds == {}
    stamps.loading(LoadProgress("weights", "Reading the weights"))
    first = stamps.seconds["imports"]
    stamps.loading(LoadProgress("cache", "Taking it"))
    stamps.mark("ready")
    assert json.dumps(stamps.seconds) == json.dumps({"imports": first, "ready": stamps.seconds["ready"]})
