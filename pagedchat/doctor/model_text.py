"""A model's steps as a table and a paragraph for each, or as plain values."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from textwrap import fill
from typing import Any

import msgspec

from pagedchat.doctor.model_steps import ModelReport, StepReport
from pagedchat.doctor.step_work import Fallback, Launch, Work
from pagedchat.ops.screening.plan import MAX_TOP_K
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.whole_steps import WHOLE_STEPS
from pagedchat.runtime.loading.check_record import CheckRecord
from pagedchat.units import format_size

_TOKENS = {"greedy": "likeliest tokens", "shortlist": "tokens of top-k", "drawn": "drawn tokens"}
_NO_GPU = """\
There is no GPU here. Where `pagedchat doctor` finds CPU kernels, and they know all that the model has, decodes of
up to 32 chats are one call into them; all else runs through the model's modules in torch, one operation after
another. Add --arch sm_90 to see which steps an H200 would take."""
_NOTE = f"""\
Reasons are times on an H200 with a model of opt-125m's shape; kernels/DECODE_STEPS.md has more. Drawn tokens take
one launch more behind a step: sample. Tokens of top-k are drawn from the {MAX_TOP_K} most likely ones or fewer."""


def model_text(report: ModelReport) -> str:
    """All of it."""
    if report.uncaptured:
        return "\n\n".join((_heading(report), _uncaptured(report)))
    if report.foreign:
        return "\n\n".join((_heading(report), _foreign(report)))
    steps = _merged(report.steps)
    paragraphs = [_paragraph(batch, step) for batch, step in steps]
    return "\n\n".join((_heading(report), _table(steps), *paragraphs, _NOTE))


def model_values(report: ModelReport) -> dict[str, Any]:
    """The same as values of JSON."""
    return {
        "model": report.name,
        "architecture": report.architecture,
        "sizes": report.sizes,
        "element": report.element,
        "gpu": None if report.gpu is None else asdict(report.gpu),
        "uncaptured": report.uncaptured,
        "foreign": report.foreign,
        "last_start": None if report.found is None else msgspec.to_builtins(report.found),
        "steps": [_values(step) for step in report.steps],
    }


def _values(step: StepReport) -> dict[str, Any]:
    return {
        "batch": step.batch,
        "tokens": step.choice,
        "bucket": step.bucket._asdict(),
        "step": step.chosen.name,
        "reason": step.chosen.reason,
        "kernels": [asdict(work) for work in step.work if isinstance(work, Launch)],
        "libraries": [asdict(work) for work in step.work if isinstance(work, Fallback)],
        "refused": [{"step": name, "since": why} for name, why in step.chosen.refused],
        "head": None if step.head is None else step.head.name,
        "head_refused": [{"head": name, "since": why} for name, why in _refused_heads(step)],
    }


def _heading(report: ModelReport) -> str:
    sizes, gpu = report.sizes, report.gpu
    lines = [
        f"{report.name}: {report.architecture}, {sizes['layers']} layers, {sizes['heads']} heads over "
        f"{sizes['kv_heads']} of {sizes['head_dim']}, {sizes['vocab_size']:,} tokens, {report.element}"
    ]
    if gpu is not None:
        room = f"{gpu.num_multiprocessors} multiprocessors with {format_size(gpu.shared_bytes)} of shared memory"
        lines.append(f"on {gpu.name}, {gpu.architecture}, {room}")
    return "\n".join(lines if report.found is None else lines + check_lines(report.found))


def check_lines(found: CheckRecord) -> list[str]:
    """What the last start has left out."""
    when = datetime.fromtimestamp(found.when).astimezone()
    heading = f"When it was last started here, at {when:%Y-%m-%d %H:%M}, results were held against the model's:"
    return [heading, *(f"  {each.sentence}" for each in found.left_out)]


def _uncaptured(report: ModelReport) -> str:
    if report.gpu is None:
        return _NO_GPU
    return f"No step is captured, since {report.uncaptured}."


def _foreign(report: ModelReport) -> str:
    return (
        f"Steps go through transformers' modules, since {report.foreign}. They are captured in CUDA graphs\n"
        "where those let them be; loading says what cannot be captured, and why."
    )


def _merged(steps: list[StepReport]) -> list[tuple[str, StepReport]]:
    """Each with what it is for; once for all choices of tokens where they take the same step."""
    shown = []
    for batch, of_batch in groupby(steps, key=lambda step: step.batch):
        several = list(of_batch)
        if len({step.name for step in several}) == 1:
            shown.append((batch, several[0]))
        else:
            shown += [(f"{batch}, {_TOKENS[step.choice]}", step) for step in several]
    return shown


def _table(steps: list[tuple[str, StepReport]]) -> str:
    rows = [("batch", "step", "done by a library")]
    for batch, step in steps:
        parts = [work.part for work in step.work if isinstance(work, Fallback)]
        rows.append((batch, step.name, ", ".join(parts) or "nothing"))
    widths = [max(len(row[column]) for row in rows) + 2 for column in (0, 1)]
    return "\n".join(f"{batch:<{widths[0]}}{step:<{widths[1]}}{parts}" for batch, step, parts in rows)


_NAME_WIDTH = 16
"""Columns that names take, at least."""


def _paragraph(batch: str, step: StepReport) -> str:
    lines = [f"{batch}: {step.name}", *_lines("captured for", [_sizes(step)])]
    lines += _lines("reason", [step.chosen.reason])
    if step.head is not None and step.name != step.chosen.name:
        lines += _lines("its head", [step.head.reason])
    lines += _lines("kernels", list(_kernels(step.work)))
    lines += _lines("by a library", list(_libraries(step.work)))
    lines += _lines("refused", list(_refused(step.chosen.refused + _refused_heads(step))))
    return "\n".join(lines)


def _lines(name: str, texts: list[str]) -> list[str]:
    """Under each other, the first one behind its name."""
    indent = " " * _NAME_WIDTH
    wrapped = [fill(text, 114, initial_indent=indent, subsequent_indent=f"{indent}  ") for text in texts]
    lines = "\n".join(wrapped).splitlines()
    return [f"  {name:<{_NAME_WIDTH - 2}}{lines[0].lstrip()}", *lines[1:]] if lines else []


def _sizes(step: StepReport) -> str:
    bucket = step.bucket
    if isinstance(bucket, PrefillBucket):
        return f"{bucket.num_tokens:,} tokens, contexts of up to {bucket.context_len:,}"
    rows = "1 row" if bucket.num_seqs == 1 else f"{bucket.num_seqs} rows"
    return f"{rows}, contexts of up to {bucket.context_len:,} tokens"


def _kernels(work: list[Work]) -> Iterator[str]:
    launches = [each for each in work if isinstance(each, Launch)]
    width = max([_NAME_WIDTH, *(len(launch.part) + 2 for launch in launches)])
    for launch in launches:
        constants = "".join(f" {name}={value}" for name, value in launch.constants.items())
        yield f"{launch.part + ':':<{width}}{launch.kernel}{constants}"


def _libraries(work: list[Work]) -> Iterator[str]:
    fallbacks = [each for each in work if isinstance(each, Fallback)]
    for (library, why), parts in groupby(fallbacks, key=lambda each: (each.library, each.why)):
        yield f"{', '.join(each.part for each in parts)}: {library}, since {why}"


def _refused_heads(step: StepReport) -> tuple[tuple[str, str], ...]:
    return () if step.head is None else step.head.refused


def _refused(refused: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for why, names in groupby(refused, key=lambda pair: pair[1]):
        several = tuple(name for name, _ in names)
        start = ("one launch of any kind", *several[4:]) if several[:4] == WHOLE_STEPS else several
        yield f"{'; '.join(start)}: {why}"
