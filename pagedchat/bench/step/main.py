"""`pagedchat bench step`: where the time of a decode step goes, as tables and as JSON."""

import argparse
import json
from dataclasses import asdict

import torch

from pagedchat.bench.kernels.bandwidth import measure_limits
from pagedchat.bench.made_up import given_or_made_up, model_words
from pagedchat.bench.step.measure import StepBench, StepFigure
from pagedchat.bench.step.report import gpu_table, host_table, products_table
from pagedchat.bench.table import environment, say, show
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import DeviceError

_MEMORY_SHARE = 0.5


def run_step_bench(args: argparse.Namespace) -> int:
    """Measure, print and write; returns the exit code.

    Raises:
        DeviceError: no GPU.
        PagedChatError: what the engine refuses.
    """
    sampling = SamplingParams(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p)
    if not torch.cuda.is_available():
        raise DeviceError(
            "A step cannot be profiled: torch finds no CUDA GPU here.", "Run this on a machine with one."
        )
    say("bandwidth of the memory")
    copy_gb_s = measure_limits(link=False).copy
    torch.cuda.empty_cache()
    with given_or_made_up(args.model, say, args.shape, "cuda") as folder:
        figures = _measure(args, folder, sampling)
    products = products_table(figures, copy_gb_s)
    tables = (gpu_table(figures), *((products,) if products else ()), host_table(figures))
    texts = [table.as_markdown() if args.markdown else table.as_text() for table in tables]
    show("\n\n".join([_title(args), *texts]))
    if args.json is not None:
        values = {
            "environment": environment() | {"gpu": torch.cuda.get_device_name(), "copy_gb_s": copy_gb_s},
            "figures": [asdict(figure) for figure in figures],
        }
        args.json.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(args: argparse.Namespace, folder: str, sampling: SamplingParams) -> list[StepFigure]:
    bench = StepBench(
        EngineConfig(
            model=ModelConfig(
                model=folder,
                device="cuda",
                dtype=args.dtype,
                quantization=args.quantize,
                tensor_parallel_size=args.tensor_parallel_size,
                skip_tokenizer_init=True,
            ),
            cache=CacheConfig(gpu_memory_utilization=_MEMORY_SHARE, kv_cache_dtype=args.kv_cache_dtype),
            scheduler=SchedulerConfig(max_num_seqs=max(256, *args.batch)),
        ),
        sampling,
    )
    figures = []
    for num_chats in args.batch:
        say(f"a step of {num_chats}")
        figures.append(bench.measure(num_chats, args.context, args.steps))
    return figures


def _title(args: argparse.Namespace) -> str:
    model = model_words(args.model, args.shape)
    few = "" if args.quantize == "none" else f", weights in {args.quantize}"
    cache = "" if args.kv_cache_dtype == "auto" else f", cache of {args.kv_cache_dtype}"
    ranks = "" if args.tensor_parallel_size == 1 else f", rank 0 of {args.tensor_parallel_size}"
    where = f"{torch.cuda.get_device_name()}{ranks}"
    return f"{where}; {model}, {args.dtype}{few}{cache}, about {args.context} tokens a chat{_drawn(args)}"


def _drawn(args: argparse.Namespace) -> str:
    if args.temperature == 0:
        return ""
    of = f" of the {args.top_k} most likely ones" if args.top_k > 0 else ""
    return f", tokens drawn{of} at a temperature of {args.temperature:g}, top-p {args.top_p:g}"
