"""The text that each token stands for, as bytes.

Bytes, because a token may be a part of a character only. What a tokenizer writes for a byte depends on its decoder:
byte-level vocabularies have a printable character for each byte (as GPT-2 has), sentencepiece ones have `<0xE2>`
for bytes and a sign of their own for a space. Anything else is decoded by the tokenizer, token by token. Knows no
engine.
"""

import codecs
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

TokenBytes = Callable[[int], bytes]

MAX_KINDS = 16
"""Sets of bytes for which it is remembered which tokens have none of them."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE = {"Replace", "ByteFallback", "Fuse", "Strip"}
_STRIPS_ONE_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """The function from a token's id to its bytes, for this kind of tokenizer.

    The bytes of a text's tokens one after the other are the text, with the one space before it that sentencepiece
    adds and its decoder takes away.
    """
    return _token_bytes(tokenizer, _decoders(tokenizer))


def _token_bytes(tokenizer: Tokenizer, decoders: dict[str, dict[str, Any]]) -> TokenBytes:
    if "ByteLevel" in decoders:
        return _of_vocabulary(tokenizer, _byte_level)
    space = _space_sign(decoders)
    if space is None:
        return lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False).encode()
    if "ByteFallback" in decoders:
        return _of_vocabulary(tokenizer, lambda token: _with_byte_tokens(token, space))
    return _of_vocabulary(tokenizer, lambda token: token.replace(space, " ").encode())


class ByteText:
    """A tokenizer whose texts are the bytes of their tokens, one after the other.

    What is looked up once is kept, so that most tokens cost no more than that they are found again.

    Args:
        bytes_of: of a token.
        silent: tokens that are left out of texts.
        errors: what becomes of bytes that are no UTF-8, as the codecs of Python call it.
        strips: whether a space before the first word of all is left out.
    """

    def __init__(self, bytes_of: TokenBytes, silent: frozenset[int], errors: str, *, strips: bool) -> None:
        self.errors, self.strips = errors, strips
        self.bytes_of = _Table(lambda token_id: b"" if token_id in silent else bytes_of(token_id)).__getitem__
        """The bytes of a token."""
        self._harmless: dict[frozenset[int], Callable[[int], bool]] = {}

    def harmless(self, dangerous: frozenset[int]) -> Callable[[int], bool]:
        """Whether a token has none of these bytes, as a function that remembers."""
        if dangerous not in self._harmless:
            if len(self._harmless) >= MAX_KINDS:
                self._harmless.clear()
            bytes_of = self.bytes_of
            self._harmless[dangerous] = _Table(lambda token: dangerous.isdisjoint(bytes_of(token))).__getitem__
        return self._harmless[dangerous]


class _Table(dict[int, Any]):
    """What a function says of each token, asked once."""

    def __init__(self, ask: Callable[[int], Any]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, token_id: int) -> Any:
        value = self[token_id] = self._ask(token_id)
        return value


_BYTE_TEXTS: "WeakKeyDictionary[Tokenizer, dict[bool, ByteText | None]]" = WeakKeyDictionary()


def byte_text(tokenizer: Tokenizer, skip_special_tokens: bool) -> ByteText | None:
    """The texts of a tokenizer by their bytes; None where its decoder does anything else with tokens.

    Args:
        tokenizer: the same one gives the same answer.
        skip_special_tokens: leave out tokens such as the end of the sequence.
    """
    known = _BYTE_TEXTS.setdefault(tokenizer, {})
    if skip_special_tokens not in known:
        known[skip_special_tokens] = _byte_text(tokenizer, skip_special_tokens)
    return known[skip_special_tokens]


def _byte_text(tokenizer: Tokenizer, skip_special_tokens: bool) -> ByteText | None:
    decoders = _decoders(tokenizer)
    if not _joins_bytes(decoders):
        return None
    added = tokenizer.get_added_tokens_decoder() if skip_special_tokens else {}
    silent = frozenset(token_id for token_id, token in added.items() if token.special)
    errors = BYTE_BY_BYTE if "ByteFallback" in decoders else "replace"
    return ByteText(_token_bytes(tokenizer, decoders), silent, errors, strips="ByteLevel" not in decoders)


def _joins_bytes(decoders: dict[str, dict[str, Any]]) -> bool:
    """Whether this decoder writes the bytes of tokens, and leaves out no more than the space before the first."""
    kinds = set(decoders)
    if kinds in ({"ByteLevel"}, {"Metaspace"}):
        return True
    strip = decoders.get("Strip", _STRIPS_ONE_SPACE)
    return (
        {"Replace", "Fuse"} <= kinds <= _SENTENCEPIECE
        and bool(_space_sign(decoders))
        and strip == _STRIPS_ONE_SPACE
    )


BYTE_BY_BYTE = "pagedchat.byte_by_byte"
"""As "replace", but with a sign for each byte, as sentencepiece has it."""


def _byte_by_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(BYTE_BY_BYTE, _byte_by_byte)


def _of_vocabulary(tokenizer: Tokenizer, read: Callable[[str], bytes]) -> TokenBytes:
    def bytes_of(token_id: int) -> bytes:
        token = tokenizer.id_to_token(token_id)
        return b"" if token is None else read(token)

    return bytes_of


def _decoders(tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    """Type -> settings of the steps of which the tokenizer's decoder consists; "more" where one comes twice."""
    if tokenizer.decoder is None:
        return {}
    decoder = json.loads(tokenizer.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    named = {step["type"]: step for step in steps}
    return named if len(named) == len(steps) else {**named, "more": {}}


def _space_sign(decoders: dict[str, dict[str, Any]]) -> str | None:
    """What a sentencepiece vocabulary writes for a space, if it is one."""
    if "Metaspace" in decoders:
        return str(decoders["Metaspace"]["replacement"])
    replaced = decoders.get("Replace", {})
    if replaced.get("content") == " ":
        return str(replaced["pattern"].get("String", "")) or None
    return None


def _with_byte_tokens(token: str, space: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(space, " ").encode()


def _byte_level(token: str) -> bytes:
    """A special token may have characters that stand for no byte; it is its own text then."""
    try:
        return token.translate(_byte_characters()).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


_NO_BYTE = "\uffff"
"""Latin-1 has it not."""


@cache
def _byte_characters() -> dict[int, str]:
    """What makes of the printable characters that stand for bytes those bytes, as Latin-1 has them: those of it
    that are visible stand for themselves, and characters from U+0100 on for the rest in order, which stands for
    none.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    stand_in = {0x100 + position: chr(byte) for position, byte in enumerate(hidden)}
    return stand_in | dict.fromkeys(hidden, _NO_BYTE)
