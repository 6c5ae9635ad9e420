"""The workloads run on any engine: wall-clock of whole calls, each workload after warm-ups, medians of the runs.

The first token is timed by calls that ask for one, with prompts of their own; the time of a later one is what a
whole call takes beyond that, shared out among the rest of its tokens.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from pagedchat.bench.engine.workloads import (
    LONG_PROMPT,
    ROWS,
    SHAPE_ROWS,
    SHORT_PROMPT,
    DecodeWork,
    PrefixWork,
    Prompts,
    Tokens,
)
from pagedchat.errors import PagedChatError

Clock = Callable[[], float]
UNCOUNTED = 2
"""Runs: the first one meets all that the others will, and what the engine has ready then the second one begins."""


class Engine(Protocol):
    """What is measured."""

    name: str

    def generate(self, prompts: Tokens, new_tokens: int) -> Tokens:
        """Greedily `new_tokens` tokens after each prompt, all prompts together."""
        ...

    def settle(self) -> None:
        """Have ready whatever calls like those before would make ready by and by."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What came out of one row for one engine."""

    row: str
    """Key of `workloads.ROWS` or `workloads.SHAPE_ROWS`."""
    engine: str
    runs: list[float]
    """Of each run, in the row's unit."""

    @property
    def value(self) -> float:
        """The median."""
        return median(self.runs)

    def __str__(self) -> str:
        row = (ROWS | SHAPE_ROWS)[self.row]
        return f"{row.key} {row.show(self.value)} {row.unit}"


@dataclass(slots=True)
class Meter:
    """One engine under measurement.

    Args:
        engine: what answers.
        prompts: fresh ones.
        repeats: runs that count.
        clock: seconds.
    """

    engine: Engine
    prompts: Prompts
    repeats: int
    clock: Clock = time.perf_counter

    def decode(self, work: DecodeWork) -> list[Figure]:
        """Milliseconds a token of one chat; of several their tokens a second, in all and after the first."""
        whole, steps = self._calls(work)
        if work.num_chats == 1:
            return [self._figure("decode_1_ms", [1e3 * step for step in steps])]
        num_tokens = work.num_chats * work.new_tokens
        return [
            self._figure(f"output_{work.num_chats}", [num_tokens / seconds for seconds in whole]),
            self._figure(f"decode_{work.num_chats}", [work.num_chats / step for step in steps]),
        ]

    def step(self, row: str, work: DecodeWork) -> Figure:
        """Milliseconds of a decode step of all chats."""
        _, steps = self._calls(work)
        return self._figure(row, [1e3 * step for step in steps])

    def again(self, rows: tuple[str, str], length: int, own: int = 0) -> list[Figure]:
        """Milliseconds from the call to its only token: a fresh prompt, and the same again, with `own` fresh tokens
        behind it.
        """

        def draw() -> Tokens:
            prompt = self.prompts.one(length)
            return [prompt, prompt + self.prompts.one(own)]

        return self._first_tokens(rows, draw)

    def first_token(self) -> list[Figure]:
        """Milliseconds from the call to its only token: a short prompt, a long one, and that one again."""
        rows = ("first_32_ms", "first_1024_ms", "first_1024_again_ms")

        def draw() -> Tokens:
            long = self.prompts.one(LONG_PROMPT)
            return [self.prompts.one(SHORT_PROMPT), long, long]

        return self._first_tokens(rows, draw)

    def prefix(self, work: PrefixWork) -> list[Figure]:
        """Output tokens a second of chats over one prefix: when nobody knows it, and when it is cached."""
        rows: dict[str, list[float]] = {"prefix_new": [], "prefix_cached": []}
        for number in range(UNCOUNTED + self.repeats):
            prefix = self.prompts.one(work.prefix_tokens)
            for runs in rows.values():
                seconds = self._time(self.prompts.sharing(prefix, work.num_chats, work.own_tokens), work.new_tokens)
                self.settle_after(number)
                if number >= UNCOUNTED:
                    runs.append(work.num_chats * work.new_tokens / seconds)
        return [self._figure(row, runs) for row, runs in rows.items()]

    def _calls(self, work: DecodeWork) -> tuple[list[float], list[float]]:
        """Seconds of whole calls, and of a step of theirs after the first tokens."""
        whole, steps = [], []
        for number in range(UNCOUNTED + self.repeats):
            first = self._time(self.prompts.many(work.num_chats, work.prompt_tokens), 1)
            full = self._time(self.prompts.many(work.num_chats, work.prompt_tokens), work.new_tokens)
            self.settle_after(number)
            if number >= UNCOUNTED:
                whole.append(full)
                steps.append((full - first) / (work.new_tokens - 1))
        return whole, steps

    def _first_tokens(self, rows: Sequence[str], draw: Callable[[], Tokens]) -> list[Figure]:
        """Of a prompt for each row, one after the other; `draw` has fresh ones for each run."""
        runs: list[list[float]] = [[] for _ in rows]
        for number in range(UNCOUNTED + self.repeats):
            seconds = [self._time([prompt], 1) for prompt in draw()]
            self.settle_after(number)
            if number >= UNCOUNTED:
                for values, value in zip(runs, seconds, strict=True):
                    values.append(1e3 * value)
        return [self._figure(row, values) for row, values in zip(rows, runs, strict=True)]

    def settle_after(self, number: int) -> None:
        """After the first run."""
        if number == 0:
            self.engine.settle()

    def _time(self, prompts: Tokens, new_tokens: int) -> float:
        started = self.clock()
        replies = self.engine.generate(prompts, new_tokens)
        seconds = self.clock() - started
        lengths = {len(reply) for reply in replies}
        if len(replies) != len(prompts) or lengths != {new_tokens}:
            raise PagedChatError(
                f"{self.engine.name} gave {len(replies)} replies of {sorted(lengths)} tokens, "
                f"not {len(prompts)} of {new_tokens}."
            )
        return seconds

    def _figure(self, row: str, runs: list[float]) -> Figure:
        return Figure(row=row, engine=self.engine.name, runs=runs)
