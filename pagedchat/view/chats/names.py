"""What chats are called that nobody has given a name. Knows no chats."""

from collections.abc import Set

from pagedchat.chat.sanitize import one_line

MAX_NAME = 14
"""Characters of a name that is made from a prompt."""
_FORK_MARKS = "abcdefghijklmnopqrstuvwxyz"
_PUNCTUATION = "!\"'()*,-.:;?[]`{}“”"
_COMMON = """
    a about an and are as at be can could describe did do does explain few for from give has have how i in is it its
    let like make me my name of on one or out please say short should some tell that the them then there they
    this to up us was we were what when where which who why will with would write you your
"""
_SAY_NOTHING = frozenset(_COMMON.split())
"""Words of English that tell no chat from another."""


def name_from(prompt: str) -> str:
    """What a prompt is about, as many words as make a short name: "Tell me a story about a fox" is `story fox`."""
    words = one_line(prompt).split()
    about = [bare for word in words if (bare := word.strip(_PUNCTUATION)) and bare.lower() not in _SAY_NOTHING]
    about = about or words
    name = about[0] if about else ""
    for word in about[1:]:
        if len(name) + 1 + len(word) > MAX_NAME:
            break
        name += " " + word
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def fork_name(name: str, taken: Set[str]) -> str:
    """`tale` -> `tale»a`; of a fork `tale»b`."""
    base = name.partition("»")[0] or "new chat"
    return next((f"{base}»{mark}" for mark in _FORK_MARKS if f"{base}»{mark}" not in taken), f"{base}»")


def next_name(name: str, taken: Set[str]) -> str:
    """`tale` -> `tale 2`, `tale 2` -> `tale 3`."""
    base, _, number = (name or "new chat").rpartition(" ")
    start = (base, int(number)) if base and number.isascii() and number.isdigit() else (name or "new chat", 1)
    return next(f"{start[0]} {n}" for n in range(start[1] + 1, start[1] + 100) if f"{start[0]} {n}" not in taken)
