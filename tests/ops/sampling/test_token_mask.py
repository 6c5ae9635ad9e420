import pytest
import torch

from pagedchat.ops.sampling.token_mask import mask_tokens
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vocab_size", [1, 31, 64, 1003, 50272])
def test_tokens_without_a_bit_cannot_be_chosen_and_all_else_stays(vocab_size: int, device: str) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = normal(5, vocab_size, device=device, dtype=torch.float32)
    allowed = torch.rand(3, vocab_size, generator=generator) < 0.3
    allowed[2] = True
    padded = torch.zeros(3, -(-vocab_size // 32) * 32, dtype=torch.int64)
    padded[:, :vocab_size] = allowed
    padded[:, vocab_size:] = 1  # bits that are nobody's
    words = (padded.view(3, -1, 32) << torch.arange(32)).sum(-1)
    bits = torch.where(words >= 2**31, words - 2**32, words).int().to(device)
    rows = torch.tensor([4, 0, 2], dtype=torch.int32, device=device)
    wanted = logits.cpu().clone()
    wanted[[4, 0, 2]] = wanted[[4, 0, 2]].masked_fill(~allowed, -torch.inf)
    assert mask_tokens(logits, rows, bits) is logits
    assert torch.equal(logits.cpu(), wanted)


def test_what_does_not_go_together_is_named() -> None:
    logits, rows, bits = torch.zeros(2, 40), torch.zeros(1, dtype=torch.int32), torch.zeros(1, 2, dtype=torch.int32)
    for wrong, name in (
        ((logits.half(), rows, bits), "logits"),
        ((logits, rows.long(), bits), "rows"),
        ((logits, rows, bits[:, :1]), "bits"),
        ((logits, rows, bits.float()), "bits"),
        ((logits.t(), rows, bits), "logits|bits"),
    ):
        with pytest.raises(ValueError, match=name):
            mask_tokens(*wrong)
