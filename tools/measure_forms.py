"""The host's part of a step whose replies are held to a schema: `python -m tools.measure_forms [CHATS ...]`.

The engine with its runner for GPUs, whose steps compute nothing and whose tokens are words of a long text, 64, 8
and one chat by default; vocabulary and schemas are those of `tools.measure_sampling`. Printed are microseconds a
step: from tokens that are readable to masks that are made, by the clock and of this thread alone, then all that
the host does in a step. What launches and copies take is not in it. Least means of three runs of 100 steps. Changes
nothing.
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pagedchat.bench import captured_host
from pagedchat.bench.random_checkpoint import OPT_125M, write_word_tokenizer
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.garbage import rare_collections
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.structured.grammar import fill_masks, num_words
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.structured.params import StructuredOutputsParams
from tools.measure_sampling import SCHEMAS

VOCAB_SIZE: int = OPT_125M["vocab_size"]
RUNS, STEPS, WARM_UP = 3, 100, 20
_FIRST_WORD = 300
"""Bytes and special tokens are before."""


def main(arguments: list[str]) -> int:
    """Print a line for each schema and number of chats; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        write_word_tokenizer(Path(folder), VOCAB_SIZE)
        tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    for name, schema in SCHEMAS.items():
        form = StructuredOutputsParams(json=schema)
        for num_chats in map(int, arguments or ("64", "8", "1")):
            runs = [_measure(num_chats, form, Grammars(tokenizer, VOCAB_SIZE, [2])) for _ in range(RUNS)]
            masks, work, step = map(min, zip(*runs, strict=True))
            said = f"masks {masks:.1f} us, of this thread {work:.1f} us; a step {step:.1f} us"
            print(f"{num_chats} chats, {name}: {said}", flush=True)
    return 0


class _Watched:
    """Dictates tokens, and notes when they are read and when their masks are there.

    Args:
        steps: of the engine.
        words: tokens that may always come.
        num_chats: that decode.
    """

    def __init__(self, steps: DecodeSteps, words: list[int], num_chats: int) -> None:
        draw = random.Random(1)  # noqa: S311 - any words will do
        self._replies = [draw.choices(words, k=num_chats) for _ in range(64)]
        self._began = self._work_began = 0.0
        self.seconds: list[tuple[float, float]] = []
        buffers, ruled = steps._buffers, steps._ruled
        buffers.tokens = self._tokens  # type: ignore[method-assign]
        ruled._draw = self._made  # type: ignore[assignment, method-assign]

    def _tokens(self, bucket: Bucket, step: int) -> list[int]:
        tokens = self._replies[step % len(self._replies)]
        self._began, self._work_began = time.perf_counter(), time.thread_time()
        return tokens + [0] * (bucket.num_seqs - len(tokens))

    def _made(self, *_arguments: Any) -> None:
        if self._began:  # by tokens of a step, not of prompts
            self.seconds.append((time.perf_counter() - self._began, time.thread_time() - self._work_began))


def _measure(num_chats: int, form: StructuredOutputsParams, grammars: Grammars) -> tuple[float, float, float]:
    """Microseconds: of masks by the clock, of this thread in it, of a step."""
    begun, words = _beginning(form, grammars)
    core = captured_host._engine(num_chats, length=STEPS + 2 * WARM_UP + len(begun) + 20, vocab_size=VOCAB_SIZE)
    core = EngineCore(core.limits, core.runner, grammars=grammars)
    watched = _Watched(core.runner.decodes, words, num_chats)  # type: ignore[attr-defined]
    params = SamplingParams(max_tokens=STEPS + 2 * WARM_UP + len(begun), structured_outputs=form)
    for _ in range(num_chats):
        core.extend(core.open(), [3, 4, 5, *begun], params, num_begun=len(begun))
    with rare_collections():
        for _ in range(WARM_UP):
            core.step()
        watched.seconds.clear()
        began = time.perf_counter()
        for _ in range(STEPS):
            core.step()
        seconds = time.perf_counter() - began
    masks, work = (fmean(column) for column in zip(*watched.seconds, strict=True))
    return 1e6 * masks, 1e6 * work, 1e6 * seconds / STEPS


def _beginning(form: StructuredOutputsParams, grammars: Grammars) -> tuple[list[int], list[int]]:
    """Tokens up to the text, and the words that may come in it."""
    core = captured_host._engine(1, 100, vocab_size=VOCAB_SIZE)
    sequence, row = core.sequences[core.open()], np.zeros((1, num_words(VOCAB_SIZE)), np.int32)
    while True:
        fill_masks(row, [(grammars.compile(form), sequence)])
        allowed = np.nonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))[0].tolist()
        if len(allowed) > 1:
            return sequence.token_ids, [token for token in allowed if token >= _FIRST_WORD]
        sequence.token_ids += allowed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
