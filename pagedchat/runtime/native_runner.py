"""One step on a model of our own modules: as with a transformers model, but the forward pass stays flat."""

import torch

from pagedchat.runtime.batch_inputs import BatchInputs
from pagedchat.runtime.model_runner import TorchModelRunner


class NativeModelRunner(TorchModelRunner):
    """The engine's `ModelRunner` over a `NativeModel`; see `TorchModelRunner` for the rest."""

    @torch.inference_mode()
    def forward(self, inputs: BatchInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: `[num_sampled, vocab_size]`, of the model's type."""
        self.backend.begin(inputs.attention)
        logits: torch.Tensor = self.model(inputs.token_ids[0], inputs.positions[0], self.backend, inputs.last_rows)
        return logits
