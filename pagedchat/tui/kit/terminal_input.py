"""What a terminal sends, as keys and pastes: a paste is one piece of text, whatever is in it.

Textual 8.2 takes an escape in a paste for the beginning of a key, and what is behind it for keys: Enter sends then,
and ^Q quits. Here its parser is not shown what is pasted, only where that begins and ends.
"""

import os
import selectors
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Iterator

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message

_SPLIT = len(BRACKETED_PASTE_START) - 1
"""Characters of a mark that can have come in the piece before."""
_PIECE = 4096
_TICK_SECONDS = 0.1


class TerminalInput:
    """Takes what was read, piece by piece; a mark may be split between two pieces anywhere."""

    def __init__(self, *, debug: bool = False) -> None:
        self._parser = XTermParser(debug)
        self._before = ""
        """The end of what was read last."""
        self._pasted: list[str] | None = None
        """What came of a paste so far, in pieces; None outside of one."""

    def feed(self, data: str) -> Iterator[Message]:
        """The messages that are complete now."""
        while data:
            if self._pasted is None:
                data = yield from self._take_keys(data)
            else:
                data = yield from self._take_paste(data)

    def tick(self) -> Iterator[Message]:
        """Those that are complete because nothing came behind them: a lone Esc."""
        yield from self._parser.tick()

    def _take_keys(self, data: str) -> Generator[Message, None, str]:
        """Up to the beginning of a paste; the rest is returned."""
        seen = self._before + data
        begin = seen.find(BRACKETED_PASTE_START)
        end = len(data) if begin < 0 else begin + len(BRACKETED_PASTE_START) - len(self._before)
        yield from self._parser.feed(data[:end])
        self._before = seen[-_SPLIT:] if begin < 0 else ""
        self._pasted = None if begin < 0 else []
        return data[end:]

    def _take_paste(self, data: str) -> Generator[Message, None, str]:
        """Up to its end; the rest is returned."""
        pieces = [*(self._pasted or ()), data] if BRACKETED_PASTE_END in self._before + data else None
        if pieces is None:
            self._before = (self._before + data)[-_SPLIT:]
            if self._pasted is not None:
                self._pasted.append(data)
            return ""
        pasted, _, rest = "".join(pieces).partition(BRACKETED_PASTE_END)
        self._before, self._pasted = "", None
        yield from (
            found for found in self._parser.feed(BRACKETED_PASTE_END) if not isinstance(found, events.Paste)
        )
        yield events.Paste(pasted)
        return rest


def read_terminal(
    descriptor: int, ends: threading.Event, heard: Callable[[Message], None], ahead: str, *, debug: bool
) -> None:
    """Read until it ends; bytes that are no text are shown as such.

    Args:
        descriptor: of the terminal.
        ends: set when nothing more is to be read.
        heard: gets the messages.
        ahead: what was typed before.
        debug: whether Textual logs what it reads.
    """
    terminal, decoder = TerminalInput(debug=debug), getincrementaldecoder("utf-8")("replace")
    for message in terminal.feed(ahead):
        heard(message)
    with selectors.SelectSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not ends.is_set():
            if selector.select(_TICK_SECONDS):
                data = os.read(descriptor, _PIECE)
                if not data:  # nothing more will ever come, and there would be something to read at once, for ever
                    break
                for message in terminal.feed(decoder.decode(data)):
                    heard(message)
            for message in terminal.tick():
                heard(message)
