"""What is written to a terminal: frames in one piece, and whether it has taken them."""

import threading
from types import SimpleNamespace

import pytest
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers._writer_thread import WriterThread

from pagedchat.tui.kit.terminal_driver import TerminalDriver


class Slow:
    """A terminal that takes nothing before it may."""

    def __init__(self) -> None:
        self.may_take = threading.Event()
        self.texts: list[str] = []

    def write(self, text: str) -> None:
        self.texts.append(text)

    def flush(self) -> None:
        self.may_take.wait(10)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def driver(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> TerminalDriver:
    monkeypatch.setattr("sys.__stderr__", slow)
    monkeypatch.setattr("sys.__stdin__", SimpleNamespace(fileno=lambda: 0, isatty=lambda: False))
    monkeypatch.setattr("textual.driver.asyncio.get_running_loop", lambda: None)
    driver = TerminalDriver(SimpleNamespace())
    driver._writer_thread = WriterThread(driver._file)
    driver._writer_thread.start()
    return driver


def test_a_frame_is_written_in_one_piece_and_is_behind_until_it_is_taken(
    driver: TerminalDriver, slow: Slow
) -> None:
    assert not driver.is_behind
    for piece in (SYNC_START, "a", "b", SYNC_END):
        assert not driver.is_behind
        driver.write(piece)
    assert driver.is_behind
    slow.may_take.set()
    driver.write("c")
    assert driver._writer_thread is not None
    driver._writer_thread.stop()
    assert not driver.is_behind
    assert slow.texts == [f"{SYNC_START}ab{SYNC_END}", "c"]
