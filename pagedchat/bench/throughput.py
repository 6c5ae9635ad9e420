"""Tokens per second against transformers: same checkpoint, type, threads and prompts, in turns, in one run."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from pagedchat.api.llm import LLM
from pagedchat.bench.reference import TransformersModel
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.requests.prompts import TokensPrompt

Tokens = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How many prompts at a time, how long."""

    num_sessions: int = 8
    prompt_tokens: int = 128
    new_tokens: int = 64


@dataclass(slots=True)
class Contender:
    """One way to answer prompts, with the seconds that each run took."""

    name: str
    num_prompts: int
    answer: Callable[[Tokens], Tokens]
    seconds: list[float] = field(default_factory=list)

    def run(self, prompts: Tokens) -> Tokens:
        """Answer as many of `prompts` as this one takes, timed."""
        started = time.perf_counter()
        replies = self.answer(prompts[: self.num_prompts])
        self.seconds.append(time.perf_counter() - started)
        return replies

    def tokens_per_second(self, new_tokens: int) -> float:
        """Generated tokens per second in the median run, prefill included."""
        return self.num_prompts * new_tokens / median(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputResult:
    """Tokens per second of the median run of each contender."""

    workload: Workload
    repeats: int
    tokens_per_second: dict[str, float]
    seconds: dict[str, list[float]]
    same_tokens: bool
    """Whether every contender generated the same tokens in every run."""

    @property
    def spread(self) -> float:
        """How many times its fastest run the slowest of a contender took: the worst of all; near 1 when quiet."""
        return max(max(runs) / min(runs) for runs in self.seconds.values())

    def ratio(self, name: str, baseline: str) -> float:
        """How many times the tokens per second of `baseline`."""
        return round(self.tokens_per_second[name] / self.tokens_per_second[baseline], 3)


def measure_throughput(
    llm: LLM,
    reference: TransformersModel,
    workload: Workload,
    repeats: int,
    progress: Callable[[str], None] = lambda _: None,
) -> ThroughputResult:
    """Every contender in turn, `repeats` times, each time with new prompts, so that no cache knows them."""
    contenders = _contenders(llm, reference, workload)
    source = random.Random(0)  # noqa: S311 - any tokens will do
    progress("throughput, warming up")
    _run_round(contenders, _prompts(source, llm, workload))
    for contender in contenders:
        contender.seconds.clear()
    same = []
    for number in range(1, repeats + 1):
        progress(f"throughput, run {number} of {repeats}")
        same.append(_run_round(contenders, _prompts(source, llm, workload)))
    return ThroughputResult(
        workload=workload,
        repeats=repeats,
        tokens_per_second={c.name: round(c.tokens_per_second(workload.new_tokens), 2) for c in contenders},
        seconds={c.name: [round(value, 4) for value in c.seconds] for c in contenders},
        same_tokens=all(same),
    )


def _contenders(llm: LLM, reference: TransformersModel, workload: Workload) -> list[Contender]:
    params = SamplingParams(temperature=0, max_tokens=workload.new_tokens, ignore_eos=True)

    def ours(prompts: Tokens) -> Tokens:
        outputs = llm.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs]

    def theirs(prompts: Tokens) -> Tokens:
        return reference.generate(prompts, workload.new_tokens)

    def theirs_one_by_one(prompts: Tokens) -> Tokens:
        return [reply for prompt in prompts for reply in theirs([prompt])]

    many = workload.num_sessions
    return [
        Contender("pagedchat_1", 1, ours),
        Contender("transformers_1", 1, theirs),
        Contender(f"pagedchat_{many}", many, ours),
        Contender(f"transformers_{many}_in_turn", many, theirs_one_by_one),
        Contender(f"transformers_{many}_batched", many, theirs),
    ]


def _prompts(source: random.Random, llm: LLM, workload: Workload) -> Tokens:
    vocabulary = range(llm.info.vocab_size)
    return [source.choices(vocabulary, k=workload.prompt_tokens) for _ in range(workload.num_sessions)]


def _run_round(contenders: list[Contender], prompts: Tokens) -> bool:
    """Run all once; whether they agree on every token."""
    replies = [contender.run(prompts) for contender in contenders]
    longest = max(replies, key=len)
    return all(reply == longest[: len(reply)] for reply in replies)
