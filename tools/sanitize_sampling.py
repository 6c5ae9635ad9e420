"""The cases of `sanitize_kernels` that tell of tokens and rule over them."""

import torch

from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.row_rules import BANNED, PackedRules, RuleRow, apply_rules, pack_rules
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.ops.sampling.token_mask import TokenMasks
from pagedchat.ops.sampling.top_logprobs import TopLogprobs, top_logprobs
from tools.sanitize_case import Tensors, on_both, random_tensor

VOCAB_SIZE, MOST = 3_003, 20


def sampling_cases() -> list[bool]:
    """Few rows and many that want none, some and all of what is told; rules of every kind."""
    counts = torch.arange(150, dtype=torch.int32) % (MOST + 2) - 1
    chosen = torch.arange(150, dtype=torch.int32) * 19 % VOCAB_SIZE
    results = []
    for num_rows in (6, 60, 150):
        inputs = [random_tensor(num_rows, VOCAB_SIZE), chosen[:num_rows].clone(), counts[:num_rows].clone()]
        results.append(on_both(f"top_logprobs, {num_rows} rows", inputs, _look_up))
    biases = {3: 0.3, 8: BANNED, VOCAB_SIZE - 1: -100.0}
    rules = pack_rules([RuleRow(), RuleRow(biases), RuleRow(untils={1: 5}), RuleRow(biases, {3: 5}, closed=True)])
    positions = torch.full((4,), 4, dtype=torch.int32)
    inputs = [random_tensor(4, VOCAB_SIZE), positions, rules.rows, rules.entries.clone()]
    results.append(on_both("row_rules", inputs, _rule))
    for num_rows in (6, 60, 150):
        bits = torch.arange(num_rows * -(-VOCAB_SIZE // 32), dtype=torch.int32).view(num_rows, -1) * 0x9E3779B
        inputs = [random_tensor(num_rows, VOCAB_SIZE), chosen[:num_rows] % 7 - 1, bits]
        inputs.append(pack_rows([SampleRow(seed=i, top_p=0.9 + i % 2 / 10) for i in range(num_rows)]))
        results.append(on_both(f"sample by masks, {num_rows} rows", inputs, _draw))
    return results


def _look_up(t: Tensors) -> Tensors:
    output = TopLogprobs.empty(len(t[0]), MOST, t[0].device)
    return list(top_logprobs(t[0], t[1], t[2], output))


def _rule(t: Tensors) -> Tensors:
    ruled = apply_rules(t[0], PackedRules(t[2], t[3]), t[1])
    return [ruled.nan_to_num(neginf=-1e4)]


def _draw(t: Tensors) -> Tensors:
    num_rows = len(t[0])
    numbers = torch.zeros(5, num_rows, dtype=torch.int32, device=t[0].device)
    state = DecodeState(
        token_ids=numbers[0],
        positions=numbers[1],
        seq_lens=numbers[2],
        block_tables=numbers[3].view(-1, 1),
        step=torch.ones_like(numbers[0, :1]),
        history=numbers[4:],
        arrivals=torch.zeros_like(numbers[0, :1]),
    )
    draw_next(state, t[0], t[3], None, TokenMasks(t[1], t[2]))
    return [state.token_ids, state.history]
