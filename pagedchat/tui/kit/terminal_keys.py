"""Teaches Textual's key parser what plain terminals send for Alt+1..9 and Alt+Enter.

Terminals with the kitty keyboard protocol report these keys by name. All others send Esc and the character, which
Textual 8.2 reads as what a Mac keyboard writes with Option (`¡` for 1) and as a mere Enter; then Alt+1 would write
into the prompt, and Alt+Enter would send it.
"""

from types import SimpleNamespace
from typing import Any

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS


def teach_terminal_keys() -> None:
    """Change the parser's table; doing it again changes nothing."""
    table: dict[str, Any] = ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    names = {"\r": "alt+enter", "\n": "alt+enter"} | {digit: f"alt+{digit}" for digit in "123456789"}
    for character, name in names.items():
        table[f"\x1b{character}"] = (SimpleNamespace(value=name),)
