"""The host's part of a decode step that was captured and begun ahead: the engine with its runner for GPUs, whose
steps compute nothing here. What a graph's launch and the wait for it take is not in it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pagedchat.bench.step_host import InstantRunner
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.models.native import build, read_native
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.decode.steps import Step
from pagedchat.runtime.graphs.decode.store import Serving
from pagedchat.runtime.step.sampler import Choice
from pagedchat.runtime.step.sizes import StepSizes

_WARM_UP = 20
_BLOCK_SIZE = 16
_SHAPE: dict[str, Any] = {
    "model_type": "opt", "vocab_size": 64, "hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 64,
    "num_hidden_layers": 1, "num_attention_heads": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedHostResult:
    """Microseconds of one step in which every chat decodes a token, means over `num_steps`."""

    num_chats: int
    num_steps: int
    step_us: float

    @property
    def us_per_token(self) -> float:
        """Of each chat."""
        return self.step_us / self.num_chats


class _Nothing:
    """A captured step that computes nothing: its tokens are whatever stands in the history."""

    def __init__(self) -> None:
        self.logits = torch.empty(0)
        self.step: Step = partial(torch.empty, 0)

    def replay(self) -> None:
        """Nothing is queued."""


class _NothingStore:
    """Has such a step for every bucket; stands for a `StepStore`."""

    def __init__(self, decodes: DecodeSteps) -> None:
        self.one_turn = decodes.store.one_turn
        self._step = _Nothing()

    def get(self, bucket: Bucket, choice: Choice) -> Serving:
        """At once."""
        return Serving(bucket, choice, self._step)

    at_hand = get


def measure_captured_host(
    num_chats: int, num_steps: int = 1000, clock: Callable[[], float] = time.thread_time
) -> CapturedHostResult:
    """Decode so many chats together.

    Args:
        num_chats: that decode together.
        num_steps: that count.
        clock: seconds; of this thread's own work by default.
    """
    core = _engine(num_chats, length=num_steps + 2 * _WARM_UP)
    for number in range(num_chats):
        core.extend(
            core.open(), [number % 60 + 3] * 5, SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
        )
    for _ in range(_WARM_UP):
        core.step()
    began = clock()
    for _ in range(num_steps):
        core.step()
    seconds = clock() - began
    return CapturedHostResult(num_chats=num_chats, num_steps=num_steps, step_us=round(1e6 * seconds / num_steps, 2))


def _engine(num_chats: int, length: int, vocab_size: int = _SHAPE["vocab_size"]) -> EngineCore:
    num_blocks = num_chats * (length // _BLOCK_SIZE + 2)
    device = torch.device("cpu")
    shape = _SHAPE | {"max_position_embeddings": length, "vocab_size": vocab_size}
    model = build(read_native(shape).config).eval()
    backend = CudaAttention(CacheShape(1, _BLOCK_SIZE, 1, 1, 64, torch.float32), num_blocks, 0, device)
    decodes = DecodeSteps(model, backend, StepSizes(0, num_chats, length))
    decodes.store = _NothingStore(decodes)  # type: ignore[assignment]
    limits = EngineLimits(
        num_blocks=num_blocks, block_size=_BLOCK_SIZE, model_len=length, max_num_seqs=num_chats, reserve_ahead=True
    )
    return EngineCore(limits, CapturedRunner(InstantRunner(), decodes))
