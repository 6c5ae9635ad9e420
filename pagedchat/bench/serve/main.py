"""`pagedchat bench serve`: streams of many clients over the loopback, beside the same prompts on an engine without
a server, by turns in one run: a machine that other work shares is at times half as fast.
"""

import argparse
import json
import random
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from statistics import median

from pagedchat.bench.serve.clients import ServerProcess
from pagedchat.bench.serve.offline import Offline
from pagedchat.bench.serve.streams import Figures, figures, median_run
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.config import DEFAULT_MODEL, CacheConfig, EngineConfig, ModelConfig

GOALS = "goals: at most 10 % more a token, first tokens within 5 ms"
_WARM_UPS = 2
"""Runs that do not count, each followed by the time to make ready what it met."""
_RUNS_OF_ROOM, _BLOCK_SIZE = 3, CacheConfig().block_size


def run_serve_bench(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code.

    Raises:
        PagedChatError: the model cannot be loaded, or the server ends.
    """
    model = args.model or DEFAULT_MODEL
    num_blocks = _num_blocks(args)
    config = EngineConfig(
        model=replace(ModelConfig(), model=model, device=args.device, dtype=args.dtype),
        cache=CacheConfig(num_blocks=num_blocks),
    )
    options = ["--model", model, "--device", args.device, "--dtype", args.dtype, "--num-blocks", str(num_blocks)]
    say(f"{model} without a server")
    with closing(Offline(config)) as engine:
        work = _Work(args, engine.vocab_size)
        say(f"{model} behind a server, by turns with that")
        with ServerProcess(options) as server:
            measured = {count: work.measure(engine, server, count) for count in args.clients}
    offline = {count: both[0] for count, both in measured.items()}
    served = {count: both[1] for count, both in measured.items()}
    for count in args.clients:
        title = (
            f"{model}, {count} x {args.prompt_tokens} + {args.new_tokens} tokens, medians of {args.repeats} runs"
        )
        show(render_table(title, _rows(offline[count], served[count])))
    if args.json is not None:
        told = [
            {"clients": count, "offline": asdict(offline[count]), "served": asdict(served[count])}
            for count in args.clients
        ]
        page = {"environment": environment(), "model": model, "streams": told}
        args.json.write_text(json.dumps(page, indent=2) + "\n", "utf-8")
    return 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The same streams twice."""

    cold: Figures
    """The first ones of so many: what they take is made ready meanwhile."""
    warm: Figures
    """Medians of those that came when it was."""
    told_each: float = 0.0
    """Seconds a token, offline, where its text is made after each step."""


class _Work:
    """Prompts that no cache knows, the same ones for everybody who is measured."""

    def __init__(self, args: argparse.Namespace, vocab_size: int) -> None:
        self._args = args
        self._vocab_size = vocab_size

    def measure(self, engine: Offline, server: ServerProcess, count: int) -> tuple[Measured, Measured]:
        """So many streams at a time, without a server and behind one: at first, and when all is ready that they
        take. For each token of an engine by itself what it takes where nothing is told in between."""
        source = random.Random(count)  # noqa: S311 - any tokens will do
        cold = []
        for _ in range(_WARM_UPS):
            prompts = self._prompts(source, count)
            cold.append((self._run(engine, prompts), self._run(server, prompts)))
            engine.settle()
            server.settle()
        alone, behind, untold = [], [], []
        for _ in range(self._args.repeats):
            prompts = self._prompts(source, count)
            alone.append(self._run(engine, prompts))
            behind.append(self._run(server, prompts))
            untold.append(engine.seconds(self._prompts(source, count), self._args.new_tokens))
        first, warm = cold[0], median_run(alone)
        per_token = (median(untold) - warm.first) / max(1, self._args.new_tokens - 1)
        told_each = warm.per_token
        return (
            Measured(first[0], replace(warm, per_token=min(told_each, per_token)), told_each),
            Measured(first[1], median_run(behind)),
        )

    def _run(self, engine: Offline | ServerProcess, prompts: list[list[int]]) -> Figures:
        if not isinstance(engine, ServerProcess):
            return figures(engine.run(prompts, self._args.new_tokens))
        before = engine.processor_seconds()
        streams = engine.run(prompts, self._args.new_tokens)
        return figures(streams, engine.processor_seconds() - before, engine.client_seconds)

    def _prompts(self, source: random.Random, count: int) -> list[list[int]]:
        tokens = range(self._vocab_size)
        return [source.choices(tokens, k=self._args.prompt_tokens) for _ in range(count)]


def _num_blocks(args: argparse.Namespace) -> int:
    """The pool of both engines: room for all streams, and for what some runs before have left."""
    of_stream: int = -(-(args.prompt_tokens + args.new_tokens) // _BLOCK_SIZE) + 1
    most: int = max(args.clients)
    return _RUNS_OF_ROOM * most * of_stream


def _rows(offline: Measured, served: Measured) -> list[Row]:
    alone, behind = offline.warm, served.warm
    more = 100 * (behind.per_token / alone.per_token - 1)
    later = 1000 * (behind.first - alone.first)
    slowest = f"slowest stream {_ms(behind.per_token_worst)}"
    return [
        Row("a token, offline", _ms(alone.per_token), f"told after each step {_ms(offline.told_each)}"),
        Row("a token, served", _ms(behind.per_token), f"{more:+.1f} %; {slowest}"),
        Row("", "", f"first runs: {_ms(offline.cold.per_token)} offline, {_ms(served.cold.per_token)} served"),
        Row("first token, offline", _ms(alone.first), f"99 %: {_ms(alone.first_worst)}"),
        Row("first token, served", _ms(behind.first), f"{later:+.1f} ms; 99 %: {_ms(behind.first_worst)}"),
        Row(
            "longest silence",
            _ms(behind.longest_gap),
            f"of a stream that had begun; offline {_ms(alone.longest_gap)}",
        ),
        Row("events a token", f"{behind.pieces:.2f}", "below 1 several tokens came together"),
        Row("server's processor time", f"{1e6 * behind.host:.1f} us", "a token, without the engine process"),
        Row("", f"{100 * behind.host_share:.0f} %", "of the time a processor"),
        Row("clients' processor time", f"{100 * behind.client_share:.0f} %", "of the busiest process of them"),
        Row("", "", GOALS),
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"
