import sys
from pathlib import Path

import pytest

from pagedchat.bench import first_frame
from pagedchat.errors import PagedChatError


def test_frame_is_there_when_a_border_is_drawn() -> None:
    program = (
        "import time; time.sleep(0.2); print('\\u250c\\u2500 1 chat \\u2500\\u2510', flush=True); time.sleep(30)"
    )
    seconds = first_frame._time_once([sys.executable, "-c", program])
    assert 0.2 < seconds < first_frame._PATIENCE_SECONDS


def test_program_that_ends_without_a_frame_is_reported_with_its_words() -> None:
    with pytest.raises(PagedChatError, match="drew no frame") as caught:
        first_frame._time_once([sys.executable, "-c", "print('no terminal for me')"])
    assert "no terminal for me" in caught.value.hint


def test_terminal_draws_before_the_engine_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(600)")  # a torch that is never loaded
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = first_frame.measure_first_frame(str(tmp_path / "no_model"), repeats=1)
    assert 0 < result.median_s < first_frame._PATIENCE_SECONDS
