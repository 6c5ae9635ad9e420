"""What the last start of a model found of its captured steps on a GPU, or of its kernels on a CPU, for whoever asks
later. Decides nothing.

Kept is what was wrong, in one small file for a model, a GPU and an element type, and with `batch_invariant` in
another; for all types on a CPU there is one. A start that finds nothing wrong takes it away. Nothing here raises:
what cannot be kept stands in the log.
"""

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from pagedchat.jit import own_folder
from pagedchat.jit.cache import default_folder
from pagedchat.private_files import make_folder

_log = logging.getLogger(__name__)
_LAST_MOMENT = 253_402_214_400.0
"""Seconds since the epoch up to the last day that has a date, in any time zone."""
ON_A_CPU = ("CPU", "any")
"""What stands for its name and for the element type."""
_Words = Annotated[str, msgspec.Meta(max_length=200)]


class LeftOut(msgspec.Struct, frozen=True):
    """A kind of captured step, or of work on a CPU, that gave other results than the model."""

    what: Literal["Steps", "Prefills", "Products"]
    """Decodes, passes over prompts, or what both are made of."""
    kind: _Words
    """As `which_step` names it; empty: the last kind there was, so that none is captured."""
    off: _Words
    """By how much, relative to the model's own logits."""

    @property
    def sentence(self) -> str:
        """For people."""
        if self.kind:
            return (
                f"{self.what} as {self.kind} are left out, since one is off by {self.off}: "
                "the next slower kind is taken."
            )
        return f"{self.what} are not captured, since a captured one is off by {self.off}."


class CheckRecord(msgspec.Struct, frozen=True):
    """What was wrong at the last start."""

    when: Annotated[float, msgspec.Meta(ge=0, le=_LAST_MOMENT)]
    """Seconds since the epoch."""
    left_out: Annotated[list[LeftOut], msgspec.Meta(min_length=1, max_length=100)]
    """In the order in which they were found."""


def types_of(element: str, quantization: str | None = None, cache_kind: str | None = None) -> str:
    """In what a model computes, in one line: `"float16, weights in int8, over fp8"`.

    Args:
        element: of rows.
        quantization: of weights that are quantised while they are read; None or empty: none are.
        cache_kind: of a cache of one byte an element, if it is one.
    """
    weights = f", weights in {quantization}" if quantization else ""
    return element + weights + (f", over {cache_kind}" if cache_kind else "")


def keep_check(
    model: str, gpu: str, element: str, left_out: Sequence[LeftOut], *, batch_invariant: bool = False
) -> None:
    """Remember what a start has found.

    Args:
        model: hub id or folder, as it was asked for.
        gpu: its name.
        element: of weights and cache, from `types_of`.
        left_out: nothing, if all was right.
        batch_invariant: whether replies were to be the same in any company, which is kept apart.
    """
    folder, name = _folder(), _name(model, gpu, element, batch_invariant)
    if not left_out:
        with suppress(OSError):
            (folder / name).unlink()
        return
    try:
        make_folder(folder)
        with own_folder.opened(folder) as opened:
            own_folder.write(opened, name, msgspec.json.encode(CheckRecord(time.time(), list(left_out))))
    except OSError as error:
        _log.debug("What the check found is not kept: %s", error)


def last_check(model: str, gpu: str, element: str, *, batch_invariant: bool = False) -> CheckRecord | None:
    """What was wrong at the last start; None where nothing was, or nobody knows. Arguments as of `keep_check`."""
    try:
        with own_folder.opened(_folder()) as opened:
            content = own_folder.read(opened, _name(model, gpu, element, batch_invariant))
    except OSError:
        return None
    return read_record(content)


def read_record(content: bytes) -> CheckRecord | None:
    """What a file says; None if it is none of ours."""
    try:
        return msgspec.json.decode(content, type=CheckRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _folder() -> Path:
    return default_folder().with_name("checks")


def _name(model: str, gpu: str, element: str, batch_invariant: bool) -> str:
    folder = Path(model)
    model = str(folder.resolve()) if folder.is_dir() else model
    parts = json.dumps([model, gpu, element, *(["batch_invariant"] if batch_invariant else [])])
    return f"{hashlib.sha256(parts.encode()).hexdigest()[:32]}.json"
