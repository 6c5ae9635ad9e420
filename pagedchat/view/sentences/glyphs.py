"""Every sign that this program draws beside plain ASCII, and what ASCII has for it. Pure.

Only signs of WGL4 are drawn, the list of characters that Windows fonts have in common for all of Europe: DejaVu
Sans Mono, Menlo, Consolas and Cascadia all have it. Check marks and crosses are no part of it, nor are eighths of a
block, round corners, raised digits above three. What a model or a user writes is not concerned.
"""

GLYPHS = {
    # lines and corners
    "─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+",
    "═": "=", "║": "|",
    # blocks
    "█": "#", "▓": "#", "▒": "=", "░": ".", "▀": "#", "▄": "#", "▌": "#", "▐": "#",
    # signs
    "■": "#", "□": "x", "●": "*", "○": "o", "◦": "~", "◊": "!", "►": ">", "◄": "<", "▼": "x", "√": "+", "‼": "!",
    "→": ">", "←": "<", "↑": "^", "↓": "v",
    # punctuation
    "·": ".", "•": ".", "…": "~", "–": "-", "—": "-", "−": "-", "×": "x", "»": ">", "«": "<", "›": ">", "‹": "<",
    "“": '"', "”": '"', "‘": "'", "’": "'", "¶": "/", "¹": "1", "²": "2", "³": "3",
}  # fmt: skip
"""A sign of one cell -> one ASCII character, so that nothing becomes wider."""

SIGNS = str.maketrans(GLYPHS)
"""For `str.translate`."""

_FOREIGN = {
    "╭": "┌", "╮": "┐", "╰": "└", "╯": "┘", "━": "═", "┃": "║",
    "▁": "_", "▂": "_", "▃": "▄", "▅": "▄", "▆": "█", "▇": "█", "▔": "▀",
    "▏": "│", "▎": "│", "▍": "▌", "▋": "▌", "▊": "█", "▉": "█", "▕": "│",
    "▖": "▄", "▗": "▄", "▘": "▀", "▝": "▀", "▙": "█", "▛": "█", "▜": "█", "▟": "█",
    "▶": "►", "◀": "◄", "❯": "›", "✓": "√", "🔎": "› ", "⋮": "│", "⭘": "○", "\ufffd": "□",
}  # fmt: skip
"""What Textual's own frames, bars and lists are drawn with, and bytes that are no text -> what is drawn instead."""

CORNER = _FOREIGN["╭"]
"""The upper left of a frame, which is drawn once there is anything."""
PLAIN = str.maketrans(_FOREIGN)
"""For `str.translate`: everything into `GLYPHS`."""
_CONTROL_PICTURES = dict.fromkeys(range(0x2400, 0x2440), "?")
"""Control characters in what others wrote, made visible."""
ASCII = _CONTROL_PICTURES | str.maketrans(
    {sign: instead.translate(SIGNS) for sign, instead in _FOREIGN.items()} | GLYPHS
)
"""For `str.translate`: everything into ASCII."""
