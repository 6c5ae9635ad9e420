"""GGUF models that are split over several files: whatever is in the parts, whichever are there, whatever they are
called, the model is found, described, loaded and given its tokenizer, or refused in words."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.models.hub import find_model
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.gguf_files import HUGE, MODELS, NUMBERS, gguf_bytes, in_words, load
from tools.fuzz.target import Target

KEYS = ("split.no", "split.count", "split.tensors.count")


class Part(NamedTuple):
    """What is in one file."""

    values: dict[str, Any]
    tensors: list[list[Any]]


def split(values: dict[str, Any], tensors: list[list[Any]], count: int, *, empty_first: bool = False) -> list[Part]:
    """A model in so many parts, tensors dealt out in turns.

    Args:
        values: of the model, which are in the first part.
        tensors: of the model.
        count: of parts.
        empty_first: whether the first one has no tensors.
    """
    hands = count - empty_first
    dealt = [tensors[number::hands] for number in range(hands)]
    return [
        Part((values if number == 0 else {}) | dict(zip(KEYS, (number, count, len(tensors)), strict=True)), hand)
        for number, hand in enumerate([[], *dealt] if empty_first else dealt)
    ]


def file_name(number: int, count: int) -> str:
    """Of the part of a number from 1."""
    return f"m-{number:05d}-of-{count:05d}.gguf"


def write_parts(folder: Path, parts: list[Part]) -> Path:
    """Returns the first file."""
    for number, part in enumerate(parts, 1):
        (folder / file_name(number, len(parts))).write_bytes(gguf_bytes(part.values, part.tensors))
    return folder / file_name(1, len(parts))


@st.composite
def _sets(draw: st.DrawFn) -> tuple[str, dict[str, bytes]]:
    """The file that is asked for, and those that are there: whole, or with something changed in one part."""
    whole, given = draw(st.sampled_from(MODELS))
    count = draw(st.integers(1, 4))
    parts = split(whole, given, count, empty_first=count > 1 and draw(st.booleans()))
    if draw(st.booleans()):
        number = draw(st.integers(0, count - 1))
        parts[number] = draw(_bent_part(parts[number], parts))
    files = {file_name(number, count): gguf_bytes(*part) for number, part in enumerate(parts, 1)}
    asked = draw(st.sampled_from([*files, ""]))  # or the folder
    for _ in range(draw(st.integers(0, 2))):
        files = draw(_changed_files(files))
    return draw(st.sampled_from([asked, *files])), files


@st.composite
def _changed_files(draw: st.DrawFn, files: dict[str, bytes]) -> dict[str, bytes]:
    """One is gone, has another byte, ends early, changes places with another, or has another name."""
    if not files:
        return files
    name, other = (draw(st.sampled_from(list(files))) for _ in range(2))
    data, rest = files[name], {each: data for each, data in files.items() if each != name}
    at = draw(st.integers(0, max(0, len(data) - 1)))
    renamed = file_name(draw(st.integers(0, 5)), draw(any_of((0, 1, 2, 3, 5, 99999))))
    return rest | draw(any_of((
        {},
        {name: data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]},
        {name: data[:at]},
        {name: files[other], other: data},
        {renamed: data},
    )))  # fmt: skip


@st.composite
def _bent_part(draw: st.DrawFn, part: Part, parts: list[Part]) -> Part:
    """Other numbers, or tensors of another part."""
    if draw(st.booleans()):
        numbers = {key: part.values[key] for key in KEYS}
        changed = draw(bent(numbers, NUMBERS | any_of(HUGE)))
        others = {key: value for key, value in part.values.items() if key not in KEYS}
        return Part(others | (changed if isinstance(changed, dict) else {}), part.tensors)
    others_tensors = draw(st.sampled_from(parts)).tensors
    return Part(part.values, draw(st.sampled_from([[*part.tensors, *others_tensors], others_tensors, []])))


def _use(example: tuple[str, dict[str, bytes]]) -> None:
    asked, files = example
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        in_words(lambda: _load(str(Path(folder) / asked)))


def _load(name: str) -> None:
    path = find_model(name)
    in_words(lambda: load_gguf_tokenizer("m", path).tokenizer.encode("a b <s>"))
    load(path)


TARGETS = (Target("gguf parts", _sets(), _use),)
