"""The model of a benchmark: the one that was asked for, or one of opt-125m's shape that is gone afterwards."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pagedchat.bench.engine.shapes import MIXTURES, SHAPES
from pagedchat.bench.random_checkpoint import OPT_125M, write_byte_tokenizer, write_checkpoint

_WORDS = "{}'s shape, random weights"
SHAPE = _WORDS.format("opt-125m")


@contextmanager
def given_or_made_up(
    model: str | None, say: Callable[[str], None], shape: str | None = None, device: str = "cpu"
) -> Iterator[str]:
    """The folder or hub id of a model.

    Args:
        model: what was asked for.
        say: told of progress.
        shape: what is made otherwise, of `SHAPES` or `MIXTURES`; None: opt-125m's.
        device: where weights are drawn; the GPU is not to be touched before it has to be, and is quicker.
    """
    if model is not None:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as name:
        say(f"writing a checkpoint of {model_words(None, shape)}")
        made = OPT_125M if shape is None else (SHAPES | MIXTURES)[shape]
        write_checkpoint(Path(name), made, torch.float16, torch.device(device))
        write_byte_tokenizer(Path(name))
        yield name


def model_words(model: str | None, shape: str | None = None) -> str:
    """What `given_or_made_up` gives, in words."""
    return model or (SHAPE if shape is None else _WORDS.format(shape))
