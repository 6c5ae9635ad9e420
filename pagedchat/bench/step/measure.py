"""Runs decode steps of so many chats: once timed from the host, once traced on the GPU."""

from dataclasses import dataclass

import msgspec

from pagedchat.api.engine import LLMEngine
from pagedchat.bench.engine.workloads import Prompts, Tokens
from pagedchat.bench.step.host import HostTimes, TimedCore, read_host
from pagedchat.bench.step.products import product_bytes
from pagedchat.bench.step.profile import trace_kernels
from pagedchat.bench.step.trace import StepTrace, read_steps
from pagedchat.config import EngineConfig
from pagedchat.distributed.loading import load_model
from pagedchat.distributed.runner import DistributedRunner
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import PagedChatError
from pagedchat.garbage import rare_collections
from pagedchat.models.decoder import Decoder
from pagedchat.requests.prompts import TokensPrompt
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.step.model_runner import NativeModelRunner

TRACED_STEPS = 20
_SETTLING_STEPS = 8
"""After the last prompt, before steps are traced."""
_GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigure:
    """A decode step of so many chats."""

    num_chats: int
    host: HostTimes
    gpu: StepTrace | None
    """None where steps are not captured, so that the trace does not tell them apart."""


class StepBench:
    """An engine whose steps are looked at.

    Args:
        config: what it loads.
        sampling: how tokens are chosen; how many they are is the measurement's business.

    Raises:
        PagedChatError: what the engine refuses.
    """

    def __init__(self, config: EngineConfig, sampling: SamplingParams = _GREEDY) -> None:
        self._sampling = sampling
        loaded = load_model(config)
        self._core = TimedCore(loaded.limits, loaded.runner)
        self._engine = LLMEngine.from_loaded(loaded, self._core)
        self._prompts = Prompts(loaded.info.vocab_size)
        model = _model_of(loaded.runner)
        self._weights = product_bytes(model)
        self._num_layers = len(model.layers) if isinstance(model, Decoder) else 0

    def measure(self, num_chats: int, context: int, num_steps: int) -> StepFigure:
        """Decode `num_chats` chats over about `context` tokens each.

        Args:
            num_chats: that decode together.
            context: tokens of a chat half way through.
            num_steps: that are timed.

        Raises:
            PagedChatError: not one step was of decodes alone.
        """
        length = max(1, context - num_steps // 2)
        for _ in range(2):  # first to find what has to be captured
            prompts = self._prompts.many(num_chats, length)
            self._core.steps.clear()
            self._answer(prompts, num_steps + 1)
            self._engine.prepare()
        host = read_host(self._core.steps, num_chats)
        if host is None:
            raise PagedChatError(
                f"No step decoded {num_chats} chats and nothing else.", "Give fewer chats, or time more steps."
            )
        return StepFigure(num_chats=num_chats, host=host, gpu=self._trace(num_chats, context - TRACED_STEPS // 2))

    def _answer(self, prompts: Tokens, new_tokens: int) -> None:
        """As `LLM.generate` does it."""
        with rare_collections():
            for number, prompt in enumerate(prompts):
                self._engine.add_request(
                    str(number), TokensPrompt(prompt_token_ids=prompt), self._params(new_tokens)
                )
            while self._engine.has_unfinished_requests():
                self._engine.step()

    def _trace(self, num_chats: int, length: int) -> StepTrace | None:
        core = self._core
        ids = [core.open() for _ in range(num_chats)]
        for seq_id, prompt in zip(ids, self._prompts.many(num_chats, max(1, length)), strict=True):
            core.extend(seq_id, prompt, self._params(None))
        while any(core.sequences[seq_id].num_uncomputed > 1 for seq_id in ids):
            core.step()
        for _ in range(2):  # what these lack is made after the first of them
            self._run(_SETTLING_STEPS)
            self._engine.prepare()
        kernels = trace_kernels(lambda: self._run(TRACED_STEPS + 1))
        for seq_id in ids:
            core.close(seq_id)
        return read_steps(kernels, TRACED_STEPS + 1, self._weights, self._num_layers)

    def _params(self, new_tokens: int | None) -> SamplingParams:
        return msgspec.structs.replace(
            self._sampling, max_tokens=new_tokens, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY
        )

    def _run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self._core.step()


def _model_of(runner: object) -> object:
    """What a runner runs, captured or not; of several ranks, what the first one does."""
    if isinstance(runner, DistributedRunner):
        runner = runner.own
    eager = runner.eager if isinstance(runner, CapturedRunner) else runner
    return eager.model if isinstance(eager, NativeModelRunner) else None
