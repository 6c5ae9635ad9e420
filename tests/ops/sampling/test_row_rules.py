import math

import pytest
import torch

from pagedchat.ops.sampling.row_rules import BANNED, AppliedRules, PackedRules, RuleRow, apply_rules, pack_rules
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, normal

ROWS = [
    RuleRow(),
    RuleRow({3: 0.1, 1: BANNED, 5: -100.0}),
    RuleRow(untils={2: 7, 3: 8}),
    RuleRow({3: 0.1, 4: 0.0}, closed=True),
    RuleRow({3: 0.1, 4: BANNED}, {3: 7, 1: 7}, closed=True),
    RuleRow({3: 2.5}, {3: 8}),
]
POSITION = 7


def ruled(logits: torch.Tensor, rows: list[RuleRow]) -> torch.Tensor:
    rules = PackedRules(*(tensor.to(logits.device) for tensor in pack_rules(rows)))
    return apply_rules(logits, rules, torch.full((len(rows),), POSITION, dtype=torch.int32, device=logits.device))


def by_definition(logits: torch.Tensor, row: RuleRow) -> list[float]:
    """One row, token by token."""
    results = []
    for token, logit in enumerate(logits.float().tolist()):
        told = token in row.biases or (token in row.untils and not row.closed)
        if (row.closed and not told) or (told and row.untils.get(token, 0) > POSITION):
            results.append(-math.inf)
        else:
            results.append(float(torch.tensor(logit) + torch.tensor(row.biases.get(token, 0.0))))
    return results


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("vocab_size", [6, 1003])
def test_every_kind_of_rule_by_definition(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    logits = normal(len(ROWS), vocab_size, device=device, dtype=dtype, scale=3.0)
    kept = logits.clone()
    found = ruled(logits, ROWS).cpu().tolist()
    assert found == [by_definition(each, row) for each, row in zip(logits.cpu(), ROWS, strict=True)]
    assert torch.equal(logits, kept)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_without_rules_are_as_they_were(device: str) -> None:
    logits = normal(3, 50, device=device, dtype=torch.float16)
    assert torch.equal(ruled(logits, [RuleRow()] * 3), logits.float())


@pytest.mark.parametrize("device", DEVICES)
def test_long_rows_have_their_rules_in_every_part(device: str) -> None:
    """Thread blocks have 8192 tokens each; tensors are looked at once and have other contents later."""
    vocab_size, tokens = 20_000, [0, 8191, 8192, 16_383, 16_384, 19_999]
    rules = PackedRules(*(tensor.to(device) for tensor in pack_rules([RuleRow(dict.fromkeys(tokens, 1.0))])))
    logits = normal(1, vocab_size, device=device, dtype=torch.float16)
    applied = AppliedRules(logits, rules, torch.zeros(1, dtype=torch.int32, device=device))
    for _ in range(2):
        applied.launch()
        wanted = logits.float()
        wanted[0, tokens] += 1.0
        assert torch.equal(applied.ruled, wanted)
        logits += 0.5


def test_wrong_arguments_are_named() -> None:
    rules, positions = pack_rules([RuleRow({1: 1.0})]), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"rows has shape \[1, 3\], expected \[2, 3\]"):
        apply_rules(torch.zeros(2, 8), rules, positions)
    with pytest.raises(ValueError, match=r"positions is torch\.int64, expected torch\.int32"):
        apply_rules(torch.zeros(1, 8), rules, positions.long())
