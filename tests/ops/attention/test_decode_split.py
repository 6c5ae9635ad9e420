"""Decode on tensor cores against float64; on a CPU the torch version behind the same name."""

from contextlib import nullcontext

import pytest
import torch

from pagedchat.ops.attention import decode_split as launches
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_grid import SplitPlan
from pagedchat.ops.attention.decode_plan import MAX_TILES
from pagedchat.ops.attention.decode_split import decode_shape, decode_split, launch_on_splits
from pagedchat.ops.attention.decode_workspace import MOST_HANDED, partial_states
from tests.ops.cuda_layout_case import (
    BLOCK_SIZES,
    HEAD_SIZES,
    LayoutCase,
    check_attention,
    make_layout_case,
    make_options,
    make_sinks,
    results,
)
from tools.emulator.kernel import EmulatedKernel
from tools.emulator.ops import kernels_on_cpu

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RULES: list[dict[str, float]] = [
    {"cap": 2.0}, {"sliding_window": 20}, {"alibi": True}, {"sliding_window": 1}, {"sinks": True},
    {"cap": 2.0, "sliding_window": 20, "alibi": True, "sinks": True},
]  # fmt: skip
HALF_TYPES = [torch.float16, torch.bfloat16]
SEQ_LENS = [1, 15, 16, 17, 31, 32, 33, 100, 517, 0]
GROUPS = [(4, 4), (4, 2), (3, 1), (8, 1), (12, 1), (40, 1)]
SPLITS = [(4, MAX_TILES), (4, 4), (4, 1), (2, 3), (8, 8)]
"""Warps and tiles of a thread block."""


def attend(
    case: LayoutCase, options: AttentionOptions, max_seq_len: int = 3000
) -> tuple[torch.Tensor, torch.Tensor]:
    call = case.call(options)
    assert decode_split(call, max_seq_len=max_seq_len) is call.output
    return results(call)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_every_shape_of_head_and_block(device: str, dtype: torch.dtype, block_size: int, head_size: int) -> None:
    case = make_layout_case(SEQ_LENS, head_size=head_size, block_size=block_size, dtype=dtype, device=device)
    options = AttentionOptions(scale=head_size**-0.5)

    output, lse = attend(case, options, max_seq_len=517)

    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), GROUPS)
def test_every_size_of_group(device: str, num_heads: int, num_kv_heads: int) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    case = make_layout_case(SEQ_LENS, dtype=torch.float16, device=device, head_size=128, **heads)
    options = AttentionOptions(scale=0.1)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_of_scores(device: str, rule: dict[str, float]) -> None:
    case = make_layout_case([*SEQ_LENS, 3000], dtype=torch.float16, device=device)
    options = make_options(rule, device)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("num_warps", "tiles_per_split", "gathers"),
    [*((*split, False) for split in SPLITS), (4, 4, True), (8, 16, True), (2, 32, True), (4, 5, True)],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("has_sinks", "overlap"), [(False, True), (True, True), (True, False)])
