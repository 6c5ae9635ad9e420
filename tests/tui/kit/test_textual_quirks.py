import pytest
from textual._xterm_parser import XTermParser

from pagedchat.tui.inspector.inspector_keys import ALT_KEYS
from pagedchat.tui.kit.textual_quirks import teach_terminal_keys

PLAIN = [
    ("\x1b\r", "alt+enter"),
    ("\x1b1", "alt+1"),
    ("\x1b9", "alt+9"),
    ("\n", "ctrl+j"),
    ("\x1bc", "alt+c"),
    ("\x1b+", "alt+plus"),
    ("\x1bf", "ctrl+right"),
    ("¡", "inverted_exclamation_mark"),
]
KITTY = [("\x1b[13;3u", "alt+enter"), ("\x1b[13;2u", "shift+enter"), ("\x1b[49;3u", "alt+1")]


@pytest.mark.parametrize(("sequence", "key"), PLAIN + KITTY)
def test_key_is_known_by_name(sequence, key):
    teach_terminal_keys(ALT_KEYS)
    parser = XTermParser()
    events = [*parser.feed(sequence), *parser.feed("")]
    assert [event.key for event in events] == [key]
