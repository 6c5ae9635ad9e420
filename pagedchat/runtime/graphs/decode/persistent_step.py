"""A decode step of a few sequences as one launch: what is captured for the smallest batches of a small model."""

import torch

from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode


class PersistentStep:
    """See `ops.whole_step.persistent_decode`.

    Args:
        decode: for as many sequences as the state has rows.
        state: the rows.
        head: `[vocab_size, hidden]`: logits have its type.
        screened: whether the step makes no logits.
    """

    def __init__(self, decode: PersistentDecode, state: DecodeState, head: torch.Tensor, *, screened: bool) -> None:
        self._decode = decode
        self._state = state
        self._num_logits, self._dtype = 0 if screened else len(head), head.dtype

    def __call__(self) -> torch.Tensor:
        """See `steps.Step`."""
        tokens = self._state.token_ids
        logits = torch.empty(len(tokens), self._num_logits, dtype=self._dtype, device=tokens.device)
        self._decode(self._state, logits if self._num_logits else None)
        return logits
