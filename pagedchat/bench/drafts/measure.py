"""Replies with drafts and without, in turns on one engine. Prints nothing."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from pagedchat.bench.drafts.dictated import Dictated
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams, Speculate

Text = Literal["edit", "prose", "own"]
TEXTS: dict[Text, str] = {"edit": "repeats its prompt", "prose": "does not", "own": "is the model's own"}
CHANGED = 0.04
"""Of the tokens of an edit, that are others than those of its prompt."""
_FIRST_TOKEN = 10


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured."""

    num_chats: int
    text: Text
    prompt_tokens: int
    new_tokens: int
    how: Speculate = "lookup"
    """Where drafts come from."""


@dataclass(slots=True)
class Measured:
    """Seconds of each run, without drafts and with, in the order of the runs."""

    work: Work
    off: list[float] = field(default_factory=list)
    on: list[float] = field(default_factory=list)
    num_drafts: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_steps: int = 0
    """With drafts."""

    def tokens_per_second(self, *, with_drafts: bool) -> float:
        """The median of the runs."""
        return self.work.num_chats * self.work.new_tokens / median(self.on if with_drafts else self.off)

    @property
    def times(self) -> float:
        """How many times the tokens a second: the median over runs beside each other, so that what held up both of
        them does not count."""
        return median(off / on for off, on in zip(self.off, self.on, strict=True))

    @property
    def tokens_per_draft(self) -> float:
        """That a sequence got of a step which verified a draft of its, on the average; 0 where none did."""
        return 1 + self.num_accepted / self.num_drafts if self.num_drafts else 0.0


def measure(
    core: EngineCore, prose: list[int], work: Work, num_runs: int, prepare: Callable[[], None] = lambda: None
) -> Measured:
    """Run both in turns, each time on another piece of prose, and once before that to warm up.

    Args:
        core: with nothing to do; with a `Dictated` runner, unless the text is the model's own.
        prose: tokens of a text, more than prompt and reply together.
        work: how many chats, of which text.
        num_runs: of each.
        prepare: makes ready what the engine lacked when it was warmed up.
    """
    source = random.Random(work.num_chats)  # noqa: S311 - any pieces will do
    found = Measured(work)
    for number in range(-1, num_runs):
        texts = [_text(source, prose, work) for _ in range(work.num_chats)]
        for mode in ("off", work.how):
            drafts, steps = core.scheduler.drafts, core._step
            before = drafts.num_drafts, drafts.num_drafted, drafts.num_accepted
            seconds = _run(core, texts, _params(work, mode))
            if number < 0:
                prepare()
                core.scheduler.drafts.forget_costs()  # steps that were not ready say nothing of those that are
                continue
            (found.off if mode == "off" else found.on).append(seconds)
            if mode != "off":
                found.num_drafts += drafts.num_drafts - before[0]
                found.num_drafted += drafts.num_drafted - before[1]
                found.num_accepted += drafts.num_accepted - before[2]
                found.num_steps += core._step - steps
    return found


def _text(source: random.Random, prose: list[int], work: Work) -> tuple[list[int], list[int]]:
    """A prompt and the reply to it; of a model that is not dictated none."""
    start = source.randrange(len(prose) - work.prompt_tokens - work.new_tokens)
    end = start + work.prompt_tokens
    prompt = prose[start:end]
    if work.text != "edit":
        return prompt, prose[end : end + work.new_tokens] if work.text == "prose" else []
    others = source.choices(range(_FIRST_TOKEN, max(prose)), k=work.new_tokens)
    kept = (prompt * (1 + work.new_tokens // len(prompt)))[: work.new_tokens]
    return prompt, [
        other if source.random() < CHANGED else token for token, other in zip(kept, others, strict=True)
    ]


def _params(work: Work, mode: Speculate) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=work.new_tokens, ignore_eos=True, speculate=mode)


def _run(core: EngineCore, texts: list[tuple[list[int], list[int]]], params: SamplingParams) -> float:
    """Seconds from the first step to the last one."""
    seq_ids = []
    for prompt, reply in texts:
        seq_ids.append(core.open())
        if isinstance(core.runner, Dictated):
            core.runner.texts[seq_ids[-1]] = reply
        core.extend(seq_ids[-1], prompt, params)
    began = core._clock()
    while core.has_work:
        core.step()
    seconds = core._clock() - began
    for seq_id, (_, reply) in zip(seq_ids, texts, strict=True):
        if reply and core.sequences[seq_id].output_token_ids != reply:
            raise AssertionError("a reply is not what was dictated")
        core.close(seq_id)
    return seconds
