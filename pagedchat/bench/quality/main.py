"""`pagedchat bench quality`: one row for each form of the weights and of the cache, beside the text's perplexity
without.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from pagedchat.bench.quality.measure import Quality, form_name, measure
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.description import ModelDescription
from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.models.hub import find_model
from pagedchat.models.quantized.forms import Quantization
from pagedchat.models.tokenizer import load_tokenizer
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.resources import resource_dir
from pagedchat.units import format_size

T = TypeVar("T", Quantization, CacheKind)

_FORMS: tuple[Quantization, ...] = ("int8", "int4")
_CACHES: tuple[CacheKind, ...] = ("fp8", "int8")
_Form = tuple[Quantization | None, CacheKind | None]
"""Of weights and of the cache."""


def run_quality_bench(args: argparse.Namespace) -> int:
    """Measure and print; returns the exit code.

    Raises:
        InvalidValueError: an option, or a text that cannot be read or is too short.
        ModelError: a model that cannot be read, or that our own modules do not run.
    """
    forms = _forms(args.quantize, args.kv_cache_dtype)
    text = _text(args.text)
    description = _described(args.model)
    token_ids = _token_ids(description, text)[: args.tokens]
    if len(token_ids) < 2 or args.window < 2:
        raise InvalidValueError("There is nothing to foretell in fewer than two tokens.", "Give a longer --text.")
    window = min(args.window, description.max_model_len)
    found: list[Quality] = []
    names = [form_name(*form) for form in forms]
    for name, (quantization, cache) in zip(names, forms, strict=True):
        say(f"{name} of {'; '.join(names)}")
        found.append(measure(description, quantization, token_ids, window, cache))
    show(render_table(_title(description, found[0], window), [_row(each, found[0]) for each in found]))
    if args.json is not None:
        values = {"environment": environment(), "window": window, "forms": [asdict(each) for each in found]}
        args.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return 0


def _forms(quantize: str | None, cache: str | None) -> list[_Form]:
    """What is asked for beside neither; a cache by itself where only that is named."""
    weights = () if quantize is None and cache is not None else _wanted("--quantize", quantize, _FORMS)
    caches = () if cache is None else _wanted("--kv-cache-dtype", cache, _CACHES)
    return [(each, kind) for kind in (None, *caches) for each in (None, *weights)]


def _wanted(option: str, given: str | None, known: tuple[T, ...]) -> tuple[T, ...]:
    if given is None:
        return known
    forms = tuple(form for form in known if form == given)
    if not forms:
        raise InvalidValueError(f"{option} is {given!r:.60}.", f"Choose one of {', '.join(map(str, known))}.")
    return forms


def _text(path: str | None) -> str:
    file = resource_dir("assets") / "held_out.txt" if path is None else Path(path)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            f"--text {file} cannot be read: {error!s:.160}.", "Give a text in UTF-8."
        ) from error


def _described(name: str) -> ModelDescription:
    description = describe_model(name, find_model(name))
    if description.native is None:
        raise ModelError(
            f"{name} is run by transformers, which is not asked here.", "Choose a model of one of our own families."
        )
    return description


def _token_ids(description: ModelDescription, text: str) -> list[int]:
    name, folder = description.name, description.folder
    loaded = (
        load_gguf_tokenizer(name, folder)
        if folder.is_file()
        else load_tokenizer(name, folder, description.model_type)
    )
    loaded.check_fits(name, name, description.vocab_size)
    token_ids: list[int] = loaded.tokenizer.encode(text).ids
    return token_ids


def _title(description: ModelDescription, whole: Quality, window: int) -> str:
    stored = f", stored in {description.stored_as}" if description.stored_as else ""
    return f"Perplexity of {description.name}{stored}, {whole.num_tokens:,} tokens in windows of {window}"


def _row(found: Quality, whole: Quality) -> Row:
    change = found.perplexity / whole.perplexity - 1
    beside = "" if found is whole else f"{change:+.2%}, "
    return Row(found.form, f"{found.perplexity:.3f}", f"{beside}weights of {format_size(found.weight_bytes)}")
