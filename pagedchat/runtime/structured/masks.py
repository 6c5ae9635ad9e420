"""Masks of a batch: for each of its replies that has a form, a bit for each token that it may go on with. Made on
the host while a GPU computes the logits that they are for.
"""

from collections.abc import Sequence as Rows
from typing import cast

import numpy as np
import torch

from pagedchat.engine.sequence import Sequence
from pagedchat.ops.sampling.token_mask import mask_tokens
from pagedchat.runtime.step.upload import int32, upload
from pagedchat.runtime.structured.grammar import Grammar, fill_masks, num_words


def hold_to_forms(logits: torch.Tensor, sequences: Rows[Sequence | None]) -> torch.Tensor:
    """Leave the tokens that the replies with a form may go on with.

    Args:
        logits: `[num_rows, vocab_size]`, float32, contiguous; written. A GPU may still be busy with them.
        sequences: of the first rows, where they are known; others have no form.

    Returns:
        `logits`.

    Raises:
        RequestError: the form of one has become too much for the library.
    """
    held = {i: each for i, each in enumerate(sequences) if each is not None and each.grammar is not None}
    if not held:
        return logits
    masks = np.empty((len(held), num_words(logits.shape[1])), np.int32)
    fill_masks(masks, [(cast(Grammar, sequence.grammar), sequence) for sequence in held.values()])
    rows, bits = upload([int32(held), torch.from_numpy(masks)], logits.device)
    return mask_tokens(logits, rows, bits)
