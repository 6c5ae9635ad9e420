"""The model of a benchmark: the one that was asked for, or one of opt-125m's shape that is gone afterwards."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pagedchat.bench.random_checkpoint import OPT_125M, write_byte_tokenizer, write_checkpoint

SHAPE = "opt-125m's shape, random weights"


@contextmanager
def given_or_made_up(model: str | None, say: Callable[[str], None]) -> Iterator[str]:
    """The folder or hub id of a model.

    Weights are drawn on the CPU: the GPU is not touched before it has to be.

    Args:
        model: what was asked for.
        say: told of progress.
    """
    if model is not None:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as name:
        say(f"writing a checkpoint of {SHAPE}")
        write_checkpoint(Path(name), OPT_125M, torch.float16, torch.device("cpu"))
        write_byte_tokenizer(Path(name))
        yield name
