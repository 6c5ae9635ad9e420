"""`pagedchat bench cpu`: a decode step on a CPU in whole, through the modules, and kernel by kernel.

The kernels of a step are timed in its order, each in a call of its own, so that every weight comes from memory as
it does in a step; the calls cost some microseconds each. All chats attend to the same number of tokens.
"""

import argparse
import json
import time
from itertools import product
from statistics import median

import torch

from pagedchat.bench.made_up import given_or_made_up, model_words
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.errors import DeviceError, InvalidValueError
from pagedchat.jit.cpu.pool import Program
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.decoder import Decoder
from pagedchat.models.hub import find_model
from pagedchat.models.loader import load_weights
from pagedchat.ops.cpu.kernels import cpu_kernels, objection
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.cpu.objections import objection_to
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.loading.device import available_memory, choose_dtype
from pagedchat.runtime.step.batch_inputs import BatchInputs

_BLOCK_SIZE = 16
_CPU = torch.device("cpu")


def run_cpu_bench(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code.

    Raises:
        InvalidValueError: more chats than a step takes, or weights in a form that there is not.
        DeviceError: there are no kernels, or none for this model.
        ModelError: there is no such model.
    """
    if args.quantize not in ("none", "int8", "int4"):
        raise InvalidValueError(f"--quantize is {args.quantize!r}.", "Give none, int8 or int4.")
    kernels = cpu_kernels()
    if kernels is None:
        raise DeviceError(f"There is nothing to measure, since {objection()}.", "Look at pagedchat doctor.")
    if max(args.batch) * max(args.rows) > kernels.most_rows:
        raise InvalidValueError(
            f"--batch times --rows is at most {kernels.most_rows} here.", "More go through the modules."
        )
    with given_or_made_up(args.model, say, args.shape) as model:
        results = _measure(args, model)
    if args.json is not None:
        args.json.write_text(json.dumps({"environment": environment(), "steps": results}, indent=2) + "\n", "utf-8")
    return 0


def _measure(args: argparse.Namespace, name: str) -> list[dict[str, object]]:
    runner = _runner(args, name)
    results = []
    for num_chats, each in product(args.batch, args.rows):
        chats = f"{num_chats} {'chat' if num_chats == 1 else 'chats'}"
        chats += f" of {each} rows each" if each > 1 else ""
        say(chats)
        figures = _figures(runner, _inputs(num_chats, each, args.context), args.steps)
        results.append({"chats": num_chats, "rows": each, **figures})
        weights = "" if args.quantize == "none" else f" in {args.quantize}"
        model = model_words(args.model, args.shape) + weights
        title = f"{model}, {chats}, {args.context} tokens, medians of {args.steps}"
        show(render_table(title, _rows(runner, figures, num_chats * each)))
    return results


def _runner(args: argparse.Namespace, name: str) -> CpuModelRunner:
    description = describe_model(name, find_model(name, lambda *_: None))
    dtype = choose_dtype(args.dtype, _CPU, description.dtype)
    quantization = None if args.quantize == "none" else args.quantize
    model = load_weights(description, attention="", dtype=dtype, device=_CPU, quantization=quantization)
    if not isinstance(model, Decoder) or (words := objection_to(model.config, dtype)):
        raise DeviceError(f"{name} has no whole steps on a CPU, since {words or 'it is not of our own modules'}.")
    use_cpu_linears(model, available_memory())
    heads, per_chat = model.config.heads, -(-args.context // _BLOCK_SIZE)
    shape = CacheShape(
        model.config.num_layers, _BLOCK_SIZE, heads.num_heads, heads.num_kv_heads, heads.head_dim, dtype
    )
    backend = TorchAttention(shape, max(args.batch) * per_chat, 0, _CPU)
    backend.cache.zero_()
    runner = CpuModelRunner(model, backend, _CPU)
    if runner.step is None:
        raise DeviceError(
            f"{name} has no whole steps on a CPU: not all of its weights have kernels.", "Try --quantize int8."
        )
    return runner


def _inputs(num_chats: int, each: int, context: int) -> BatchInputs:
    """Of decodes, the last row of each chat behind `context - 1` tokens."""
    per_chat = -(-context // _BLOCK_SIZE)
    tables = [list(range(chat * per_chat, (chat + 1) * per_chat)) for chat in range(num_chats)]
    num_rows = num_chats * each
    places = [max(0, context - each) + i for i in range(each)] * num_chats
    of_rows = [tables[row // each] for row in range(num_rows)]
    slots = torch.tensor([table[0] * _BLOCK_SIZE + place for table, place in zip(of_rows, places, strict=True)])
    lengths = [place + 1 for place in places]
    batch = AttentionBatch(list(range(num_rows)), num_rows, [1] * num_rows, lengths, of_rows, slots)
    rows = torch.arange(num_rows)
    return BatchInputs(rows[None] + 5, torch.tensor([places]), rows, list(range(num_rows)), batch)


@torch.inference_mode()
def _figures(runner: CpuModelRunner, inputs: BatchInputs, steps: int) -> dict[str, object]:
    """Milliseconds; all ways in turn, so that a busy moment is everybody's."""
    seconds: dict[str, list[float]] = {"step": [], "most likely tokens": [], "through the modules": []}
    for _ in range(steps + 1):
        for name, its_seconds in seconds.items():
            runner.whole_steps = name != "through the modules"
            runner.only_likeliest = name == "most likely tokens"
            started = time.perf_counter()
            runner.forward(inputs)
            its_seconds.append(time.perf_counter() - started)
    runner.whole_steps, runner.only_likeliest = True, False
    # The first one makes what the others use.
    times = {name: 1e3 * median(its_seconds[1:]) for name, its_seconds in seconds.items()}
    return {**times, "kernels": _by_kernel(runner, inputs.token_ids.shape[1], steps)}


def _by_kernel(runner: CpuModelRunner, num_rows: int, steps: int) -> dict[str, float]:
    step, kernels = runner.step, cpu_kernels()
    if step is None or kernels is None:
        raise RuntimeError("a step has just been run")
    named = [(name, Program(kernels.pool, [job])) for name, job in step.jobs(num_rows)]
    seconds: list[list[float]] = [[] for _ in named]
    for _ in range(steps):
        for (_, program), its_seconds in zip(named, seconds, strict=True):
            started = time.perf_counter()
            program.run()
            its_seconds.append(time.perf_counter() - started)
    total: dict[str, float] = {}
    for (name, _), its_seconds in zip(named, seconds, strict=True):
        total[name] = total.get(name, 0.0) + 1e3 * median(its_seconds)
    return total


def _rows(runner: CpuModelRunner, figures: dict[str, object], num_rows: int) -> list[Row]:
    step, kernels = runner.step, figures["kernels"]
    whole = figures["step"]
    assert step is not None  # noqa: S101 - `_figures` has run it
    assert isinstance(kernels, dict)  # noqa: S101
    assert isinstance(whole, float)  # noqa: S101
    weights = step.weight_bytes(num_rows) / 1e6
    rate = weights / whole
    return [
        Row("a step", f"{whole:.2f} ms", f"{weights:.0f} MB of weights at {rate:.1f} GB/s"),
        Row("the same for the most likely tokens alone", f"{figures['most likely tokens']:.2f} ms"),
        Row("the same through the modules", f"{figures['through the modules']:.2f} ms"),
        *(Row(f"  {name}", f"{ms:.2f} ms") for name, ms in kernels.items()),
    ]
