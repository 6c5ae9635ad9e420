"""The runner of a model of our own on a CPU: batches that are nothing but a few decodes go through `CpuStep`, those
with prompts through `CpuPrompts`, and what neither knows through the model's modules.
"""

from contextlib import suppress

import torch

from pagedchat.models.decoder import Decoder
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.runtime.attention.backend import AttentionBackend
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

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """See `NativeModelRunner`."""
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
        logits = self.step.run(token_ids, positions, batch)
        return logits[inputs.last_rows] if len(inputs.last_rows) < len(logits) else logits

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
        with suppress(LookupError):  # a layer that no kernel multiplies by, or not many rows
            self._step = CpuStep(kernels, model, caches, cache.shape.block_size)
            if cache.shape.kind is None:
                self._prompts = CpuPrompts(kernels, model, caches, cache.shape.block_size)