def test_every_split_gives_the_same(
    num_warps: int, tiles_per_split: int, gathers: bool, seed: int, has_sinks: bool, overlap: bool
) -> None:
    lens = torch.randint(1, 2000, (7,), generator=torch.Generator().manual_seed(seed)).tolist()
    case = make_layout_case(lens, num_heads=8, num_kv_heads=2, dtype=torch.float16, device="cuda", seed=seed)
    options = AttentionOptions(scale=0.125, sinks=make_sinks(8, "cuda") if has_sinks else None)
    num_tiles = -(-max(lens) // 32)
    num_splits = -(-num_tiles // tiles_per_split)

    for _ in range(2):  # a second time: the counters are back at zero
        call = case.call(options)
        plan = SplitPlan(num_warps, tiles_per_split, num_splits, gathers=gathers)
        launch_on_splits(call, decode_shape(call), plan, overlap=overlap)
        check_attention(case, options, *results(call))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("num_warps", "fewest_tiles", "num_splits", "window", "gathers"),
    [
        (4, 4, 4, None, False), (2, 3, 16, 300, False), (8, 16, 2, None, False), (4, 1, 70, 300, False),
        (4, 4, 8, None, False), (4, 12, 8, None, False), (4, 4, 4, None, True), (2, 3, 16, 300, True),
        (8, 16, 2, None, True), (4, 4, 5, None, True), (2, 1, 16, None, True),
    ],
)  # fmt: skip
def test_long_and_short_are_shared_out_evenly(
    device: str, num_warps: int, fewest_tiles: int, num_splits: int, window: int | None, gathers: bool
) -> None:
    lens = [2000, 1, 0, 33, 640, 1999]
    case = make_layout_case(lens, num_heads=8, num_kv_heads=2, dtype=torch.float16, device=device)
    options = AttentionOptions(scale=0.125, sliding_window=window)
    plan = SplitPlan(num_warps, fewest_tiles, num_splits, is_even=True, gathers=gathers)

    for overlap in (False, True):  # the counters are back at zero
        call = case.call(options)
        with kernels_on_cpu(seed=3) if device == "cpu" else nullcontext():
            launch_on_splits(call, decode_shape(call), plan, overlap=overlap)
        check_attention(case, options, *results(call))


def case_of_parts(most_tiles: int, seed: int, **heads: int) -> LayoutCase:
    """Sequences with nothing, a part or all of what so many tiles hold."""
    lens = [min(length, 32 * most_tiles) for length in (512, 31, 0, 400)]
    return make_layout_case(lens, dtype=torch.float16, seed=seed, **heads)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size"), [(8, 2, 64), (6, 2, 128), (3, 1, 256), (20, 1, 80)]
)
@pytest.mark.parametrize(("num_warps", "tiles", "num_splits"), [(2, 1, 16), (4, 2, 7), (2, 9, 2)])
def test_parts_of_a_cluster_are_gathered_in_shared_memory(
    num_heads: int, num_kv_heads: int, head_size: int, num_warps: int, tiles: int, num_splits: int, seed: int
) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_size": head_size}
    case = case_of_parts(tiles * num_splits, seed, **heads)
    options = AttentionOptions(scale=0.1, sinks=make_sinks(num_heads, "cpu"))
    call = case.call(options)

    with kernels_on_cpu(seed=seed) as kernels:
        plan = SplitPlan(num_warps, tiles, num_splits, gathers=True)
        launch_on_splits(call, decode_shape(call), plan)

    assert kernels.launched == {"decode_split"}
    check_attention(case, options, *results(call))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size"), [(8, 2, 64), (6, 2, 128), (3, 1, 256), (20, 1, 80), (2, 2, 64)]
)
@pytest.mark.parametrize(
    ("num_warps", "tiles", "num_splits", "seed"),
    [(2, 1, 16, 0), (4, 2, 7, 1), (8, 9, 2, 2), (2, 1, MOST_HANDED + 1, 3)],
)
def test_parts_are_handed_over_to_the_last_one_to_begin(
    num_heads: int, num_kv_heads: int, head_size: int, num_warps: int, tiles: int, num_splits: int, seed: int
) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_size": head_size}
    case = case_of_parts(tiles * num_splits, seed, **heads)
    options = AttentionOptions(scale=0.1, sinks=make_sinks(num_heads, "cpu"))

    with kernels_on_cpu(seed=seed) as kernels:  # it looks itself whether all that was handed over was taken
        for plan in (SplitPlan(num_warps, tiles, num_splits), SplitPlan(4, 2, 8)):  # through the same memory
            call = case.call(options)
            launch_on_splits(call, decode_shape(call), plan, overlap=True)
            check_attention(case, options, *results(call))

    assert kernels.launched == {"decode_split"}


def test_where_clusters_do_not_fit_parts_go_through_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_layout_case([512, 100], dtype=torch.float16)
    options, asked, left = AttentionOptions(scale=0.1), [], []
    call = case.call(options)
    monkeypatch.setattr(launches, "partial_states", lambda q, n: left.append(n) or partial_states(q, n))
    monkeypatch.setattr(EmulatedKernel, "active_clusters", lambda _, *sizes: asked.append(sizes) or sizes[0] // 2)

    with kernels_on_cpu():
        launch_on_splits(call, decode_shape(call), SplitPlan(4, 4, 4, gathers=True))

    assert asked == [(4, 128)]
    assert left == [4]
    check_attention(case, options, *results(call))


@pytest.mark.gpu
def test_the_same_bits_every_time() -> None:
    case = make_layout_case([3000, 5, 1200], dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125)

    first, again = (attend(case, options)[0] for _ in range(2))

    assert torch.equal(first, again)


@pytest.mark.gpu
def test_a_captured_launch_follows_its_inputs() -> None:
    case = make_layout_case([700, 33], dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125)
    attend(case, options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, _ = attend(case, options)
    case.query.normal_()

    for _ in range(2):
        output.fill_(float("nan"))
        graph.replay()
        check_attention(case, options, output)


@pytest.mark.parametrize(
    ("sinks", "words"),
    [
        (torch.zeros(3), r"sinks has shape \[3\], expected \[4\]"),
        (torch.zeros(4, dtype=torch.float16), r"sinks is torch\.float16, expected torch\.float32"),
        (torch.zeros(8)[::2], r"sinks is on cpu with a stride of 2, expected cpu with 1"),
    ],
    ids=["shape", "type", "stride"],
)
def test_other_sinks_are_refused(sinks: torch.Tensor, words: str) -> None:
    call = make_layout_case([5], dtype=torch.float16).call(AttentionOptions(scale=1.0, sinks=sinks))
    with pytest.raises(ValueError, match=words):
        decode_split(call, max_seq_len=5)


def test_a_block_table_of_another_type_is_refused() -> None:
    case = make_layout_case([5], dtype=torch.float16)

    tensors = (case.query, case.key_cache, case.value_cache, case.block_tables.long(), case.seq_lens)
    call = AttentionCall.to_new(*tensors, AttentionOptions(scale=1.0))
    with pytest.raises(ValueError, match=r"block_tables is torch\.int64, expected torch\.int32"):
        decode_split(call, max_seq_len=5)
