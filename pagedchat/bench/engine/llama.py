"""One chat on a Llama-like model of a billion parameters, against the time to read its weights once."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.measures import Meter
from pagedchat.bench.engine.workloads import DecodeWork, Prompts
from pagedchat.bench.random_checkpoint import LLAMA_1B, write_checkpoint

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the system; the file's own folder is a private one in it
_WORK = DecodeWork(num_chats=1, prompt_tokens=32, new_tokens=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaFigure:
    """What came out."""

    weight_bytes: int
    """All that a token has to read; a tied head is read once, and of the embedding only a row."""
    copy_gb_s: float
    """Bandwidth of a copy in the same run, read and written."""
    runs_ms: list[float]
    """Of each run, a token after the first."""

    @property
    def token_ms(self) -> float:
        """The median."""
        return median(self.runs_ms)

    @property
    def read_ms(self) -> float:
        """The time to read the weights once at that bandwidth."""
        return self.weight_bytes / self.copy_gb_s / 1e6

    @property
    def ratio(self) -> float:
        """How many times that a token takes."""
        return self.token_ms / self.read_ms


def measure_llama(repeats: int, copy_gb_s: float) -> LlamaFigure:
    """Draw the weights on the GPU, in float16, and decode one chat.

    Args:
        repeats: runs that count.
        copy_gb_s: of this GPU, measured in this run.

    Raises:
        PagedChatError: what the engine refuses.
    """
    folder = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-", dir=folder) as name:
        weight_bytes = write_checkpoint(Path(name), LLAMA_1B, torch.float16, torch.device("cuda"))
        torch.cuda.empty_cache()
        llm = LLM(name, device="cuda", skip_tokenizer_init=True, kv_cache_memory="2GiB")
    meter = Meter(OurEngine(llm), Prompts(LLAMA_1B["vocab_size"]), repeats)
    [figure] = meter.decode(_WORK)
    return LlamaFigure(weight_bytes=weight_bytes, copy_gb_s=copy_gb_s, runs_ms=figure.runs)
