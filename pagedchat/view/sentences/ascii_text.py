"""The inspector's own signs for a terminal that has only ASCII. Text of models and chats is left as it is."""

_SIGNS = str.maketrans(
    {
        "→": ">", "←": "<", "−": "-", "…": "~", "·": ".", "•": ".", "✕": "x", "‖": "|", "⑂": "Y", "▶": ">",
        "◀": "<", "▸": ">", "✓": "+", "✗": "!", "⏎": "/", "×": "x", "■": "#", "●": "*", "○": "o", "█": "#",
        "“": '"', "”": '"',
    }
)  # fmt: skip
"""Sign by sign, so that nothing becomes wider."""


def to_ascii(text: str) -> str:
    """The text with our own signs written in ASCII."""
    return text if text.isascii() else text.translate(_SIGNS)
