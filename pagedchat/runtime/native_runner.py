"""One step on a model of our own modules: as with a transformers model, but the forward pass stays flat."""

import torch

from pagedchat.runtime.batch_inputs import BatchInputs
from pagedchat.runtime.model_runner import TorchModelRunner


class NativeModelRunner(TorchModelRunner):
    """The engine's `ModelRunner` over a `NativeModel`; see `TorchModelRunner` for the rest."""

    def capture_decodes(self, max_num_seqs: int, model_len: int) -> None:
        """From now on run decodes as CUDA graphs, where the kernels have the cache; elsewhere nothing changes.

        Args:
            max_num_seqs: sequences in a batch, at most.
            model_len: tokens of a sequence, at most.
        """
        if self.device.type != "cuda":
            return
        from pagedchat.runtime.attention.cuda_backend import CudaAttention  # noqa: PLC0415 - with all its kernels
        from pagedchat.runtime.decode_graph.decode_steps import DecodeSteps  # noqa: PLC0415

        if isinstance(self.backend, CudaAttention):
            self.decodes = DecodeSteps(self.model, self.backend, max_num_seqs, model_len)

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: `[num_sampled, vocab_size]`, of the model's type."""
        self.backend.begin(inputs.attention)
        logits: torch.Tensor = self.model(inputs.token_ids[0], inputs.positions[0], self.backend, inputs.last_rows)
        return logits
