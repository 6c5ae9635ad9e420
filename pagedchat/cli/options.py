"""The command line as a table of options, and its way into the config classes.

Knows names, types and help; starts nothing and imports nothing heavy. A destination is named after the config field
it sets and stays `None` when not given, so every default lives in one place: the config class.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pagedchat import __version__
from pagedchat.bench.engine.arguments import add_engine_bench
from pagedchat.bench.step.arguments import add_step_bench
from pagedchat.bench.ui.arguments import add_ui_bench
from pagedchat.cli.replay_options import add_replay_options
from pagedchat.cli.stats_options import add_stats_options
from pagedchat.config import DEFAULT_MODEL, CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import InvalidValueError
from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.units import parse_size

MAX_SESSIONS = 9
MAX_PORT = 65535
_DESCRIPTION = "Several chats side by side in the terminal, on one local engine whose paged KV cache you can watch."
_USAGE = """\
pagedchat [OPTIONS]
       pagedchat -p TEXT [OPTIONS]
       pagedchat replay FILE [OPTIONS]
       pagedchat stats [OPTIONS]
       pagedchat bench NAME [OPTIONS]
       pagedchat doctor [OPTIONS]"""
_EPILOG = """\
commands:
  replay FILE             the inspector over a recording, without a model or a GPU; --summary prints what is in it
  stats                   figures of the pagedchat that is running
  bench engine            tokens a second, first tokens and start-up, against transformers and vLLM
  bench step              where the time of a decode step goes, on the GPU and on the host
  bench kernels           the CUDA kernels against the memory's bandwidth and against their peers
  bench ui                how fast the screen draws and answers keys, and what it costs the engine
  doctor                  driver, GPU, compiler, kernel cache, and what every CUDA kernel takes of the GPU
  doctor --compile        compile every CUDA kernel for every architecture; needs no GPU
  doctor --model ID|DIR   which steps this GPU takes for a model, by which kernels, and why; needs no weights

examples:
  pagedchat                                      a chat with the toy model that comes along; works offline
  pagedchat --model Qwen/Qwen2.5-0.5B-Instruct   a real model of the Hugging Face hub
  pagedchat --model ./checkpoint --sessions 4    four chats with a checkpoint in a folder
  pagedchat --trace run.trace                    record every step, to be looked at again with replay
  pagedchat -p "Tell me a sea story."            one reply, no screen
  echo "And then?" | pagedchat --json            the prompt from standard input, the reply as JSON
"""

T = TypeVar("T", ModelConfig, CacheConfig, SchedulerConfig)


class Parser(argparse.ArgumentParser):
    """Says what is wrong as an `InvalidValueError` and leaves printing and exit codes to `cli.main`."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse with its own words, which begin in lower case."""
        message = message.removeprefix("argument ").rstrip(".")
        raise InvalidValueError(f"{message[:1].upper()}{message[1:]}.", f"See {self.prog} --help.")


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line; `command` in the result is "chat", "replay", "stats", "bench" or "doctor".

    Raises:
        InvalidValueError: an option that does not exist, or a value that cannot be read.
        SystemExit: after --help and --version.
    """
    if argv and argv[0] in _COMMANDS:
        return _COMMANDS[argv[0]]().parse_args(argv[1:])
    return _chat_parser().parse_args(argv)


def _chat_parser() -> Parser:
    parser = Parser(
        prog="pagedchat",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    _add_general(parser)
    _add_one_shot(parser)
    _add_chats(parser)
    _add_inspector(parser)
    _add_model(parser)
    _add_sampling(parser)
    _add_cache(parser)
    _add_scheduling(parser)
    parser.set_defaults(command="chat")
    return parser


def engine_config(args: argparse.Namespace) -> EngineConfig:
    """What was given on the command line over the defaults.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    given = {} if args.seed is None else {"seed": args.seed}
    return EngineConfig(
        model=_from_args(ModelConfig, args),
        cache=_from_args(CacheConfig, args),
        scheduler=_from_args(SchedulerConfig, args),
        **given,
    )


