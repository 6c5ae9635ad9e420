"""Text as a hostile model may write it, in the pieces in which tokens would bring it. A plain seeded generator.

Every generator of atoms takes the random numbers and gives a short text; an output is many of them, torn anywhere:
inside an escape sequence, between a letter and its accent, in the middle of an emoji.
"""

from collections.abc import Callable
from random import Random

Atom = Callable[[Random], str]

_CSI_ENDS = "ABCDEFGHJKLMPSTXZ@`abcdefghilmnpqrstuxyz{|}~"
_WORDS = (
    "the", "sea", "[red]", "[/]", "[bold", "**bold**", "# Title", "```py", "- item", "|a|b|", "<b>", "&amp;",
    "$HOME", "\\", "[link=http://x]y[/link]", "[@click=app.quit]q[/]", "{braces}", "%s", "\"quoted\"",
    "https://example.org/",
)  # fmt: skip
_CODE = (
    "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;title\x07", "\x1b]2;title\x1b\\",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "\x1b]4;1;rgb:ff/00/00\x07", "\x1b]10;#000\x07",
    "\x1b]1337;File=inline=1:AAAA\x07", "\x1bP1$r0m\x1b\\", "\x1bP+q544e\x1b\\", "\x1b_Gf=100;AAAA\x1b\\",
    "\x1b^pm\x1b\\", "\x1bXsos\x1b\\", "\x1bc", "\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bM", "\x1bH", "\x1b#8",
    "\x1b(0", "\x1b)0", "\x1b%G", "\x1b=", "\x1b>", "\x1bN", "\x1bO", "\x1b[!p", "\x1b[?1049h", "\x1b[?25l",
    "\x1b[?1000h", "\x1b[?2004h", "\x1b[?2026h", "\x1b[?7l", "\x1b[4h", "\x1b[20h", "\x1b[5i", "\x1b[6n",
    "\x1b[c", "\x1b[>c", "\x1b[1;2r", "\x1b[2J", "\x1b[H", "\x1b[3J", "\x1b[99999999999999999999m",
    "\x1b[38;2;1;2;3m", "\x1b[31;1m", "\x9b2J", "\x9b31m", "\x9d0;t\x9c", "\x90q\x9c", "\x84", "\x85", "\x88",
    "\x8d", "\x8e", "\x8f", "\x9a", "\x1b[200~", "\x1b[201~", "\x1b]", "\x1bP", "\x1b[", "\x1b", "\x9b", "\x9c",
)  # fmt: skip
_CONTROLS = "\x00\x01\x05\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x13\x16\x18\x1a\x1b\x7f"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180b\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c"
    "\u202d\u202e\u2060\u2061\u2064\u2066\u2067\u2068\u2069\u206a\u206f\u3164\ufe00\ufe0e\ufe0f\ufeff\uffa0\ufff9"
    "\ufffa\ufffb\U0001d173\U0001d17a\U000e0001\U000e0041\U000e007f\U000e0100"
)
_EMOJI = (
    "👨\u200d👩\u200d👧\u200d👦", "👩🏽\u200d🚀", "👍🏻", "🏻", "🏿🏿", "❤️", "❤️\u200d🔥", "1️⃣", "#️⃣", "🇩🇪", "🇩",
    "🏴\U000e0067\U000e007f", "🏳️\u200d🌈", "🙂", "☺", "☺️", "⌚︎", "🫨", "🩷", "\U0001f6d8", "🀄", "🃏",
)  # fmt: skip
_WIDE = "海日本語한국어、。「」ＡＢ　〇㊙ﾊﾝ"
_MARKS = (
    "\u0301\u0300\u0308\u0327\u0336\u035c\u0360\u0489\u064b\u0651\u0e31\u0e34\u0e38\u093e\u094d\u0983\u1ab0\u20dd"
    "\u20e3\u302a\u3099\u1161\u11a8\ufe20"
)
_SCRIPTS = "क्षत्रियกำलक्‍षمرحبا‌שלוםଛੴஃಠ\u0d4d\u200d\u1100\u1161\u11a8\ud7b0ກຳ\u1019\u103c\ufdfd\u2e3b\U0001242b\ua9c5"
_PLANES = (
    (0x20, 0x7E), (0x80, 0x2FF), (0x300, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xD7FF), (0xD800, 0xDFFF),
    (0xE000, 0xFFFF), (0x10000, 0x1EFFF), (0x1F000, 0x1FAFF), (0x20000, 0x3FFFF), (0xE0000, 0xE01EF),
    (0xF0000, 0x10FFFF),
)  # fmt: skip


def _word(rng: Random) -> str:
    return rng.choice(_WORDS) + rng.choice(("", " ", " ", "  ", "\n"))


def _letters(rng: Random) -> str:
    return "".join(rng.choices("abcdefghij xyz-.", k=rng.randint(1, 12)))


def _line(rng: Random) -> str:
    return rng.choice("aW海-") * rng.choice((39, 40, 41, 79, 200, 3000 if rng.random() < 0.05 else 60))


def _csi(rng: Random) -> str:
    numbers = ";".join(str(rng.choice((0, 1, 2, 5, 25, 47, 1049, 9999, 10**12))) for _ in range(rng.randint(0, 4)))
    start = rng.choice(("\x1b[", "\x1b[", "\x9b"))
    return (
        start
        + rng.choice(("", "", "?", ">", "=", "!"))
        + numbers
        + rng.choice(("", "", " ", "$", '"'))
        + rng.choice(_CSI_ENDS)
    )


def _any_character(rng: Random) -> str:
    return chr(rng.randint(*rng.choice(_PLANES)))


def _storm(rng: Random) -> str:
    most = 400 if rng.random() < 0.02 else 12
    return rng.choice("aZ海 \n") + "".join(rng.choices(_MARKS, k=rng.randint(1, most)))


def _chain(rng: Random) -> str:
    """Many characters made one by what stands between them."""
    glue = rng.choice(("\u200d", "\u200d", "\ufe0f", "🏻", "\u200c", "\u2060", "\u0301", "\u094d"))
    return glue.join(rng.choices("ab海👩❤क☎🇩", k=rng.randint(2, 80 if rng.random() < 0.05 else 10)))


def _of(choices: str | tuple[str, ...], most: int = 1) -> Atom:
    return lambda rng: "".join(rng.choices(choices, k=rng.randint(1, most)))


_ATOMS: tuple[tuple[int, Atom], ...] = (
    (20, _word), (20, _letters), (4, _line), (8, _csi), (14, _of(_CODE)), (8, _of(_CONTROLS, 3)),
    (8, _of(_INVISIBLE, 3)), (10, _of(_EMOJI, 2)), (10, _of(_WIDE, 6)), (6, _storm), (5, _of(_MARKS, 2)),
    (6, _of(_SCRIPTS, 4)), (6, _chain), (8, _any_character),
)  # fmt: skip
_WEIGHTS, _MAKERS = zip(*_ATOMS, strict=True)


def hostile_output(rng: Random) -> list[str]:
    """One output, in pieces."""
    most = 60 if rng.random() < 0.03 else 12
    text = "".join(make(rng) for make in rng.choices(_MAKERS, _WEIGHTS, k=rng.randint(1, most)))
    num_cuts = rng.choice((0, 1, 2, 3, 5))
    edges = sorted(rng.randint(0, len(text)) for _ in range(num_cuts))
    return [text[a:b] for a, b in zip([0, *edges], [*edges, len(text)], strict=True)]
