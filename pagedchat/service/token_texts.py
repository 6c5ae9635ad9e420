"""The text that each token stands for, as bytes.

Bytes, because a token may be a part of a character only. What a tokenizer writes for a byte depends on its decoder:
byte-level vocabularies have a printable character for each byte (as GPT-2 has), sentencepiece ones have `<0xE2>`
for bytes and a sign of their own for a space. Anything else is decoded by the tokenizer, token by token. Knows no
engine.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import Tokenizer

TokenBytes = Callable[[int], bytes]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """The function from a token's id to its bytes, for this kind of tokenizer.

    The bytes of a text's tokens one after the other are the text, with the one space before it that sentencepiece
    adds and its decoder takes away.
    """
    decoders = _decoders(tokenizer)
    if "ByteLevel" in decoders:
        return _of_vocabulary(tokenizer, _byte_level)
    space = _space_sign(decoders)
    if space is not None:
        return _of_vocabulary(tokenizer, lambda token: _sentencepiece(token, space))
    return lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False).encode()


def _of_vocabulary(tokenizer: Tokenizer, read: Callable[[str], bytes]) -> TokenBytes:
    def bytes_of(token_id: int) -> bytes:
        token = tokenizer.id_to_token(token_id)
        return b"" if token is None else read(token)

    return bytes_of


def _decoders(tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    """Type -> settings of the steps of which the tokenizer's decoder consists."""
    if tokenizer.decoder is None:
        return {}
    decoder = json.loads(tokenizer.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return {step["type"]: step for step in steps}


def _space_sign(decoders: dict[str, dict[str, Any]]) -> str | None:
    """What a sentencepiece vocabulary writes for a space, if it is one."""
    if "Metaspace" in decoders:
        return str(decoders["Metaspace"]["replacement"])
    replaced = decoders.get("Replace", {})
    if replaced.get("content") == " ":
        return str(replaced["pattern"].get("String", "")) or None
    return None


def _sentencepiece(token: str, space: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(space, " ").encode()


def _byte_level(token: str) -> bytes:
    """A special token may have characters that stand for no byte; it is its own text then."""
    characters = _byte_characters()
    if all(character in characters for character in token):
        return bytes(characters[character] for character in token)
    return token.encode()


@cache
def _byte_characters() -> dict[str, int]:
    """The printable characters that stand for bytes: those of Latin-1 that are visible for themselves, the others
    for the rest in order, from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    own = {chr(byte): byte for byte in visible}
    return own | {chr(0x100 + position): byte for position, byte in enumerate(hidden)}
