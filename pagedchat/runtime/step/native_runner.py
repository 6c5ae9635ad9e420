"""One step on a model of our own modules: as with a transformers model, but the forward pass stays flat."""

from typing import TYPE_CHECKING

import torch

from pagedchat.runtime.step.batch_inputs import BatchInputs
from pagedchat.runtime.step.model_runner import TorchModelRunner

if TYPE_CHECKING:
    from pagedchat.jit.build_ahead import BuildAhead
    from pagedchat.models.native_model import NativeModel

PREPARED_TOKENS = (32, 64)
"""Tokens of the first prompts, for which captured passes are made ready at once."""
MOST_TOKENS = 32768
"""Of a step whose prompts are captured."""


class NativeModelRunner(TorchModelRunner):
    """The engine's `ModelRunner` over a `NativeModel`; see `TorchModelRunner` for the rest."""

    model: "NativeModel"

    def capture_decodes(self, max_num_seqs: int, model_len: int, max_num_tokens: int = MOST_TOKENS) -> None:
        """From now on run decodes and prefills as CUDA graphs, where the kernels have the cache; elsewhere nothing
        changes.

        Args:
            max_num_seqs: sequences in a batch, at most.
            model_len: tokens of a sequence, at most.
            max_num_tokens: tokens of a step, at most; no more than `MOST_TOKENS` are captured.
        """
        if self.device.type != "cuda":
            return
        from pagedchat.runtime.attention.cuda_backend import CudaAttention  # noqa: PLC0415 - with all its kernels
        from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps  # noqa: PLC0415
        from pagedchat.runtime.graphs.prefill.buckets import PrefillSizes  # noqa: PLC0415
        from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps  # noqa: PLC0415

        if isinstance(self.backend, CudaAttention):
            self.decodes = DecodeSteps(self.model, self.backend, max_num_seqs, model_len)
            sizes = PrefillSizes(max_num_tokens, max_num_seqs, model_len)
            self.prefills = PrefillSteps(self.model, self.backend, sizes)

    def build_ahead(self) -> "list[BuildAhead]":
        """Begin to build the kernels of the first captured steps, in the background.

        To be called before there are requests.
        """
        builds = [] if self.decodes is None else [self.decodes.build_ahead(1, 1)]
        if self.prefills is not None:
            builds += [self.prefills.build_ahead(num_tokens) for num_tokens in PREPARED_TOKENS]
        return [build for build in builds if build is not None]

    def prepare_prefills(self) -> None:
        """Capture what the first short prompts need, and see that it computes what it should.

        To be called before there are requests: what is in the cache is lost.
        """
        from pagedchat.runtime.graphs.prefill.check import keep_if_right  # noqa: PLC0415

        for num_tokens in PREPARED_TOKENS:
            if self.prefills is not None:
                self.prefills.prepare(num_tokens)
        keep_if_right(self, len(self.model.head.weight))

    def prepare_one_more(self) -> bool:
        """Capture one more graph for prompts, while no step is under way; a matter of some ten milliseconds.

        Returns:
            Whether there may be more to capture.
        """
        return self.prefills is not None and self.prefills.prepare_one_more()

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: `[num_sampled, vocab_size]`, of the model's type."""
        self.backend.begin(inputs.attention)
        logits: torch.Tensor = self.model(inputs.token_ids[0], inputs.positions[0], self.backend, inputs.last_rows)
        return logits
