"""What a step leaves for the next one, and the tokens that are drawn: the same to the bit."""

from dataclasses import replace
from functools import partial

import torch

from pagedchat.ops.sampling.choose_beams import RANKED, choose_beams
from pagedchat.ops.sampling.decode_state import (
    DecodeState,
    advance_by_argmax,
    find_most_likely,
    slots_of,
)
from pagedchat.ops.sampling.row_rules import BANNED, PackedRules, RuleRow, apply_rules, pack_rules
from pagedchat.ops.sampling.sample import draw_next, sample
from pagedchat.ops.sampling.sample_listed import Listed, sample_listed
from pagedchat.ops.sampling.sample_rows import IN_PROMPT, SampleRow, pack_rows
from pagedchat.ops.sampling.token_mask import TokenMasks, mask_tokens
from pagedchat.ops.sampling.top_logprobs import TopLogprobs, top_logprobs
from tests.ops.products.small_batch_case import normal
from tests.ops.sampling.choose_beams_case import make_case
from tests.ops.sampling.decode_state_case import make_state
from tests.tools.emulated_ops.op_case import DTYPES, OpCase, Results, in_types

PENALTIES = SampleRow(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2)
MOST_COUNTED = 0x7FFF
ROWS = [
    SampleRow(temperature=0),
    SampleRow(seed=1),
    SampleRow(temperature=0.3, min_p=0.01, seed=2),
    SampleRow(top_k=40, top_p=0.8, seed=-3),
    replace(PENALTIES, top_p=0.9, seed=1 << 63),
    SampleRow(top_k=1, seed=5),
    SampleRow(temperature=3.0, top_p=0.001, seed=6),
    SampleRow(top_k=3000, top_p=0.99, min_p=0.0001, seed=7),
    replace(PENALTIES, temperature=0),
]


def all_of(state: DecodeState) -> Results:
    fields = ("token_ids", "positions", "seq_lens", "block_tables", "step", "history", "arrivals")
    return {name: getattr(state, name) for name in fields}


def logits_of(num_rows: int, vocab_size: int, dtype: torch.dtype) -> torch.Tensor:
    """In the first row equals of one thread and of several, in the second one token, ties in all others."""
    logits = normal(num_rows, vocab_size, device="cpu", dtype=dtype, scale=3.0)
    for first in (8, 9, 200):
        logits[0, first::512] = 99
    logits[1, :-1] = -torch.inf
    logits[2:] = (logits[2:] / 2).round()
    return logits


def find_slots() -> Results:
    """Of more sequences than a thread block has threads."""
    positions = torch.arange(-1, 130, dtype=torch.int32) % 24 - 1
    tables = torch.arange(2 * len(positions), dtype=torch.int32).flip(0).view(-1, 2).contiguous()
    return {"slots": slots_of(positions, tables, 16)}


def advance(dtype: torch.dtype, *, vocab_size: int) -> Results:
    state = make_state([3, -1, 15, 0], "cpu")
    advance_by_argmax(state, logits_of(4, vocab_size, dtype))
    return all_of(state)


def find(dtype: torch.dtype, *, vocab_size: int) -> Results:
    tokens = torch.full((4,), -7, dtype=torch.int32)
    find_most_likely(tokens[:3], logits_of(3, vocab_size, dtype))
    return {"tokens": tokens}


def draw(dtype: torch.dtype, *, num_rows: int, vocab_size: int) -> Results:
    """Rows of every kind over logits with a gap between them; what is drawn is counted, up to the most there is."""
    logits = logits_of(num_rows, vocab_size + 5, dtype)[:, :vocab_size]
    counts = (torch.arange(num_rows * vocab_size).view(num_rows, vocab_size) % 7 % 3).short()
    counts[:, ::5] += IN_PROMPT
    counts[0, 8] = MOST_COUNTED
    rows = [replace(ROWS[i % len(ROWS)], counts_row=i if i % 2 == 0 else -1) for i in range(num_rows)]
    positions = torch.arange(num_rows, dtype=torch.int32) * 1000
    packed = pack_rows(rows).clone()  # into memory that is watched
    return {"tokens": sample(logits, packed, positions, counts, count_drawn=True), "counts": counts}


def draw_others() -> Results:
    """Greedy with penalties, drawn, padding, and one that stays, in place of the most likely tokens."""
    state, vocab_size = make_state([3, -1, 15, 7], "cpu"), 208
    logits = logits_of(4, vocab_size, torch.float32)
    advance_by_argmax(state, logits)
    counts = (torch.arange(2 * vocab_size).view(2, vocab_size) % 5 % 2).short()
    rows = [replace(PENALTIES, temperature=0, counts_row=1), SampleRow(seed=1), replace(PENALTIES, counts_row=0)]
    rows.append(replace(PENALTIES, counts_row=0, stays=True))
    draw_next(state, logits, pack_rows(rows).clone(), counts)
    return {**all_of(state), "counts": counts}


