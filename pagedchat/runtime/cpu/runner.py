"""The runner of a model of our own on a CPU: batches that are nothing but a few decodes go through `CpuStep`, all
others through the model's modules.
"""

import torch

from pagedchat.models.decoder import Decoder
from pagedchat.ops.cpu.kernels import CpuKernels, cpu_kernels
from pagedchat.ops.cpu.linear import MOST_ROWS
from pagedchat.runtime.attention.backend import AttentionBackend
from pagedchat.runtime.attention.timed_backend import TimedBackend
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.cpu.objections import objection_to
from pagedchat.runtime.cpu.step import Caches, CpuStep
from pagedchat.runtime.step.batch_inputs import BatchInputs
from pagedchat.runtime.step.model_runner import NativeModelRunner


class CpuModelRunner(NativeModelRunner):
    """See `NativeModelRunner`."""

    def __init__(self, model: torch.nn.Module, backend: AttentionBackend, device: torch.device) -> None:
        super().__init__(model, backend, device)
        self._step: CpuStep | None = None
        self._tried = False
        self.whole_steps = True
        """Whether decodes go through whole steps, where the model has them."""

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """See `NativeModelRunner`."""
        step = self.step if self.whole_steps and self._is_for_steps(inputs) else None
        if step is None:
            return super().forward(inputs)
        logits = step.run(inputs.token_ids[0], inputs.positions[0], inputs.attention)
        if len(inputs.last_rows) < len(logits):
            logits = logits[inputs.last_rows]
        return logits.to(self.backend.shape.dtype)

    @property
    def step(self) -> CpuStep | None:
        """Whole steps of this model over this cache; None where there are none."""
        if not self._tried:
            self._tried = True
            self._step = _step_of(self.model, self.backend)
        return self._step

    @staticmethod
    def _is_for_steps(inputs: BatchInputs) -> bool:
        """Nothing but decodes, and no more than kernels are faster for."""
        num_rows = inputs.attention.num_decodes
        return num_rows == len(inputs.attention.seq_lens) and 0 < num_rows <= MOST_ROWS


def _step_of(model: torch.nn.Module, backend: AttentionBackend) -> CpuStep | None:
    kernels: CpuKernels | None = cpu_kernels()
    cache = backend.inner if isinstance(backend, TimedBackend) else backend
    if kernels is None or not isinstance(model, Decoder) or not isinstance(cache, TorchAttention):
        return None
    if cache.num_blocks == 0 or objection_to(model.config, cache.shape.dtype):
        return None
    caches = [Caches(*layer) for layer in cache.layers]
    try:
        return CpuStep(kernels, model, caches, cache.shape.block_size)
    except LookupError:  # a layer that no kernel multiplies by
        return None