def sampling_overrides(args: argparse.Namespace) -> SamplingOverrides:
    """The sampling settings given; all others follow the model.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    names = SamplingOverrides.__struct_fields__
    values = {name: getattr(args, name) for name in names if name != "seed" and hasattr(args, name)}
    overrides = SamplingOverrides(**values)
    overrides.resolve(SamplingParams())  # checks the values now, not when the first prompt is sent
    return overrides


def _from_args(cls: type[T], args: argparse.Namespace) -> T:
    values: dict[str, Any] = {f.name: getattr(args, f.name, None) for f in fields(cls)}
    return cls(**{name: value for name, value in values.items() if value is not None})


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _sessions(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= MAX_SESSIONS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_SESSIONS}")


def _count(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= MAX_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to {MAX_PORT}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _new_file(text: str) -> Path:
    """A file to write at the end of a long run: that it can be written is found out before."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: make its folder first")
    return path


def _add_general(parser: Parser) -> None:
    group = parser.add_argument_group("general")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")
    group.add_argument("--version", action="version", version=f"pagedchat {__version__}")


def _add_one_shot(parser: Parser) -> None:
    group = parser.add_argument_group("one reply without a screen")
    group.add_argument(
        "-p", "--prompt", metavar="TEXT", help="print the reply to TEXT and exit; - reads standard input"
    )
    group.add_argument(
        "--json", action="store_true", help="print one JSON object: text, token ids, timings, cache counters"
    )


def _add_chats(parser: Parser) -> None:
    group = parser.add_argument_group("chats")
    group.add_argument(
        "--sessions", type=_sessions, default=1, metavar="N", help="how many panes to open, 1 to 9 (1)"
    )
    group.add_argument("--system", metavar="TEXT", help="system prompt of every chat")
    group.add_argument(
        "--raw", action="store_true", help="text completion: the prompt goes to the model without a chat template"
    )


def _add_inspector(parser: Parser) -> None:
    group = parser.add_argument_group("inspector")
    group.add_argument(
        "--trace", type=_new_file, metavar="FILE", help="record every step in a new file, to be shown by replay"
    )
    group.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    group.add_argument(
        "--metrics-port",
        type=_port,
        metavar="N",
        help="metrics for Prometheus on 127.0.0.1 at this port; 0 takes any that is free",
    )


def _add_model(parser: Parser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", metavar="ID|DIR", help=f"hub id or folder of a checkpoint ({DEFAULT_MODEL}, in the box)"
    )
    group.add_argument("--tokenizer", metavar="ID|DIR", help="hub id or folder of the tokenizer (the model's own)")
    group.add_argument("--device", metavar="NAME", help="auto, cpu or cuda (auto)")
    group.add_argument(
        "--dtype", metavar="NAME", help="auto, float32, float16 or bfloat16 (auto: float32 on a CPU)"
    )
    group.add_argument(
        "--attention-backend",
        metavar="NAME",
        help="auto, cuda (kernels of our own) or torch (auto: cuda wherever the kernels can serve the model)",
    )
    group.add_argument(
        "--model-implementation",
        dest="implementation",
        metavar="NAME",
        help="auto, native (modules of our own) or transformers (auto: native wherever it knows the model)",
    )


def _add_sampling(parser: Parser) -> None:
    group = parser.add_argument_group("sampling (defaults come from the model's generation_config.json)")
    group.add_argument("--temperature", type=float, metavar="X", help="0 always takes the most likely token")
    group.add_argument("--top-p", type=float, metavar="P", help="keep the most likely tokens that sum to P")
    group.add_argument("--top-k", type=int, metavar="K", help="keep the K most likely tokens")
    group.add_argument(
        "--min-p", type=float, metavar="P", help="keep tokens at least P times as likely as the most likely one"
    )
    group.add_argument(
        "--repetition-penalty", type=float, metavar="X", help="above 1, tokens already used become less likely"
    )
    group.add_argument(
        "--presence-penalty", type=float, metavar="X", help="taken from the logits of tokens that the reply has"
    )
    group.add_argument(
        "--frequency-penalty", type=float, metavar="X", help="the same, once for each time that it has them"
    )
    group.add_argument("--max-tokens", type=int, metavar="N", help="end a reply after N tokens")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end a reply before TEXT; may be repeated")
    group.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same replies (0)")


