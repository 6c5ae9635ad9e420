"""How all layers are cut: every unit is somebody's, loads are alike, and what does not fit says why."""

from dataclasses import replace
from typing import Any

import pytest

from pagedchat.ops.all_layers.plan import plan_layers, shares_of
from pagedchat.ops.all_layers.shape import LayersShape, why_not
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm
from tests.ops.all_layers.layers_case import FEW_BITS_SHAPES, INT4, INT8, SHAPES

H200 = (132, 232_448)


LLAMA_8B = LayersShape(4096, 14336, 32, 8, 128, 16, INT4, INT4, INT8)


@pytest.mark.parametrize("kind", [*SHAPES, *FEW_BITS_SHAPES])
@pytest.mark.parametrize("num_thread_blocks", [6, 114, 132])
def test_every_unit_is_somebodys_and_only_theirs(kind: str, num_thread_blocks: int) -> None:
    shape = (SHAPES | FEW_BITS_SHAPES)[kind]
    shares = shares_of(shape, num_thread_blocks)
    for first, count, total in (
        ("first_qkv", "num_qkv", (shape.qkv_rows - shape.value_rows) // shape.unit),
        ("first_values", "num_values", shape.value_rows // shape.unit),
        ("first_stream", "num_stream", shape.hidden // shape.unit),
        ("first_up", "num_up", 2 * shape.middle // shape.unit),
    ):
        runs = [range(getattr(share, first), getattr(share, first) + getattr(share, count)) for share in shares]
        assert [unit for run in runs for unit in run] == list(range(total))


def test_shares_of_weights_are_alike() -> None:
    shape = SHAPES["llama"]
    loads = [
        (share.num_qkv + share.num_up) * shape.hidden + share.num_stream * (shape.attended + shape.middle)
        for share in shares_of(shape, 132)
    ]
    assert max(loads) < 1.1 * sum(loads) / 132


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("num_tokens", [1, 2, 4, 8])
def test_a_launch_fits_into_shared_memory_and_onto_the_gpu(kind: str, num_tokens: int) -> None:
    plan = plan_layers(SHAPES[kind], num_tokens, 900, *H200)
    assert plan is not None
    assert plan.shared_bytes(SHAPES[kind]) <= H200[1]
    assert plan.num_splits * num_tokens <= 8
    assert plan.num_splits * num_tokens * SHAPES[kind].num_kv_heads <= 132


def test_two_turns_of_a_context_are_shorter_than_splits() -> None:
    plans = [plan_layers(SHAPES["llama"], 2, context_len, *H200) for context_len in (256, 512, 1024, 2048)]
    assert [plan and plan.num_splits for plan in plans] == [1, 1, 4, 4]
    few_bits = plan_layers(LLAMA_8B, 1, 512, *H200)
    assert few_bits is not None
    assert few_bits.num_splits == 2


def test_a_middle_is_as_wide_as_shared_memory_has_room_for() -> None:
    wide, widest = (replace(SHAPES["qwen3"], middle=middle) for middle in (8960, 40960))
    assert [plan_layers(wide, num_tokens, 300, *H200) is None for num_tokens in (1, 4, 8)] == [False, False, False]
    assert [plan_layers(widest, num_tokens, 300, *H200) is None for num_tokens in (1, 4)] == [False, True]


@pytest.mark.parametrize("shape", [LLAMA_8B, *FEW_BITS_SHAPES.values()], ids=str)
def test_weights_of_few_bits_have_a_launch_for_one_row(shape: LayersShape) -> None:
    plan = plan_layers(shape, 1, 900, *H200)
    assert plan is not None
    assert plan.shared_bytes(shape) <= H200[1]
    assert 2 == plan.in_flight < plan.slots
    assert plan_layers(shape, 2, 900, *H200) is None


@pytest.mark.parametrize("shape", [replace(LLAMA_8B, values_form=None), SHAPES["llama"]], ids=str)
def test_no_thread_block_makes_queries_keys_and_values_for_longer_than_others(shape: LayersShape) -> None:
    """All wait for them."""
    shares = shares_of(shape, 132)
    for counts in ([share.num_qkv for share in shares], [share.num_up for share in shares]):
        assert max(counts) - min(counts) == 1


def test_values_apart_are_made_beside_queries_and_keys_in_about_the_same_time() -> None:
    """By bytes, of which a value has twice as many; no thread block has both."""
    shares = shares_of(LLAMA_8B, 132)
    assert all(share.num_qkv == 0 or share.num_values == 0 for share in shares)
    assert max(share.num_qkv for share in shares) == 4
    assert max(2 * share.num_values for share in shares) == 4


def test_weights_are_kept_from_crowding_the_memory() -> None:
    """By time, and where a layer is large also by how many slots are under way. Memory is not held back by that."""
    small, large = (plan_layers(SHAPES[kind], 1, 256, *H200) for kind in ("qwen2.5", "qwen3"))
    assert small is not None
    assert large is not None
    assert small.pace > large.pace > 0
    assert small.in_flight == 0 < large.in_flight < large.slots
    few = plan_layers(LLAMA_8B, 1, 256, *H200)
    assert few is not None
    assert few.pace == large.pace
    seconds_of_memory = 132 * 32_768 / 4.26e12  # to bring a slot to each multiprocessor
    assert few.pace / 1.755e9 < 0.95 * seconds_of_memory


def test_what_is_never_published_lies_behind_rows() -> None:
    shape = SHAPES["qwen2.5"]
    plan = plan_layers(shape, 2, 500, *H200)
    assert plan is not None
    runs = list(plan.empty_runs(shape))
    assert len(runs) == plan.copies * (2 * plan.num_splits + 3 * 2)
    assert {end - begin for begin, end in runs} == {1024 - 896, 5120 - 4864}
    assert all(0 <= begin < end <= plan.set_elements(shape) for begin, end in runs)


@pytest.mark.parametrize(("num_thread_blocks", "unused"), [(132, 0), (110, 2), (25, 13 + 2), (24, 8), (20, 0)])
def test_sums_of_squares_that_nobody_publishes_are_zeros(num_thread_blocks: int, unused: int) -> None:
    """Of 112 units one sum for each four or less of a thread block, and for all thread blocks as many places as for
    the first one, up to a whole piece."""
    shape, num_tokens = SHAPES["qwen2.5"], 2
    plan = plan_layers(shape, num_tokens, 500, num_thread_blocks, H200[1])
    assert plan is not None
    behind_rows = plan.copies * (2 * plan.num_splits + 3 * 2)
    runs = list(plan.empty_runs(shape))[behind_rows:]
    elements = sum(end - begin for begin, end in runs)
    assert elements == plan.copies * 2 * num_tokens * unused * 2


def test_long_contexts_and_other_numbers_of_rows_have_no_launch() -> None:
    shape = SHAPES["qwen2.5"]
    assert plan_layers(shape, 1, 8192, *H200) is not None
    assert plan_layers(shape, 1, 8193, *H200) is None
    assert plan_layers(shape, 3, 100, *H200) is None
    assert plan_layers(shape, 1, 100, 132, 100 << 10) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head_size": 80}, "heads have 80 elements"),
        ({"block_size": 64}, "64 slots"),
        ({"num_heads": 34}, "17 query heads"),
        ({"hidden": 900}, "not a multiple of 32"),
        ({"num_heads": 68, "num_kv_heads": 17, "hidden": 12288}, "12,288 is more than the 8,192"),
    ],
)
def test_a_width_without_code_is_named(changes: dict[str, int], words: str) -> None:
    shape: LayersShape = replace(SHAPES["qwen2.5"], **changes)
    assert words in why_not(shape)
    assert plan_layers(shape, 1, 100, *H200) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": WeightForm("int4", 64, has_minimums=True)}, "int4, groups of 64 with minimums"),
        ({"form": WeightForm("int4", 128)}, "int4, groups of 128, where"),
        ({"qkv_form": WeightForm("int8", 128)}, "int8, groups of 128"),
        ({"form": WHOLE}, "16 bits, where"),
        ({"values_form": WeightForm("int4", 64, has_minimums=True)}, "int4, groups of 64 with minimums"),
        ({"values_form": INT8}, "apart, and of the same int8"),
        ({"middle": 1440}, "not a multiple of 128"),
        ({"middle": 4224}, "33 groups do not begin"),
        ({"num_heads": 68, "num_kv_heads": 17, "hidden": 12288}, "12,288 is more than the 8,192"),
        (
            {"head_size": 64, "num_heads": 6, "num_kv_heads": 2, "middle": 640, "hidden": 904},
            "not a multiple of 64",
        ),
    ],
)
def test_a_form_or_width_of_few_bits_without_code_is_named(changes: dict[str, Any], words: str) -> None:
    shape: LayersShape = replace(FEW_BITS_SHAPES["int4"], **changes)
    assert words in why_not(shape)
    assert plan_layers(shape, 1, 100, *H200) is None
