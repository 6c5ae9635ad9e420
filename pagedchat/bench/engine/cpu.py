"""`pagedchat bench engine` on a CPU: runs the measurements, prints a table, writes the figures as JSON."""

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.first_frame import FirstFrameResult, measure_first_frame
from pagedchat.bench.reference import TransformersModel, write_random_checkpoint
from pagedchat.bench.step_host import StepHostResult, measure_step_host
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.bench.text_host import COUNTS, TextHostResult, measure_text_host
from pagedchat.bench.throughput import ThroughputResult, Workload, measure_throughput

_QUIET_SPREAD = 1.25
"""Above this the figures say more about what else the machine did."""


def run_cpu_bench(args: argparse.Namespace) -> int:
    """Run the benchmark named in `args`; returns the exit code.

    Raises:
        PagedChatError: what the engine refuses (no such model, no GPU).
    """
    if args.model is not None:
        return _run(args, args.model)
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as folder:
        say("writing a checkpoint of opt-125m's shape")
        return _run(args, str(write_random_checkpoint(Path(folder))))


def _run(args: argparse.Namespace, model: str) -> int:
    first_frame = _measure_first_frame(model)
    say("host side of a step")
    step_host = measure_step_host()
    text_host = [measure_text_host(num_chats) for num_chats in COUNTS]
    throughput, setup = _measure_throughput(args, model)
    shape = "opt-125m shape, random weights" if args.model is None else args.model
    show(
        render_table(
            _title(shape, setup, throughput),
            [*_throughput_rows(throughput), *_host_rows(step_host, first_frame), *text_rows(text_host)],
        )
    )
    if throughput.spread > _QUIET_SPREAD:
        say(f"the machine was busy: runs of one kind differed {throughput.spread:.1f} times; measure again")
    if args.json is not None:
        figures = {
            "environment": environment() | setup,
            "throughput": asdict(throughput)
            | {"ratios": _ratios(throughput), "spread": round(throughput.spread, 3)},
            "step_host": asdict(step_host),
            "text_host": [asdict(text) | {"text_us_per_token": text.text_us_per_token} for text in text_host],
            "first_frame": None if first_frame is None else asdict(first_frame),
        }
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def _title(shape: str, setup: dict[str, Any], throughput: ThroughputResult) -> str:
    work = throughput.workload
    return (
        f"{shape}, {setup['dtype']} on {setup['device']}, {setup['threads']} threads, "
        f"prompt {work.prompt_tokens}, {work.new_tokens} new tokens, median of {throughput.repeats}"
    )


def _measure_first_frame(model: str) -> FirstFrameResult | None:
    if os.name != "posix":
        return None
    say("time to the first frame")
    return measure_first_frame(model)


def _measure_throughput(args: argparse.Namespace, model: str) -> tuple[ThroughputResult, dict[str, Any]]:
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    workload = Workload()
    llm = LLM(
        model, device=args.device, dtype=args.dtype, num_blocks=_num_blocks(workload), skip_tokenizer_init=True
    )
    reference = TransformersModel(model, args.device, getattr(torch, llm.info.dtype))
    result = measure_throughput(llm, reference, workload, args.repeats, say)
    setup = {"dtype": llm.info.dtype, "device": args.device, "threads": torch.get_num_threads()}
    return result, setup


def _num_blocks(workload: Workload) -> int:
    """A quarter more than the sessions need, so that the warm-up has used nearly every block once.

    The system hands out the memory of a block at its first use. An engine that has run for a while has that behind
    it, and so has `transformers`, whose buffers are the same in every run.
    """
    per_session = -(-(workload.prompt_tokens + workload.new_tokens) // 16)
    return workload.num_sessions * per_session * 5 // 4


def _ratios(result: ThroughputResult) -> dict[str, float]:
    many = result.workload.num_sessions
    return {
        "1_session": result.ratio("pagedchat_1", "transformers_1"),
        f"{many}_sessions_vs_in_turn": result.ratio(f"pagedchat_{many}", f"transformers_{many}_in_turn"),
        f"{many}_sessions_vs_batched": result.ratio(f"pagedchat_{many}", f"transformers_{many}_batched"),
    }


def _throughput_rows(result: ThroughputResult) -> list[Row]:
    many = result.workload.num_sessions
    one, in_turn, batched = _ratios(result).values()
    speed = {name: f"{value:.1f} tok/s" for name, value in result.tokens_per_second.items()}
    return [
        Row("transformers, 1 prompt", speed["transformers_1"]),
        Row("pagedchat, 1 session", speed["pagedchat_1"], f"{one:.2f} x transformers"),
        Row(f"transformers, {many} prompts in turn", speed[f"transformers_{many}_in_turn"]),
        Row(f"transformers, {many} prompts in a batch", speed[f"transformers_{many}_batched"]),
        Row(
            f"pagedchat, {many} sessions",
            speed[f"pagedchat_{many}"],
            f"{in_turn:.2f} x in turn, {batched:.2f} x in a batch",
        ),
        Row("same tokens from all of them", "yes" if result.same_tokens else "no"),
    ]


def _host_rows(step: StepHostResult, frame: FirstFrameResult | None) -> list[Row]:
    rows = [
        Row(
            f"host side of a step, {step.num_sequences} sequences",
            f"{step.median_ms:.3f} ms",
            f"p99 {step.p99_ms:.3f} ms, {step.num_steps} steps",
        )
    ]
    if frame is not None:
        rows.append(Row("first frame", f"{frame.median_s:.3f} s", f"slowest {max(frame.runs):.3f} s"))
    return rows


def text_rows(texts: list[TextHostResult]) -> list[Row]:
    """What text costs the engine process, by the number of chats."""
    return [
        Row(
            f"engine process beside its engine, chats: {text.num_chats}",
            f"{text.text_us_per_token:.2f} us a token",
            f"a step {text.loop_us:.0f} us, {text.bytes_per_step:.0f} bytes to the screen",
        )
        for text in texts
    ]
