"""Groups of sequences over one prefix give what each alone gives."""

import pytest
import torch

from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.attention.decode_plan import own_len
from pagedchat.ops.attention.decode_shared import decode_shared
from tests.ops.attention.changed_case import share
from tests.ops.cuda_layout_case import LayoutCase, check_attention, make_layout_case, make_options, results

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [(4, 4, 64, 16), (12, 12, 64, 16), (8, 2, 128, 16), (6, 2, 80, 8), (4, 1, 256, 32), (40, 1, 64, 16)]
"""Heads, KV heads, head size, block size."""
RULES: list[dict[str, float]] = [{"cap": 4.0, "alibi": True}, {"sinks": True}, {"alibi": True, "sinks": True}]


def check(case: LayoutCase, groups: list[tuple[int, int]], block_size: int, options: AttentionOptions) -> None:
    shared_lens, group_starts = share(case, groups, block_size)
    for _ in range(2):
        call = case.call(options)
        decode_shared(
            call,
            shared_lens,
            group_starts,
            max_own_len=max(map(own_len, case.seq_lens.tolist(), shared_lens.tolist())),
            max_shared_len=int(shared_lens.max()),
            max_group_size=max(count for count, _ in groups),
        )
        check_attention(case, options, *results(call))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_size", "block_size"), SHAPES)
def test_every_shape(device: str, num_heads: int, num_kv_heads: int, head_size: int, block_size: int) -> None:
    case = make_layout_case(
        [300, 257, 320, 500, 7, 64, 90, 1000, 70],
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=torch.float16,
        device=device,
    )

    check(case, [(4, 256), (1, 0), (3, 32), (1, 0)], block_size, AttentionOptions(scale=0.1))


@pytest.mark.parametrize("device", DEVICES)
def test_many_members(device: str) -> None:
    case = make_layout_case([1000 + 3 * i for i in range(40)], dtype=torch.bfloat16, device=device)

    check(case, [(40, 992)], 16, AttentionOptions(scale=0.125))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shared", [48, 64, 80])
def test_own_parts_that_begin_inside_a_tile(device: str, shared: int) -> None:
    """A tile is 32 tokens, a block 16: an own part of 30 tokens lies in one tile or in two."""
    lens = [shared + own for own in (30, 1, 17, 33)] * 40
    case = make_layout_case(lens, head_size=64, block_size=16, dtype=torch.float16, device=device)
    check(case, [(len(lens), shared)], 16, AttentionOptions(scale=0.125))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_of_scores(device: str, rule: dict[str, float]) -> None:
    case = make_layout_case([300, 257, 2000], dtype=torch.float16, device=device)
    check(case, [(2, 256), (1, 0)], 16, make_options(rule, device))


def test_a_window_is_refused() -> None:
    case = make_layout_case([40, 40], dtype=torch.float16)

    with pytest.raises(ValueError, match="sliding_window cannot be combined with a shared prefix"):
        check(case, [(2, 32)], 16, AttentionOptions(scale=0.3, sliding_window=8))