def draw_allowed(dtype: torch.dtype, *, num_rows: int, vocab_size: int) -> Results:
    """Rows with and without a mask, drawn, greedy and with penalties; rows of logits begin anywhere."""
    state = make_state([3, *range(15, 14 + num_rows)], "cpu")
    logits = logits_of(num_rows, vocab_size, dtype)
    counts = (torch.arange(num_rows * vocab_size).view(num_rows, vocab_size) % 5 % 2).short()
    rows = [replace(ROWS[i % len(ROWS)], counts_row=i if i % 2 == 0 else -1) for i in range(num_rows)]
    num_words, generator = -(-vocab_size // 32), torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31, (num_rows, num_words), generator=generator).int()
    bits &= torch.randint(-(2**31), 2**31, bits.shape, generator=generator).int()
    bits[1] = torch.zeros(num_words).int().index_fill(0, torch.tensor(vocab_size // 64), 1 << 7)  # one token
    masks = TokenMasks((torch.arange(num_rows) * 3 % (num_rows + 1) - 1).int(), bits)
    advance_by_argmax(state, logits)
    draw_next(state, logits, pack_rows(rows).clone(), counts, masks)
    return {**all_of(state), "counts": counts}


def draw_among_ties(num_rows: int, vocab_size: int) -> Results:
    """Two warps have tokens that may be drawn: a fifth is more likely than all others, of which 60 are kept."""
    some = torch.arange(300, 640)
    logits = torch.full((num_rows, vocab_size), -torch.inf)
    logits[:, some] = torch.where(some % 5 == 4, 1.0, 0.9)
    kept = len(some) // 5 + 60
    rows = pack_rows([SampleRow(top_k=kept, seed=i) for i in range(num_rows)]).clone()
    return {"tokens": sample(logits, rows, torch.zeros(num_rows, dtype=torch.int32))}


def draw_listed(num_listed: int) -> Results:
    """From lists of few and of many tokens, and from one of none."""
    state, vocab_size = make_state([3, 8, 15, 7, 2], "cpu"), 2000
    listed = Listed.empty(5, num_listed, torch.device("cpu"))
    listed.token_ids.copy_(torch.arange(0, 2 * num_listed, 2))
    listed.logits.copy_(logits_of(5, num_listed, torch.float32))
    listed.counts.copy_(torch.tensor([num_listed, num_listed, 1, 0, num_listed // 2]))
    counts = torch.zeros(1, vocab_size, dtype=torch.int16)
    rows = [SampleRow(seed=3), SampleRow(top_k=9, top_p=0.9, counts_row=0), SampleRow(), SampleRow()]
    rows.append(SampleRow(temperature=0))
    state.history.copy_(state.token_ids)  # by these it was moved on
    sample_listed(state, listed, pack_rows(rows).clone(), counts)
    return {**all_of(state), "counts": counts}


def draw_among_equals(vocab_size: int) -> Results:
    """So many that sums of their weights' halves take more than 32 bits."""
    logits = torch.zeros(1, vocab_size, dtype=torch.float16)
    rows = pack_rows([SampleRow(top_p=0.5, seed=1)]).clone()
    return {"tokens": sample(logits, rows, torch.zeros(1, dtype=torch.int32))}


def rule(dtype: torch.dtype, *, vocab_size: int) -> Results:
    """A row without rules, one of each kind, and one of all, with a gap between rows."""
    logits = logits_of(5, vocab_size + 5, dtype)[:, :vocab_size]
    biases = {3: 0.3, 8: BANNED, vocab_size - 1: -100.0}
    rows = [RuleRow(), RuleRow(biases), RuleRow(untils={1: 5}), RuleRow(biases, closed=True)]
    rules = pack_rules([*rows, RuleRow(biases, {3: 5, 1: 4, 2: 5}, closed=True)])
    positions = torch.full((5,), 4, dtype=torch.int32)
    return {"ruled": apply_rules(logits, PackedRules(rules.rows, rules.entries.clone()), positions)}


def look_up(dtype: torch.dtype, *, vocab_size: int, most: int, num_rows: int = 5) -> Results:
    """Rows with a gap between them that want all that there is room for, nothing, none and some."""
    logits = logits_of(num_rows, vocab_size + 5, dtype)[:, :vocab_size]
    chosen, counts = torch.tensor([8, vocab_size - 1, 3, 0, 1]).int(), torch.tensor([most, -1, most, 0, 3]).int()
    output = TopLogprobs.empty(num_rows, most, logits.device)
    return top_logprobs(logits, chosen[:num_rows], counts[:num_rows], output)._asdict()


def look_up_neighbours(num_rows: int) -> Results:
    """The likeliest tokens are all with the same few threads, more of them than are sorted at a time."""
    logits = (torch.arange(200_000).flip(0) / 1000.0).repeat(num_rows, 1)
    chosen, counts = torch.tensor([150_000] * num_rows).int(), torch.tensor([64] * num_rows).int()
    return top_logprobs(logits, chosen, counts, TopLogprobs.empty(num_rows, 64, logits.device))._asdict()


def mask() -> Results:
    logits, rows = logits_of(3, 1003, torch.float32), torch.tensor([2, 0]).int()
    bits = torch.randint(-(2**31), 2**31, (2, 32), generator=torch.Generator().manual_seed(1)).int()
    return {"logits": mask_tokens(logits, rows, bits)}


def choose(widths: list[int], num_stops: int, dtype: torch.dtype) -> Results:
    case = make_case(widths, num_stops, 1, "cpu", dtype=dtype)
    choose_beams(*case)
    names = ("sources", "next_tokens", "rows", "sums", "arrivals")
    ranked = case.ranked.numpy().view(RANKED)
    found = {name: torch.from_numpy(ranked[name].copy()) for name in ("sum", "beam", "token_id")}
    return {**{name: getattr(case.state, name) for name in names}, **found, **case.likely._asdict()}


CASES = [
    OpCase("choose_beams", "of one search, 8 share a row", partial(choose, [2], 1, torch.float16), 2e-5),
    OpCase("choose_beams", "of two, 8 share a row", partial(choose, [1, 1], 6, torch.float32), 2e-5),
    OpCase("choose_beams", "of several searches", partial(choose, [2, 5, 1], 1, torch.bfloat16), 2e-5),
    OpCase("choose_beams", "of one as wide as can be", partial(choose, [32], 1, torch.float16), 2e-5),
    OpCase("token_mask", "two of three rows", mask),
    OpCase("find_slots", "with padding", find_slots),
    *in_types("argmax_rows", partial(advance, vocab_size=208), *DTYPES, exact=True),
    *in_types(
        "argmax_rows", partial(advance, vocab_size=1003), torch.float16, exact=True, about="more than threads"
    ),
    *in_types("most_likely_tokens", partial(find, vocab_size=208), *DTYPES, exact=True),
    *in_types("sample", partial(draw, num_rows=3, vocab_size=208), *DTYPES, exact=True, about="8 share a row"),
    *in_types(
        "sample", partial(draw, num_rows=14, vocab_size=1003), torch.float16, exact=True, about="2 share a row"
    ),
    *in_types("sample", partial(draw, num_rows=40, vocab_size=47), torch.float32, exact=True, about="1 for a row"),
    OpCase("sample", "in place of the most likely tokens", draw_others),
    *in_types("sample", partial(draw_allowed, num_rows=5, vocab_size=208), *DTYPES, exact=True, about="masks"),
    *in_types(
        "sample", partial(draw_allowed, num_rows=40, vocab_size=1003), *DTYPES, exact=True, about="masks anywhere"
    ),
    OpCase("sample_listed", "few tokens", partial(draw_listed, 300)),
    OpCase("sample_listed", "many tokens", partial(draw_listed, 700)),
    OpCase("sample", "ties", partial(draw_among_ties, num_rows=20, vocab_size=10_000)),
    OpCase("sample", "a very large vocabulary", partial(draw_among_equals, 1 << 20)),
    *in_types("row_rules", partial(rule, vocab_size=208), *DTYPES, exact=True),
    *in_types("row_rules", partial(rule, vocab_size=3_003), torch.float16, exact=True, about="more than threads"),
    *in_types("top_logprobs", partial(look_up, vocab_size=208, most=20), *DTYPES),
    *in_types("top_logprobs", partial(look_up, vocab_size=10_003, most=64), torch.float16, about="many"),
    *in_types(
        "top_logprobs", partial(look_up, vocab_size=208, most=20, num_rows=3), *DTYPES, about="8 share a row"
    ),
    *in_types(
        "top_logprobs",
        partial(look_up, vocab_size=10_003, most=64, num_rows=3),
        torch.float16,
        about="8 share a row, many",
    ),
    OpCase("top_logprobs", "neighbours, 8 share a row", partial(look_up_neighbours, 1), 2e-5),
    OpCase("top_logprobs", "neighbours", partial(look_up_neighbours, 4), 2e-5),
]
