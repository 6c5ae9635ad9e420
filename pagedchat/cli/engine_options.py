"""The options of the engine and of sampling, and their way into the config classes.

Knows names, types and help; starts nothing and imports nothing heavy. A destination is named after the config field
it sets and stays `None` when not given, so every default lives in one place: the config class.
"""

import argparse
from dataclasses import fields
from typing import Any, TypeVar

from pagedchat.config import (
    DEFAULT_MODEL,
    CacheConfig,
    EngineConfig,
    KVEventsConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import InvalidValueError
from pagedchat.units import parse_size

T = TypeVar("T", ModelConfig, CacheConfig, SchedulerConfig, KVEventsConfig)


def add_engine_options(parser: argparse.ArgumentParser, *, beside: bool = True) -> None:
    """Which model, how tokens are drawn, how large the cache is, what a step may hold.

    Args:
        parser: gets them.
        beside: whether there may be a second model.
    """
    _add_model(parser, beside)
    _add_sampling(parser)
    _add_cache(parser)
    _add_scheduling(parser)
    _add_kv_events(parser)


def engine_config(args: argparse.Namespace) -> EngineConfig:
    """What was given on the command line over the defaults.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    given: dict[str, Any] = {} if args.seed is None else {"seed": args.seed}
    if names_draft_model(args.speculate):
        given["speculation"] = SpeculationConfig(method="model", model=args.speculate)
    return EngineConfig(
        model=_from_args(ModelConfig, args),
        cache=_from_args(CacheConfig, args),
        scheduler=_from_args(SchedulerConfig, args),
        kv_events=_from_args(KVEventsConfig, args),
        **given,
    )


def names_draft_model(speculate: str | None) -> bool:
    """Whether `--speculate` has the name of a model, and is no word."""
    return speculate not in (None, "lookup", "off")


def sampling_overrides(args: argparse.Namespace) -> SamplingOverrides:
    """The sampling settings given; all others follow the model.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    names = SamplingOverrides.__struct_fields__
    values = {name: getattr(args, name) for name in names if name != "seed" and hasattr(args, name)}
    if names_draft_model(values.get("speculate")):
        del values["speculate"]  # it is the engine's, for all chats
    overrides = SamplingOverrides(**values)
    overrides.resolve(SamplingParams())  # checks the values now, not when the first prompt is sent
    return overrides


def _from_args(cls: type[T], args: argparse.Namespace) -> T:
    values: dict[str, Any] = {f.name: getattr(args, f.name, None) for f in fields(cls)}
    return cls(**{name: value for name, value in values.items() if value is not None})


def _add_model(parser: argparse.ArgumentParser, beside: bool) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="ID|DIR|FILE",
        help="hub id or folder of a checkpoint, a GGUF file, or one on the hub by its tag, as OWNER/NAME:Q4_K_M "
        f"({DEFAULT_MODEL}, in the box)",
    )
    if beside:
        group.add_argument(
            "--beside",
            metavar="ID|DIR|FILE",
            help="a second model in an engine of its own, whose chats stand beside those of --model",
        )
    group.add_argument(
        "--tokenizer",
        metavar="ID|DIR|FILE",
        help="hub id or folder of the tokenizer, or a GGUF file that has it (the model's own)",
    )
    group.add_argument("--device", metavar="NAME", help="auto, cpu or cuda (auto)")
    group.add_argument(
        "--dtype", metavar="NAME", help="auto, float32, float16 or bfloat16 (auto: on a CPU mostly float32)"
    )
    group.add_argument(
        "--quantize",
        dest="quantization",
        metavar="FORM",
        help="weights in int8, int4 or, on a GPU, fp8 while they are read; none keeps them as they are (auto)",
    )
    group.add_argument(
        "--max-model-len", type=int, metavar="N", help="tokens of a chat, prompts and replies (the model's)"
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
    group.add_argument(
        "--tensor-parallel-size",
        type=int,
        metavar="N",
        help="cut the model over N GPUs of this machine, one process for each (1)",
    )
    group.add_argument(
        "--batch-invariant",
        action="store_true",
        default=None,
        help="the same reply alone and in any company, bit for bit; slower",
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling (defaults come from the model's generation_config.json)")
    group.add_argument("--temperature", type=float, metavar="X", help="0 always takes the most likely token")
    group.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="colour replies by how sure the model was, and keep N alternatives of each token, 0 to 20",
    )
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


def _add_cache(parser: argparse.ArgumentParser) -> None:
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
        "--kv-cache-dtype",
        metavar="TYPE",
        help="fp8 or int8: keys and values in a byte an element, about twice the blocks (auto: the model's type)",
    )
    group.add_argument(
        "--no-prefix-caching",
        dest="enable_prefix_caching",
        action="store_false",
        default=None,
        help="compute every prompt anew, even where its beginning is in the cache",
    )


def _add_scheduling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scheduling")
    group.add_argument("--max-num-seqs", type=int, metavar="N", help="sequences in one step (256)")
    group.add_argument(
        "--max-num-batched-tokens", type=int, metavar="N", help="tokens in one step (on a GPU up to 8192, else 512)"
    )
    group.add_argument(
        "--preemption-mode", metavar="MODE", help="how blocks are taken back: recompute or swap (recompute)"
    )
    group.add_argument(
        "--speculate",
        metavar="HOW|MODEL",
        help="guess tokens and verify several at once: lookup (by what came before), a small model of the same "
        "vocabulary that drafts them (its id or folder), or off (off)",
    )


def _add_kv_events(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("block events for other programs, as vLLM publishes them (pagedchat[serve])")
    group.add_argument(
        "--kv-events-endpoint",
        metavar="URL",
        help="publish which blocks the cache gains and loses, all texts included, like tcp://127.0.0.1:5557",
    )
    group.add_argument(
        "--kv-events-replay-endpoint", metavar="URL", help="answer subscribers that missed some, like tcp://*:5558"
    )
    group.add_argument("--kv-events-topic", metavar="TEXT", help="by which subscribers choose (none)")
    group.add_argument(
        "--kv-events-buffer", type=int, metavar="N", help="batches kept for whoever missed them (10000)"
    )
    group.add_argument(
        "--kv-events-hwm", type=int, metavar="N", help="batches held for a subscriber that does not read (10000)"
    )
    group.add_argument(
        "--kv-events-encoding", metavar="FORM", help="map, or array for readers made for vLLM up to 0.23 (map)"
    )
    group.add_argument(
        "--kv-events-hashes", metavar="TYPE", help="int: 64 bits of a block's hash; bytes: all of it (int)"
    )


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
