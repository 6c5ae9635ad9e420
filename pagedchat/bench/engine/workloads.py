"""What the engines are asked to do: the sizes, fresh prompts, and the rows that come out. Measures nothing."""

import random
from dataclasses import dataclass
from typing import Literal

Tokens = list[list[int]]
"""Token ids, one list for each prompt or reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeWork:
    """Chats that are answered together."""

    num_chats: int
    prompt_tokens: int
    new_tokens: int


DECODES = (
    DecodeWork(num_chats=1, prompt_tokens=32, new_tokens=512),
    *(DecodeWork(num_chats=count, prompt_tokens=128, new_tokens=256) for count in (8, 32, 64, 128, 256)),
)
SHORT_PROMPT, LONG_PROMPT = 32, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixWork:
    """Chats whose prompts begin alike."""

    num_chats: int = 64
    prefix_tokens: int = 1024
    own_tokens: int = 32
    new_tokens: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a quantity that every engine has."""

    key: str
    title: str
    unit: Literal["ms", "tok/s"]

    def ratio(self, ours: float, theirs: float) -> float:
        """How many times as good ours is; above 1 it is the better one."""
        return theirs / ours if self.unit == "ms" else ours / theirs

    def show(self, value: float) -> str:
        """The number without its unit."""
        return f"{value:.3f}" if self.unit == "ms" else f"{value:.0f}"


ROWS = {
    row.key: row
    for row in (
        Row(key="decode_1_ms", title="1 chat, 32 in, 512 out: a token", unit="ms"),
        *(
            Row(key=f"{kind}_{count}", title=f"{count} chats, 128 in, 256 out: {words}", unit="tok/s")
            for count in (8, 32, 64, 128, 256)
            for kind, words in (("output", "whole call"), ("decode", "after the first token"))
        ),
        Row(key="first_32_ms", title="first token of 32", unit="ms"),
        Row(key="first_1024_ms", title="first token of 1,024, fresh", unit="ms"),
        Row(key="first_1024_again_ms", title="first token of 1,024, the same again", unit="ms"),
        Row(key="prefix_new", title="64 chats over 1,024 shared, 32 own in, 128 out: prefix new", unit="tok/s"),
        Row(key="prefix_cached", title="64 chats over 1,024 shared, 32 own in, 128 out: cached", unit="tok/s"),
    )
}
"""All rows of the shape that is measured in full, in the order in which they are shown."""

SHAPE_ROWS = {
    row.key: row
    for row in (
        Row(key="step_1_ms", title="1 chat, 32 in, 256 out: a step", unit="ms"),
        *(Row(key=f"step_{n}_ms", title=f"{n} chats, 128 in, 128 out: a step", unit="ms") for n in (8, 64, 256)),
        Row(key="step_1_long_ms", title="1 chat, 8,192 in, 128 out: a step", unit="ms"),
        Row(key="crowd", title="200 requests of mixed lengths, a third over 400 shared: output", unit="tok/s"),
        Row(key="drawn_64", title="64 chats, 128 in, 128 out, drawn: output", unit="tok/s"),
        Row(key="first_1500_ms", title="first token of 1,500, fresh", unit="ms"),
        Row(key="first_1500_again_ms", title="first token of 1,500, the same again", unit="ms"),
        Row(key="first_8000_ms", title="first token of 8,000, fresh", unit="ms"),
        Row(key="next_turn_ms", title="first token of 30 more behind them", unit="ms"),
    )
}
"""Likewise, of the other shapes."""


class Prompts:
    """Fresh random token ids: no two prompts are alike, so that no cache knows one.

    Args:
        vocab_size: ids are below it; the first few, special tokens as a rule, are left out.
        seed: fixes them.
    """

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._ids = range(min(4, vocab_size - 1), vocab_size)
        self._source = random.Random(seed)  # noqa: S311 - any tokens will do

    def one(self, length: int) -> list[int]:
        """A prompt of so many tokens."""
        return self._source.choices(self._ids, k=length)

    def many(self, count: int, length: int) -> Tokens:
        """So many prompts of so many tokens."""
        return [self.one(length) for _ in range(count)]

    def sharing(self, prefix: list[int], count: int, own: int) -> Tokens:
        """Prompts that begin with `prefix` and go on with so many tokens of their own."""
        return [prefix + self.one(own) for _ in range(count)]
