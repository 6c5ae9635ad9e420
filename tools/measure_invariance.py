"""What `batch_invariant` costs on a GPU: `python -m tools.measure_invariance [SHAPE ...]`.

A token of 1, 8 and 64 chats and a first token of 1,500, with the option and without, on shapes of `bench engine`
and of a mixture of experts. Medians; `bench kernels` has its products. Says nothing of what the replies are.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.measures import Meter
from pagedchat.bench.engine.shapes import LONG_PROMPT, MIXTURE, MIXTURES, SHAPES, STEPS
from pagedchat.bench.engine.workloads import Prompts
from pagedchat.bench.random_checkpoint import write_checkpoint

_SHAPES = SHAPES | MIXTURES
_USUAL = ("qwen2.5-0.5b", "llama-3.2-1b", MIXTURE)
_ROWS = ("step_1_ms", "step_8_ms", "step_64_ms")
_REPEATS = 3
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the system; the file's own folder is a private one in it


def main(names: list[str]) -> int:
    """Print all figures; returns the exit code."""
    for name in names or _USUAL:
        with _checkpoint(name) as folder:
            for invariant in (False, True):
                _engine(name, folder, batch_invariant=invariant)
    return 0


def _engine(name: str, folder: str, *, batch_invariant: bool) -> None:
    what = "same in any company" if batch_invariant else "as fast as can be"
    llm = LLM(
        folder, device="cuda", dtype="bfloat16", skip_tokenizer_init=True, gpu_memory_utilization=0.6,
        batch_invariant=batch_invariant,
    )  # fmt: skip
    with llm:
        meter = Meter(OurEngine(llm), Prompts(_SHAPES[name]["vocab_size"]), _REPEATS)
        for row in _ROWS:
            print(f"{name}, {what}: {meter.step(row, STEPS[row])}", flush=True)
        for figure in meter.again(("first_1500_ms", "first_1500_again_ms"), LONG_PROMPT):
            print(f"{name}, {what}: {figure}", flush=True)


@contextmanager
def _checkpoint(name: str) -> Iterator[str]:
    """A folder with random weights."""
    base = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-", dir=base) as folder:
        write_checkpoint(Path(folder), _SHAPES[name], torch.bfloat16, torch.device("cuda"))
        torch.cuda.empty_cache()
        yield folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
