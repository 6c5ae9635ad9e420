"""`pagedchat doctor`: what of CUDA is on this machine, whether every kernel compiles, which steps a model takes."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from pagedchat.chat.sanitize import sanitize
from pagedchat.config import CacheConfig
from pagedchat.doctor.compile_plan import plan_compiling
from pagedchat.doctor.kernel_text import (
    build_values,
    failures_text,
    kernels_text,
    limits_text,
    matrix_text,
    warnings_text,
)
from pagedchat.doctor.machine import Machine, first_gpu, look_at_machine, look_at_torch
from pagedchat.doctor.machine_text import machine_text, torch_text
from pagedchat.doctor.progress import ProgressLine
from pagedchat.errors import InvalidValueError
from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.builder import Build, KernelBuilder
from pagedchat.jit.variant import Variant
from pagedchat.ops.catalogue import CATALOGUE


def run_doctor(args: argparse.Namespace, builder: KernelBuilder | None = None) -> int:
    """Do what `args` say; returns the exit code: 1 if a kernel does not compile.

    Raises:
        InvalidValueError: options that do not go together.
        ModelError: with `--model`, there is no such model, or none that the engine can run.
        KernelError: with `--compile`, what it takes to compile is missing.
    """
    if args.model is not None:
        return _show_model(args)
    if args.kv_cache_dtype is not None:
        raise InvalidValueError("--kv-cache-dtype needs --model.", "Write: pagedchat doctor --model ID|DIR")
    if args.batch_invariant:
        raise InvalidValueError("--batch-invariant needs --model.", "Write: pagedchat doctor --model ID|DIR")
    if args.arch and not args.compile:
        raise InvalidValueError(
            "--arch needs --compile or --model.", "Write: pagedchat doctor --compile --arch sm_90"
        )
    builder = builder or KernelBuilder(anywhere=args.compile)
    if args.compile:
        return _check_all(builder, list(dict.fromkeys(args.arch or ARCHITECTURES)), args.json)
    return _show_machine(builder, args.json)


def _show_machine(builder: KernelBuilder, as_json: bool) -> int:
    machine = look_at_machine(builder.cache)
    if not as_json:
        print(sanitize(machine_text(machine)), flush=True)  # torch takes its time
    torch = look_at_torch()
    if not as_json:
        print(sanitize(torch_text(torch)), flush=True)
    builds = _build_for_gpu(builder, machine)
    if as_json:
        values = {"machine": asdict(machine), "torch": asdict(torch), "kernels": [*map(build_values, builds)]}
        print(json.dumps(values, indent=2, default=str))
    elif builds:
        print(sanitize(f"\nOne variant of every kernel for {builds[0].architecture}:\n{kernels_text(builds)}"))
    elif machine.toolchain:
        print("\nWhether the kernels compile, this shows without a GPU: pagedchat doctor --compile")
    return _end(builds)


def _show_model(args: argparse.Namespace) -> int:
    architectures: list[str] = args.arch or []
    if args.compile:
        raise InvalidValueError("--model and --compile exclude each other.", "Run pagedchat doctor twice.")
    if len(architectures) > 1:
        raise InvalidValueError("--model takes one --arch.", "Run pagedchat doctor once for each of them.")
    from pagedchat.doctor.model_steps import KNOWN_GPUS, look_at_model  # noqa: PLC0415 - imports torch
    from pagedchat.doctor.model_text import model_text, model_values  # noqa: PLC0415

    gpu = KNOWN_GPUS[architectures[0]] if architectures else first_gpu()
    wanted = CacheConfig(kv_cache_dtype=args.kv_cache_dtype or "auto").kv_cache_dtype
    report = look_at_model(
        args.model,
        gpu,
        is_here=not architectures,
        batch_invariant=args.batch_invariant,
        quantization=args.quantize or "",
        cache_kind=None if wanted == "auto" else wanted,
    )
    print(json.dumps(model_values(report), indent=2) if args.json else sanitize(model_text(report)))
    return 0


def _check_all(builder: KernelBuilder, architectures: Sequence[str], as_json: bool) -> int:
    started = time.perf_counter()
    with ProgressLine(sys.stderr) as progress:
        builds = compile_covering_sets(builder, architectures, progress)
    seconds = time.perf_counter() - started
    failed = sum(build.error is not None for build in builds)
    if as_json:
        values = {
            "nvrtc": builder.toolchain.nvrtc_version,
            "architectures": architectures,
            "seconds": round(seconds, 2),
            "failed": failed,
            "variants": [*map(build_values, builds)],
        }
        print(json.dumps(values, indent=2))
    else:
        sections = [matrix_text(builds, architectures), limits_text(architectures), warnings_text(builds)]
        print(sanitize("\n\n".join(filter(None, sections))))
        cached = sum(build.cached for build in builds)
        print(f"\n{len(builds)} variants in {seconds:.1f} s, {cached} of them from the cache; {failed} failed")
    return _end(builds)


def compile_covering_sets(
    builder: KernelBuilder, architectures: Sequence[str], progress: ProgressLine | None = None
) -> list[Build]:
    """Compile a covering set of every kernel for the architectures, see `plan_compiling`.

    Raises:
        KernelError: there is no compiler.
    """
    return builder.build_all(plan_compiling(architectures, builder.folder), progress)


def _build_for_gpu(builder: KernelBuilder, machine: Machine) -> list[Build]:
    """One variant of every kernel file that the first GPU can run; none without a GPU or a compiler."""
    if not machine.gpus or machine.toolchain is None:
        return []
    architecture = machine.gpus[0].architecture
    return builder.build_all([(variant, architecture) for variant in _one_of_each(architecture)])


def _one_of_each(architecture: str) -> list[Variant]:
    return [variants[0] for file in CATALOGUE if (variants := file.covering(architecture))]


def _end(builds: Sequence[Build]) -> int:
    failures = failures_text(builds)
    if failures:
        print(sanitize(failures), file=sys.stderr)
    return 1 if failures else 0
