"""The work of one prefill over the chunks of a `PrefillRows`: what is captured. Waits for nothing."""

import torch

from pagedchat.ops.sampling.decode_state import find_most_likely
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.prefill.buffers import PrefillRows
from pagedchat.runtime.graphs.prefill.forward import Forward


class PrefillOutputs:
    """Where all steps leave what they compute; each overwrites what the one before left.

    Args:
        max_num_seqs: chunks in a step, at most.
        vocab_size: of the model.
        dtype, device: of logits.
    """

    def __init__(self, max_num_seqs: int, vocab_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._logits = torch.empty(max_num_seqs * vocab_size, dtype=dtype, device=device)
        self._vocab_size = vocab_size
        self.tokens = torch.zeros(max_num_seqs, dtype=torch.int32, pin_memory=device.type == "cuda")
        """In memory that the host reads, once the step is done."""

    def logits(self, num_seqs: int) -> torch.Tensor:
        """`[num_seqs, vocab_size]`, on the device, of the last token of each chunk."""
        return self._logits[: num_seqs * self._vocab_size].view(num_seqs, self._vocab_size)

    def choose(self, num_seqs: int) -> None:
        """Queue finding the most likely next tokens: `tokens[:num_seqs]`."""
        find_most_likely(self.tokens[:num_seqs], self.logits(num_seqs))


class PrefillStep:
    """See `graphs.decode.steps.Step`.

    Args:
        forward: of the model.
        attention: of these chunks.
        rows: the chunks.
        outputs: where results go.
    """

    def __init__(
        self, forward: Forward, attention: PrefillAttention, rows: PrefillRows, outputs: PrefillOutputs
    ) -> None:
        self._forward = forward
        self._attention = attention
        self._rows = rows
        self._outputs = outputs

    def __call__(self) -> torch.Tensor:
        """Logits of every chunk's last token, `[num_seqs, vocab_size]`."""
        rows, outputs = self._rows, self._outputs
        num_seqs = len(rows.seq_lens)
        positions = self._attention.begin()
        last_rows = (rows.cu_seqlens_q[1:] - 1).clamp_(min=0)
        logits = outputs.logits(num_seqs)
        self._forward(rows.token_ids, positions, self._attention, last_rows, logits)
        outputs.choose(num_seqs)
        return logits
