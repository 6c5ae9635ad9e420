"""How long the first start of a model waits for its kernels, and every later one."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from pagedchat.bench.kernels.shapes import BLOCK_SIZE
from pagedchat.errors import PagedChatError

_MODELS = {"12 heads of 64": (64, 1), "32 heads of 128 over 8 KV heads": (128, 4)}
"""Head size and query heads for one KV head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult:
    """Seconds for all kernels of one model, in a new process each time."""

    model: str
    num_kernels: int
    cold_s: float
    """With an empty cache folder."""
    cached_s: float
    """With the folder that the cold run left."""

    def __str__(self) -> str:
        return (
            f"{self.num_kernels} kernels for {self.model}: compiled in {self.cold_s:.2f} s, "
            f"from the disk cache in {self.cached_s:.3f} s"
        )


def measure_compile(architecture: str) -> list[CompileResult]:
    """For the shapes of the decode section, in float16.

    Raises:
        PagedChatError: a kernel does not compile.
    """
    return [_measure(model, architecture, *sizes) for model, sizes in _MODELS.items()]


def _measure(model: str, architecture: str, head_size: int, group_size: int) -> CompileResult:
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as folder:
        arguments = [architecture, *map(str, (head_size, group_size, BLOCK_SIZE))]
        (num_kernels, cold_s), (_, cached_s) = (_build(arguments, folder) for _ in range(2))
    return CompileResult(model=model, num_kernels=num_kernels, cold_s=cold_s, cached_s=cached_s)


def _build(arguments: Sequence[str], cache_folder: str) -> tuple[int, float]:
    """How many kernels there are, and the seconds until all of them were."""
    done = subprocess.run(  # noqa: S603 - this interpreter and a module of ours
        [sys.executable, "-m", "pagedchat.bench.kernels.build_once", *arguments],
        env=os.environ | {"PAGEDCHAT_CACHE_DIR": cache_folder},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PagedChatError("The kernels do not compile.", done.stderr.strip()[-500:])
    found = json.loads(done.stdout)
    return found["kernels"], found["seconds"]
