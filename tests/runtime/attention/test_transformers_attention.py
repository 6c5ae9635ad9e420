import pytest
import torch

from pagedchat.errors import ModelError
from pagedchat.runtime.attention.transformers_attention import attention_forward


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ({"s_aux": torch.zeros(2)}, "attention sinks"),
        ({"position_bias": torch.zeros(1)}, "a learned position bias"),
        ({"block_indices": torch.zeros(1)}, "sparse attention"),
        ({"is_causal": False}, "attention to later tokens"),
        ({"attention_mask": torch.zeros(1)}, "an attention mask of its own"),
    ],
)
def test_what_is_not_done_is_refused_before_anything_is_written(extras: dict[str, object], words: str) -> None:
    states = torch.zeros(1, 2, 3, 4)
    arguments = {"attention_mask": None, "paged": None} | extras
    with pytest.raises(ModelError, match=words):
        attention_forward(torch.nn.Module(), states, states, states, **arguments)  # type: ignore[arg-type]
