"""One step on the model: block moves, forward pass over the flattened batch, sampling. Knows no queues, no pool
and no CUDA graphs: where there are some, `graphs.captured_runner` runs what it can and leaves the rest to a
runner of here.
"""

import inspect
from typing import Self, cast

import torch

from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.backend import AttentionBackend
from pagedchat.runtime.attention.timed_backend import TimedBackend
from pagedchat.runtime.attention.transformers_attention import attending
from pagedchat.runtime.step.batch_inputs import BatchInputs, flatten
from pagedchat.runtime.step.block_moves import apply_block_ops
from pagedchat.runtime.step.clock import StepClock
from pagedchat.runtime.step.logprobs import asked_of, look_up, told_of_prompts
from pagedchat.runtime.step.sampler import sample
from pagedchat.runtime.step.sampling_row import rows_of


class TorchModelRunner:
    """The engine's `ModelRunner` over a transformers model whose attention is ours.

    Args:
        model: a causal language model, in evaluation mode.
        backend: its attention, with the cache.
        device: where the model is.
    """

    def __init__(self, model: torch.nn.Module, backend: AttentionBackend, device: torch.device) -> None:
        self.model = model
        self.device = device
        self.backend = cast(AttentionBackend, TimedBackend(backend)) if device.type == "cpu" else backend
        """The attention, for good; on a CPU it counts its time."""
        self.samples = True
        """Whether tokens are chosen: where a model is cut over ranks, the first one chooses for all."""
        self._block_size = backend.shape.block_size
        self._selects_rows = "logits_to_keep" in inspect.signature(model.forward).parameters

    def with_backend(self, backend: AttentionBackend) -> Self:
        """Another runner of the same model, over another cache.

        Steps that were captured over this runner read this one's cache, and go on doing so.
        """
        return type(self)(self.model, backend, self.device)

    @torch.inference_mode()
    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `engine.output.ModelRunner`."""
        self._attention_seconds()  # what was tried out before this step is not its own
        clock = StepClock(self.device)
        apply_block_ops(self.backend, batch.block_ops)
        clock.mark()
        token_ids: list[list[int]] = [[] for _ in batch.scheduled]
        inputs = flatten(batch.scheduled, self._block_size, self.device, self.backend.sharing)
        clock.mark()
        logits = self.forward(inputs)
        clock.mark()
        if batch.meanwhile is not None and self.device.type != "cpu":  # which is busy with nothing by now
            batch.meanwhile()
        if not self.samples:
            return ModelRunnerOutput(token_ids)
        of_sampled = inputs.sampled_of(logits)
        sampled = self._sample(of_sampled, batch, inputs)
        for i, token_id in zip(inputs.sampled, sampled, strict=True):
            token_ids[i].append(token_id)
        told, of_prompts = self._told(of_sampled, sampled, batch, inputs), None
        if inputs.told:
            of_prompts = told_of_prompts(logits, inputs.told, batch.scheduled)
        copy, launch, forward, sampling = clock.finish()
        seconds = (copy, forward, sampling, launch, self._attention_seconds())
        return ModelRunnerOutput(token_ids, *seconds, told, of_prompts)

    def check(self) -> None:
        """See `engine.output.ModelRunner`: a GPU on which a kernel failed raises at everything from then on."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """Logits of the rows that are wanted: `[num_wanted, vocab_size]`, of the model's type."""
        self.backend.begin(inputs.attention)
        select = {"logits_to_keep": inputs.last_rows} if self._selects_rows else {}
        with attending(self.backend):
            output = self.model(
                input_ids=inputs.token_ids, position_ids=inputs.positions, use_cache=False, **select
            )
        logits: torch.Tensor = output.logits[0]
        return logits if select else logits[inputs.last_rows]

    def _attention_seconds(self) -> float:
        """Of the step just done. A GPU is not asked: two marks a layer would cost more than they tell."""
        return self.backend.take_seconds() if isinstance(self.backend, TimedBackend) else 0.0

    def _told(
        self, logits: torch.Tensor, sampled: list[int], batch: SchedulerOutput, inputs: BatchInputs
    ) -> list[list[TokenLogprobs]] | None:
        """How likely the sampled tokens were; None where nobody asks."""
        asked = asked_of(batch.scheduled[i].sequence for i in inputs.sampled)
        if not asked:
            return None
        told: list[list[TokenLogprobs]] = [[] for _ in batch.scheduled]
        for i, entries in zip(inputs.sampled, look_up(logits, sampled, asked), strict=True):
            told[i] = entries
        return told

    def _sample(self, logits: torch.Tensor, batch: SchedulerOutput, inputs: BatchInputs) -> list[int]:
        sequences = [batch.scheduled[i].sequence for i in inputs.sampled]
        return sample(logits, rows_of(sequences)) if sequences else []


class NativeModelRunner(TorchModelRunner):
    """The same over a model of our own modules, whose forward pass stays flat."""

    model: NativeModel

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: `[num_sampled, vocab_size]`, of the model's type."""
        self.backend.begin(inputs.attention)
        logits: torch.Tensor = self.model(inputs.token_ids[0], inputs.positions[0], self.backend, inputs.last_rows)
        return logits
