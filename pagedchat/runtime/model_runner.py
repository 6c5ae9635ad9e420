"""One step on the model: block moves, forward pass over the flattened batch, sampling. Knows no queues, no pool."""

import inspect

import torch

from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.runtime.attention.backend import AttentionBackend
from pagedchat.runtime.batch_inputs import BatchInputs, flatten
from pagedchat.runtime.kv_cache import apply_block_ops
from pagedchat.runtime.sampler import SamplingRow, sample
from pagedchat.runtime.step_clock import StepClock


class TorchModelRunner:
    """The engine's `ModelRunner` over a transformers model whose attention is ours.

    Args:
        model: a causal language model, in evaluation mode.
        backend: its attention, with the cache.
        block_size: token slots in a block.
        device: where the model is.
    """

    def __init__(
        self, model: torch.nn.Module, backend: AttentionBackend, block_size: int, device: torch.device
    ) -> None:
        self.model = model
        self.backend = backend
        self._block_size = block_size
        self.device = device
        self._selects_rows = "logits_to_keep" in inspect.signature(model.forward).parameters

    @torch.inference_mode()
    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `engine.output.ModelRunner`."""
        clock = StepClock(self.device)
        apply_block_ops(self.backend, batch.block_ops)
        clock.mark()
        token_ids: list[list[int]] = [[] for _ in batch.scheduled]
        inputs = flatten(batch.scheduled, self._block_size, self.device, self.backend.sharing)
        logits = self.forward(inputs)
        clock.mark()
        for i, token_id in zip(inputs.sampled, self._sample(logits, batch, inputs), strict=True):
            token_ids[i].append(token_id)
        copy_seconds, forward_seconds, sample_seconds = clock.finish()
        return ModelRunnerOutput(token_ids, copy_seconds, forward_seconds, sample_seconds)

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: `[num_sampled, vocab_size]`, of the model's type."""
        self.backend.begin(inputs.attention)
        select = {"logits_to_keep": inputs.last_rows} if self._selects_rows else {}
        output = self.model(
            input_ids=inputs.token_ids,
            position_ids=inputs.positions,
            use_cache=False,
            paged=self.backend,
            **select,
        )
        logits: torch.Tensor = output.logits[0]
        return logits if select else logits[inputs.last_rows]

    def _sample(self, logits: torch.Tensor, batch: SchedulerOutput, inputs: BatchInputs) -> list[int]:
        sequences = [batch.scheduled[i].sequence for i in inputs.sampled]
        rows = [SamplingRow(seq.sampling_params, seq.token_ids, seq.seed) for seq in sequences]
        return sample(logits, rows) if rows else []
