"""The runner of a model of our own on a CPU: batches that are nothing but a few decodes go through `CpuStep`, those
with prompts through `CpuPrompts`, and what neither knows through the model's modules.
"""

from collections.abc import Iterable
from contextlib import suppress

import torch

from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sequence import Sequence
from pagedchat.models.decoder import Decoder
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.runtime.attention.backend import AttentionBackend, AttentionBatch
from pagedchat.runtime.attention.timed_backend import TimedBackend
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.cpu.objections import objection_to
from pagedchat.runtime.cpu.prompts import CpuPrompts
from pagedchat.runtime.cpu.step import Caches, CpuStep
from pagedchat.runtime.step.batch_inputs import BatchInputs
from pagedchat.runtime.step.model_runner import NativeModelRunner


class CpuModelRunner(NativeModelRunner):
    """See `NativeModelRunner`."""

    def __init__(self, model: torch.nn.Module, backend: AttentionBackend, device: torch.device) -> None:
        super().__init__(model, backend, device)
        self._step: CpuStep | None = None
        self._prompts: CpuPrompts | None = None
        self._tried = False
        self.whole_steps = True
        """Whether batches go through whole steps, where the model has them."""
        self.only_likeliest = False
        """Whether nothing but the most likely token of each row is asked for, in this step."""
        self._candidates: torch.Tensor | None = None
        """Token of each column of the logits of this step; None: all tokens have one."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `engine.output.ModelRunner`."""
        self.only_likeliest = self.samples and wants_likeliest(part.sequence for part in batch.scheduled)
        try:
            return super().execute(batch)
        finally:
            self.only_likeliest = False

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """See `NativeModelRunner`."""
        self._candidates = None
        logits = self._whole_step(inputs) if self.whole_steps else None
        return super().forward(inputs) if logits is None else logits.to(self.backend.shape.dtype)

    def _whole_step(self, inputs: BatchInputs) -> torch.Tensor | None:
        """Logits of the rows that are sampled; None where there is no such step."""
        token_ids, positions, batch = inputs.token_ids[0], inputs.positions[0], inputs.attention
        if self.step is None or batch.num_decodes > self.step.most_rows:
            return None
        if batch.num_decodes < len(batch.seq_lens):
            prompts = self._prompts
            if prompts is None or not prompts.takes(len(token_ids)):
                return None
            return prompts.run_prompts(token_ids, positions, batch, inputs.last_rows)
        logits = self._of_decodes(self.step, token_ids, positions, batch)
        return logits[inputs.last_rows] if len(inputs.last_rows) < len(logits) else logits

    def _of_decodes(
        self, step: CpuStep, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch
    ) -> torch.Tensor:
        """Logits of all rows, of `_candidates` where there are any."""
        if not self.only_likeliest:
            return step.run(token_ids, positions, batch)
        found = step.run_for_likeliest(token_ids, positions, batch)
        if isinstance(found, torch.Tensor):
            return found
        self._candidates = found.token_ids
        return found.logits

    def _sample(self, logits: torch.Tensor, batch: SchedulerOutput, inputs: BatchInputs) -> list[int]:
        if self._candidates is None:
            return super()._sample(logits, batch, inputs)
        token_ids: list[int] = self._candidates[logits.max(dim=-1).indices].tolist()
        return token_ids

    @property
    def step(self) -> CpuStep | None:
        """Whole steps of this model over this cache; None where there are none."""
        if not self._tried:
            self._tried = True
            self._make_steps()
        return self._step

    @property
    def prompts(self) -> CpuPrompts | None:
        """The same with prompts in them; None where there are none."""
        return None if self.step is None else self._prompts

    def _make_steps(self) -> None:
        kernels, cache = cpu_kernels(), self.backend
        cache = cache.inner if isinstance(cache, TimedBackend) else cache
        model = self.model
        if kernels is None or not isinstance(model, Decoder) or not isinstance(cache, TorchAttention):
            return
        if cache.num_blocks == 0 or objection_to(model.config, cache.shape.dtype):
            return
        caches = [Caches(*layer) for layer in cache.layers]
        logits = torch.empty(kernels.most_rows, model.config.vocab_size)
        with suppress(LookupError):  # a layer that no kernel multiplies by, or not many rows
            self._step = CpuStep(kernels, model, caches, cache.shape.block_size, logits)
            if cache.shape.kind is None:
                self._prompts = CpuPrompts(kernels, model, caches, cache.shape.block_size, logits)


def wants_likeliest(sequences: Iterable[Sequence]) -> bool:
    """Whether the most likely token is all that any of them asks for: nothing is drawn, ruled out or told of."""
    params = {id(seq.sampling_params): seq.sampling_params for seq in sequences}.values()
    return all(
        each.greedy
        and not each.penalises
        and not each.has_rules
        and each.logprobs is None
        and each.prompt_logprobs is None
        for each in params
    )
