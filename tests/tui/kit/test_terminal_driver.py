"""What is written to a terminal: frames in one piece, and whether it has taken them."""

import os
import select
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers._writer_thread import WriterThread

from pagedchat.tui.kit.terminal_driver import TerminalDriver, _take_all_keys, _typed_ahead


class Slow:
    """A terminal that takes nothing before it may."""

    def __init__(self) -> None:
        self.may_take = threading.Event()
        self.texts: list[str] = []

    def write(self, text: str) -> None:
        self.texts.append(text)

    def flush(self) -> None:
        self.may_take.wait(10)

    def isatty(self) -> bool:
        return True


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


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """What a terminal writes its keys to, and where a program reads them."""
    keys, program = os.openpty()
    yield keys, program
    os.close(keys)
    os.close(program)


@pytest.mark.parametrize("typed", ["", "Hi\r", "Hi\rand th", "a\r\r"])
def test_enter_typed_ahead_is_enter(terminal: tuple[int, int], typed: str) -> None:
    keys, program = terminal
    os.write(keys, typed.encode())
    if typed:
        assert select.select([program], [], [], 10)[0]  # at least the first line has come
    _take_all_keys(program)
    found = _typed_ahead(program)
    while len(found) < len(typed):  # the system passes keys on when it has time
        found += os.read(program, 1).decode()
    assert found == typed


@pytest.mark.parametrize("key", ["\x11", "\x13", "\r", "\n"])
def test_keys_are_what_they_are_once_all_are_taken(terminal: tuple[int, int], key: str) -> None:
    keys, program = terminal
    _take_all_keys(program)
    os.write(keys, key.encode() * 4)
    assert os.read(program, 4) == key.encode() * 4
