"""Builds of kernels as tables for people and as plain values for JSON."""

from collections.abc import Sequence
from dataclasses import asdict

from pagedchat.jit.builder import Build
from pagedchat.jit.kernel_file import Limit
from pagedchat.jit.resource_usage import ResourceUsage
from pagedchat.ops.catalogue import CATALOGUE
from pagedchat.units import format_size

_IMPOSSIBLE = "-"


def kernels_text(builds: Sequence[Build]) -> str:
    """One line for each entry point: registers, shared memory, spills, compile time."""
    rows = [("kernel", "registers", "shared", "spilled", "compiled in", "constants")]
    for build in builds:
        constants = " ".join(f"{name}={value}" for name, value in build.variant.defines)
        if build.cubin is None:
            rows.append((build.variant.stem, "-", "-", "-", "FAILED", constants))
            continue
        time = "from cache" if build.cached else f"{build.cubin.seconds:.2f} s"
        rows += [(*_usage(usage), time, constants) for usage in build.cubin.usage]
    return _table(rows, left=(0, 5))


def matrix_text(builds: Sequence[Build], architectures: Sequence[str]) -> str:
    """One line for each kernel file, one column for each architecture."""
    rows = [("kernel", *architectures, "compiled in")]
    for file in CATALOGUE:
        own = [build for build in builds if build.variant.stem == file.stem]
        cells = (_cell([build for build in own if build.architecture == name]) for name in architectures)
        seconds = sum(build.cubin.seconds for build in own if build.cubin and not build.cached)
        rows.append((file.stem, *cells, f"{seconds:.1f} s"))
    legend = "most registers of a variant; +N: bytes spilled by the worst variant; -: left out for a reason below"
    return f"{_table(rows, left=(0,))}\n({legend})"


def limits_text(architectures: Sequence[str]) -> str:
    """What the kernels leave out, and why."""
    lines = [
        f"  {' '.join([file.stem, *_settings(limit)])} on {', '.join(concerned)}: {limit.why}"
        for file in CATALOGUE
        for limit in file.limits
        if (concerned := [name for name in architectures if limit.holds_on(name)])
    ]
    return "\n".join(["left out", *lines]) if lines else ""


def warnings_text(builds: Sequence[Build]) -> str:
    """What the compiler warned of, each warning once."""
    warnings = dict.fromkeys(build.cubin.warnings for build in builds if build.cubin and build.cubin.warnings)
    return "\n".join(["warnings", *warnings]) if warnings else ""


def failures_text(builds: Sequence[Build]) -> str:
    """The compiler's log of each variant that failed."""
    return "\n\n".join(f"{build.error.message}\n{build.error.log}" for build in builds if build.error)


def build_values(build: Build) -> dict[str, object]:
    """For JSON."""
    return {
        "kernel": build.variant.stem,
        "architecture": build.architecture,
        "constants": build.variant.constants,
        "ok": build.cubin is not None,
        "cached": build.cached,
        "seconds": round(build.cubin.seconds, 4) if build.cubin else None,
        "entries": [asdict(usage) for usage in build.cubin.usage] if build.cubin else [],
        "warnings": build.cubin.warnings if build.cubin else "",
        "error": build.error.message if build.error else None,
        "log": build.error.log if build.error else None,
    }


def _usage(usage: ResourceUsage) -> tuple[str, str, str, str]:
    return usage.entry, str(usage.registers), format_size(usage.shared_bytes), format_size(usage.spill_bytes)


def _cell(builds: Sequence[Build]) -> str:
    if not builds:
        return _IMPOSSIBLE
    if any(build.error for build in builds):
        return "FAILED"
    usages = [usage for build in builds if build.cubin for usage in build.cubin.usage]
    spilled = max(usage.spill_bytes for usage in usages)
    return f"{max(usage.registers for usage in usages)}{f'+{spilled}' if spilled else ''}"


def _settings(limit: Limit) -> list[str]:
    return [f"{name}={'|'.join(map(str, values))}" for name, values in limit.where.items()]


def _table(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> str:
    """Aligned columns: those of `left` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