def _add_cache(parser: Parser) -> None:
    group = parser.add_argument_group("KV cache")
    group.add_argument("--block-size", type=int, metavar="N", help="token slots in a block (16)")
    group.add_argument("--num-blocks", type=int, metavar="N", help="fix the pool instead of measuring free memory")
    group.add_argument(
        "--kv-cache-memory",
        type=_size,
        metavar="SIZE",
        help="memory for the pool, like 2GiB (a part of what is free)",
    )
    group.add_argument(
        "--gpu-memory-utilization", type=float, metavar="X", help="share of the GPU's memory to use in all (0.9)"
    )
    group.add_argument("--swap-space", type=_size, metavar="SIZE", help="host memory for blocks swapped out (4GiB)")
    group.add_argument(
        "--no-prefix-caching",
        dest="enable_prefix_caching",
        action="store_false",
        default=None,
        help="compute every prompt anew, even where its beginning is in the cache",
    )


def _add_scheduling(parser: Parser) -> None:
    group = parser.add_argument_group("scheduling")
    group.add_argument("--max-num-seqs", type=int, metavar="N", help="sequences in one step (256)")
    group.add_argument(
        "--max-num-batched-tokens", type=int, metavar="N", help="tokens in one step (on a GPU up to 8192, else 512)"
    )
    group.add_argument(
        "--preemption-mode", metavar="MODE", help="how blocks are taken back: recompute or swap (recompute)"
    )


def _bench_parser() -> Parser:
    parser = Parser(prog="pagedchat bench", description="Measure pagedchat on this machine.", allow_abbrev=False)
    parser.set_defaults(command="bench")
    kinds = parser.add_subparsers(title="benchmarks", dest="benchmark", metavar="NAME", required=True)
    add_engine_bench(kinds, _new_file, _count)
    add_step_bench(kinds, _new_file, _count)
    _add_kernels_bench(kinds)
    add_ui_bench(kinds, _new_file)
    return parser


def _add_kernels_bench(kinds: "argparse._SubParsersAction[Parser]") -> None:
    kernels = kinds.add_parser(
        "kernels",
        help="the CUDA kernels against the memory's bandwidth and against their peers; needs a GPU",
        allow_abbrev=False,
    )
    kernels.add_argument(
        "--only",
        type=_names,
        metavar="NAMES",
        help="some of decode,prefill,merge,prefix,write,gather,copy,swap,compile (all)",
    )
    kernels.add_argument(
        "--peers",
        type=_names,
        metavar="NAMES",
        help="what to run beside ours: some of torch,flashinfer,vllm (those that are installed)",
    )
    kernels.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    kernels.add_argument("--json", type=_new_file, metavar="FILE", help="write the figures and the environment")


def _doctor_parser() -> Parser:
    parser = Parser(
        prog="pagedchat doctor",
        description="Show what of CUDA is on this machine, and what every kernel takes of its GPU; or how a model "
        "would run on it.",
        allow_abbrev=False,
    )
    parser.set_defaults(command="doctor")
    parser.add_argument(
        "--compile", action="store_true", help="compile every kernel for every architecture; needs no GPU"
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=ARCHITECTURES,
        metavar="NAME",
        help="with --compile, for this one only, and may be repeated; with --model, on a GPU of this one "
        f"({', '.join(ARCHITECTURES)})",
    )
    parser.add_argument(
        "--model",
        metavar="ID|DIR",
        help="which steps 1, 8, 64 and 256 chats and a prompt take with this model, by which kernels, what a "
        "library does of them, and why; reads its config.json alone",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _replay_parser() -> Parser:
    parser = Parser(
        prog="pagedchat replay",
        description="Show a recording: every step of the engine, its blocks, its batches and the chats' text.",
        allow_abbrev=False,
    )
    add_replay_options(parser)
    return parser


def _stats_parser() -> Parser:
    parser = Parser(
        prog="pagedchat stats",
        description="Print figures of the pagedchat that is running on this machine.",
        allow_abbrev=False,
    )
    add_stats_options(parser)
    return parser


_COMMANDS: dict[str, Callable[[], Parser]] = {
    "replay": _replay_parser,
    "stats": _stats_parser,
    "bench": _bench_parser,
    "doctor": _doctor_parser,
}
"""Words that are a command where they come first."""
