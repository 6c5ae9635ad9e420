"""The whole recipe in one go, by the clock: a larger model, what it expects, and the model that learns from it.

Knows no text and no sources; `train.py` trains and `soft_labels.py` labels.
"""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import OPTForCausalLM

from tools.toy_model.bpe import load_tokenizer
from tools.toy_model.checkpoint import save_checkpoint
from tools.toy_model.corpus import Corpus
from tools.toy_model.run_training import corpus_of
from tools.toy_model.shapes import SHAPES, opt_config
from tools.toy_model.soft_labels import SoftLabels, label
from tools.toy_model.train import Log, Settings, as_written, train
from tools.toy_model.validate import ALL, losses

TEACHER_SHARE = 0.35
"""Of all the time; the small model has what is left after the labels."""
TO_WRITE = 6.0
"""Seconds for the last look and the files."""
MIDDLE = (0.6, 0.85)
"""Of the small model's time: then its state is written too, in case the end is not reached."""
K = 32


@dataclass(frozen=True, slots=True)
class _Run:
    """What both trainings go by."""

    corpus: Corpus
    valid: Corpus
    tokenizer: Tokenizer
    device: torch.device
    context: int
    windows: int
    out: Path
    started: float

    def say(self, what: str, **row: object) -> None:
        """A line on the screen, and one in `training.jsonl`."""
        line = {"what": what, "seconds": round(time.perf_counter() - self.started, 1), **row}
        with (self.out / "training.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps({name: value for name, value in line.items() if name != "valid"}), flush=True)


def whole(data: Path, out: Path, seconds: float, device: str, tiny: bool = False) -> None:
    """Train a teacher and the model; write `OUT/model`, `OUT/middle` and `OUT/training.jsonl`.

    Args:
        data: folder made by `prepare` and `tokenizer`, or by `encode`.
        out: for the results.
        seconds: for all of it.
        device: "cuda" or "cpu".
        tiny: small shapes and a part of the text.
    """
    started = time.perf_counter()
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is: slower, but to the end
    out.mkdir(parents=True, exist_ok=True)
    context, windows = (128, 4) if tiny else (2048, 32)
    corpus, valid = corpus_of(data, "train", context), corpus_of(data, "valid", context)
    if tiny:
        corpus, valid = _beginning(corpus, 400, context), _beginning(valid, 40, context)
    run = _Run(corpus, valid, load_tokenizer(data), torch.device(device), context, windows, out, started)
    run.say("loaded", tokens=len(corpus.tokens), conversations=len(corpus.sources))
    settings = Settings(
        steps=1, windows=windows, context=context, learning_rate=1.3e-3, weight_decay=0.3, reply_share=0.25,
        every_token=True, log_every=1000, seed=1,
    )  # fmt: skip
    teacher = _fresh(run, "tiny" if tiny else "large", dropout=0.1)
    until = started + TEACHER_SHARE * seconds
    train(teacher, corpus, _by_clock(settings, until), None, run.device, _log(run, "teacher", teacher))
    soft = _labels(run, teacher)
    del teacher
    torch.compiler.reset()
    model = _fresh(run, "tiny" if tiny else "toy", dropout=0.05)
    settings = replace(
        settings, learning_rate=2e-3, weight_decay=0.1, reply_share=0.3, every_token=False, log_every=1500,
        soft_share=0.7, own_soft_share=0.4,
    )  # fmt: skip
    until = started + seconds - TO_WRITE
    log = _saving(run, model, until, _log(run, "model", model))
    train(model, corpus, _by_clock(settings, until), soft, run.device, log)
    save_checkpoint(model, run.tokenizer, out / "model", torch.float16)
    run.say("written")


def _beginning(corpus: Corpus, count: int, context: int) -> Corpus:
    """The first conversations that are not longer than the context."""
    kept = np.flatnonzero(corpus.lengths <= context)[:count].tolist()
    spans = [slice(corpus.starts[index], corpus.starts[index + 1]) for index in kept]
    starts = np.concatenate([[0], np.cumsum(corpus.lengths[kept])])
    tokens = np.concatenate([corpus.tokens[span] for span in spans])
    spoken = np.concatenate([corpus.spoken[span] for span in spans])
    return Corpus(tokens, spoken, starts, tuple(corpus.sources[index] for index in kept))


def _fresh(run: _Run, shape: str, dropout: float) -> OPTForCausalLM:
    torch.manual_seed(1)
    return OPTForCausalLM(opt_config(SHAPES[shape], run.tokenizer.get_vocab_size(), run.context, dropout))


def _by_clock(settings: Settings, until: float) -> Settings:
    return replace(settings, seconds=max(1.0, until - time.perf_counter()))


def _labels(run: _Run, teacher: OPTForCausalLM) -> SoftLabels:
    with as_written(teacher):
        soft = label([teacher], run.corpus, 0, len(run.corpus.sources), K, lambda _: None)
    run.say("labelled")
    return soft


def _log(run: _Run, name: str, model: OPTForCausalLM) -> Log:
    def log(step: int, loss: float, speed: float) -> None:
        by_source = {source: round(value, 4) for source, value in losses(model, run.valid).items()}
        row = {"step": step, "train": round(loss, 4), "tokens_per_second": round(speed)}
        run.say(name, **row, all=by_source[ALL], valid=by_source)

    return log


def _saving(run: _Run, model: OPTForCausalLM, until: float, log: Log) -> Log:
    """The same log, which writes the model too when a share of `MIDDLE` has gone by."""
    begun = time.perf_counter()
    coming = list(MIDDLE)
    write: Callable[[], None] = lambda: save_checkpoint(  # noqa: E731
        copy.deepcopy(model), run.tokenizer, run.out / "middle", torch.float16
    )

    def saving(step: int, loss: float, speed: float) -> None:
        log(step, loss, speed)
        if coming and time.perf_counter() - begun >= coming[0] * (until - begun):
            coming.pop(0)
            write()
            run.say("middle", step=step)

    return saving
