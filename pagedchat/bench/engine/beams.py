"""What a step of a beam search costs: beside a token of one sequence, which the same engine generates greedily.

Beams of a search are sequences of one batch over shared blocks. So a search of four beams is to take far less than
four sequences one after the other; how many times less is the figure.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.workloads import Prompts
from pagedchat.bench.kernels.report import Table
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.requests.prompts import TokensPrompt

WIDTHS = (2, 4, 8)
NEW_TOKENS = {"cpu": 48, "cuda": 256}
"""Of each run, by device."""
_PROMPT = 32
_WARM_UP = 2
"""Runs: the first has steps made for so many rows, and the next for beams in them."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamFigure:
    """One width."""

    width: int
    single_ms: float
    """A token of one sequence."""
    step_ms: float
    """A step of the search: a token of every beam."""
    copies: int
    """Blocks that were copied for beams in one search."""

    @property
    def times(self) -> float:
        """How many times as fast as the same number of sequences one after the other."""
        return self.width * self.single_ms / self.step_ms


def measure_beams(
    llm: LLM, device: str, repeats: int, say: Say, widths: Sequence[int] = WIDTHS
) -> list[BeamFigure]:
    """Searches of several widths and single sequences in turns, after some of each that do not count: what these
    lack is made before anything is measured.

    Args:
        llm: without a tokenizer.
        device: cpu or cuda.
        repeats: runs; medians count.
        say: told of progress.
        widths: of the searches.
    """
    prompts, count = Prompts(llm.info.vocab_size), NEW_TOKENS[device]
    singles: list[float] = []
    steps: dict[int, list[float]] = {width: [] for width in widths}
    copies: dict[int, int] = {}
    for number in range(-_WARM_UP, repeats):
        prompt = TokensPrompt(prompt_token_ids=prompts.one(_PROMPT))
        single = _ms_a_token(partial(_generate, llm, prompt), count)
        for width in widths:
            before = llm.stats().copies
            step = _ms_a_token(partial(_search, llm, prompt, width), count)
            copies[width] = llm.stats().copies - before
            if number >= 0:
                steps[width].append(step)
        if number < 0:
            llm.prepare()
        else:
            singles.append(single)
            say(
                f"run {number + 1}: a token {single:.3f} ms, "
                f"steps {[round(each[-1], 3) for each in steps.values()]} ms"
            )
    return [
        BeamFigure(width=width, single_ms=median(singles), step_ms=median(steps[width]), copies=copies[width])
        for width in widths
    ]


def beam_table(figures: Sequence[BeamFigure]) -> Table:
    """A row for each width."""
    rows = tuple(
        (f"{f.width} beams", f"{f.single_ms:.3f}", f"{f.step_ms:.3f}", f"{f.times:.2f}", str(f.copies))
        for f in figures
    )
    header = ("", "a token of one, ms", "a step of the search, ms", "times", "copies")
    return Table("Beam search: times as fast as the same number of sequences one by one", header, rows)


def _ms_a_token(run: Callable[[int], None], count: int) -> float:
    """What a call takes beyond one that asks for a single token, shared out among the other tokens."""
    seconds = []
    for num_tokens in (1, count):
        started = time.perf_counter()
        run(num_tokens)
        seconds.append(time.perf_counter() - started)
    return 1e3 * (seconds[1] - seconds[0]) / (count - 1)


def _generate(llm: LLM, prompt: TokensPrompt, count: int) -> None:
    llm.generate(prompt, SamplingParams(temperature=0, max_tokens=count, ignore_eos=True), use_tqdm=False)


def _search(llm: LLM, prompt: TokensPrompt, width: int, count: int) -> None:
    llm.beam_search(prompt, BeamSearchParams(width, count, ignore_eos=True))
