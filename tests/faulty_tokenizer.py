"""A tokenizer that fails where it is told to, as one with a defect would."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from tests.fakes import byte_tokenizer


class PanicException(BaseException):
    """What the bindings of `tokenizers` raise where its own code panics."""


class FaultyTokenizer:
    """`byte_tokenizer`, with `error` raised for every text or run of tokens in which `trigger` occurs.

    It does not say what its texts are made of, so that it is asked for each of them.
    """

    decoder = None

    def __init__(self, trigger: str, error: BaseException, *, decodes: bool = True, encodes: bool = False) -> None:
        self._tokenizer: Tokenizer = byte_tokenizer()
        self._trigger = trigger
        self._error = error
        self._decodes, self._encodes = decodes, encodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        text = self._tokenizer.decode(list(token_ids), **options)
        if self._decodes and self._trigger in text:
            raise self._error
        return text

    def encode(self, text: str, **options: Any) -> Any:
        if self._encodes and self._trigger in text:
            raise self._error
        return self._tokenizer.encode(text, **options)
