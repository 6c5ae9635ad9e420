"""`pagedchat bench serve`: streams of many clients over the loopback, beside the same prompts on an engine without
a server, one after the other in one run."""

import argparse
import json
import random
from dataclasses import asdict, replace

from pagedchat.bench.serve.clients import ServerProcess
from pagedchat.bench.serve.offline import Offline
from pagedchat.bench.serve.streams import Figures, figures, median_run
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.config import DEFAULT_MODEL, EngineConfig, ModelConfig

GOALS = "goals: at most 10 % more a token, first tokens within 5 ms"
_WARM_UP_TOKENS = 8


def run_serve_bench(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code.

    Raises:
        PagedChatError: the model cannot be loaded, or the server ends.
    """
    model = args.model or DEFAULT_MODEL
    config = EngineConfig(model=replace(ModelConfig(), model=model, device=args.device, dtype=args.dtype))
    say(f"{model} without a server")
    engine = Offline(config)
    try:
        work = _Work(args, engine.vocab_size)
        offline = {count: work.measure(engine, count) for count in args.clients}
    finally:
        engine.close()
    say(f"{model} behind a server")
    options = ["--model", model, "--device", args.device, "--dtype", args.dtype]
    with ServerProcess(options) as server:
        served = {count: work.measure(server, count) for count in args.clients}
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


class _Work:
    """Prompts that no cache knows, the same ones for everybody who is measured."""

    def __init__(self, args: argparse.Namespace, vocab_size: int) -> None:
        self._args = args
        self._vocab_size = vocab_size

    def measure(self, engine: Offline | ServerProcess, count: int) -> Figures:
        """So many streams at a time; the first run is not counted."""
        source = random.Random(count)  # noqa: S311 - any tokens will do
        runs = []
        engine.run(self._prompts(source, count), _WARM_UP_TOKENS)
        for _ in range(self._args.repeats):
            prompts = self._prompts(source, count)
            before = engine.processor_seconds() if isinstance(engine, ServerProcess) else 0.0
            streams = engine.run(prompts, self._args.new_tokens)
            after = engine.processor_seconds() if isinstance(engine, ServerProcess) else 0.0
            runs.append(figures(streams, after - before))
        return median_run(runs)

    def _prompts(self, source: random.Random, count: int) -> list[list[int]]:
        tokens = range(self._vocab_size)
        return [source.choices(tokens, k=self._args.prompt_tokens) for _ in range(count)]


def _rows(offline: Figures, served: Figures) -> list[Row]:
    more = 100 * (served.per_token / offline.per_token - 1)
    later = 1000 * (served.first - offline.first)
    return [
        Row("a token, offline", _ms(offline.per_token)),
        Row(
            "a token, served", _ms(served.per_token), f"{more:+.1f} %; slowest stream {_ms(served.per_token_worst)}"
        ),
        Row("first token, offline", _ms(offline.first), f"99 %: {_ms(offline.first_worst)}"),
        Row("first token, served", _ms(served.first), f"{later:+.1f} ms; 99 %: {_ms(served.first_worst)}"),
        Row(
            "longest silence",
            _ms(served.longest_gap),
            f"of a stream that had begun; offline {_ms(offline.longest_gap)}",
        ),
        Row("events a token", f"{served.pieces:.2f}", "below 1 several tokens came together"),
        Row("server's processor time", f"{1e6 * served.host:.1f} us", "a token, without the engine process"),
        Row("", "", GOALS),
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"
