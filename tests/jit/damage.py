"""What may have happened to a file of a cache."""

from collections.abc import Callable

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda content: content[:-3],
    "one bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "longer": lambda content: content + b"x",
    "text": lambda _: b"not an entry at all",
}
