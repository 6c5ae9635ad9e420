import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.ops.products.small_batch_plan import PIECE, STEP
from pagedchat.ops.products.streamed_plan import UNIT, StreamPlan, plan_stream, takes
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

H200 = {"num_multiprocessors": 132, "shared_limit": 227 << 10}
WIDTHS = (896, 960, 1024, 1536, 2048, 2560, 3072, 4096, 4864, 5120, 8192, 8960, 11008, 14336)
"""Of models that there are."""


def test_the_ring_is_as_long_as_a_thread_block_has_work_or_memory() -> None:
    assert plan_stream(2048, 16384, 1, normed=True, **H200) == StreamPlan(2048, 1024, stages=7)
    assert plan_stream(2048, 2048, 1, normed=False, **H200) == StreamPlan(2048, 1024, stages=4)
    assert plan_stream(8192, 2048, 8, normed=False, **H200) == StreamPlan(8192, 1024, stages=7, group=2)
    assert plan_stream(14336, 4096, 8, normed=False, **H200) == StreamPlan(14336, 1024, stages=10, group=4)


def test_short_rows_are_one_stage() -> None:
    plan = plan_stream(896, 9728, 1, normed=True, **H200)
    assert plan == StreamPlan(896, 1024, stages=8)
    assert plan.stage_bytes == 8 * 2 * 896 + 16


def test_of_large_rings_vocabularies_and_few_bits_only_some_stages_are_on_their_way_at_a_time() -> None:
    large = plan_stream(4096, 28672, 1, normed=True, **H200)
    assert large is not None
    assert large.constants["IN_FLIGHT"] == 3 < large.stages
    small = plan_stream(2048, 16384, 1, normed=True, **H200)
    assert small is not None
    assert "IN_FLIGHT" not in small.constants
    for width, in_flight in ((768, 4), (896, 3), (2048, 3)):
        head = plan_stream(width, 128_256, 1, normed=True, **H200)
        assert head is not None
        assert head.in_flight == in_flight < head.stages
    few = plan_stream(4096, 28672, 1, normed=True, form=WeightForm("int4", 128, has_minimums=True), **H200)
    assert few is not None
    assert few.constants["IN_FLIGHT"] == 2 < few.stages


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_of_models_streams(width: int) -> None:
    assert plan_stream(width, 1 << 12, 8, normed=False, **H200) is not None
    assert (plan_stream(width, 1 << 12, 8, normed=True, **H200) is not None) == (width <= 4096)


@pytest.mark.parametrize(
    ("in_features", "num_rows", "num_tokens", "normed", "why"),
    [
        (2048, 2048, 9, False, "too many tokens"),
        (5120, 12288, 1, True, "the normed input does not stay in registers"),
        (2052, 8192, 1, False, "rows begin within a piece"),
    ],
)
def test_what_does_not_stream(in_features: int, num_rows: int, num_tokens: int, normed: bool, why: str) -> None:
    assert plan_stream(in_features, num_rows, num_tokens, normed=normed, **H200) is None, why


def test_without_room_for_the_ring_nothing_streams() -> None:
    assert plan_stream(2048, 16384, 1, normed=True, num_multiprocessors=132, shared_limit=60 << 10) is None


pieces = st.integers(1, 2000).map(lambda count: PIECE * count)
rows = st.integers(1, 4000).map(lambda count: UNIT * count)


@given(in_features=pieces, num_rows=rows, normed=st.booleans(), multiprocessors=st.integers(1, 200))
def test_every_row_and_every_element_has_its_place_once(
    in_features: int, num_rows: int, normed: bool, multiprocessors: int
) -> None:
    limits = {"num_multiprocessors": multiprocessors, "shared_limit": 227 << 10}
    plan = plan_stream(in_features, num_rows, 1, normed=normed, **limits)
    if plan is None:
        assert normed
        assert in_features > 4096
        return
    assert plan.shared_bytes(normed) <= 227 << 10
    # As in kernels/products/streamed_ring.cuh: thread blocks take every so many-th unit, a group at a time.
    num_units, grid = num_rows // UNIT, min(num_rows // UNIT, multiprocessors)
    taken: list[int] = []
    for block in range(grid):
        own = len(range(block, num_units, grid))
        groups = range(0, own, plan.group)
        taken += [block + grid * (first + i) for first in groups for i in range(plan.group) if first + i < own]
        assert plan.stages <= -(-num_units // grid) * plan.row_stages
    assert sorted(taken) == list(range(num_units))
    # As in streamed_input.cuh: stage, warp, step and lane of every piece.
    segment = plan.stage_features // 8
    begins = [
        stage * plan.stage_features + warp * segment + step * STEP + lane * PIECE
        for stage in range(plan.row_stages)
        for warp in range(8)
        for step in range(segment // STEP)
        for lane in range(4)
    ]
    assert sorted(begin for begin in begins if begin < in_features) == list(range(0, in_features, PIECE))


FORMS = (
    WeightForm("int8"), WeightForm("fp8", 128), WeightForm("int8", 32), WeightForm("int4", 128, has_minimums=True),
    WeightForm("int4", 64), WeightForm("int4", 32, has_minimums=True),
)  # fmt: skip


@given(
    steps=st.integers(1, 900),
    num_rows=rows,
    normed=st.booleans(),
    form=st.sampled_from(FORMS),
    num_tokens=st.sampled_from([1, 2, 3, 8]),
    shared_limit=st.sampled_from([99 << 10, 227 << 10]),
)
def test_warps_have_whole_groups_of_few_bits_or_a_part_of_one(
    steps: int, num_rows: int, normed: bool, form: WeightForm, num_tokens: int, shared_limit: int
) -> None:
    in_features, limits = STEP * steps, {"num_multiprocessors": 132, "shared_limit": shared_limit}
    plan = plan_stream(in_features, num_rows, num_tokens, normed=normed, form=form, **limits)
    if plan is None:
        return
    assert plan.shared_tokens in (0, num_tokens)
    if plan.shared_tokens:
        assert plan.group % 2 == 0
    assert plan.shared_bytes(normed) <= shared_limit
    assert plan.row_stages * plan.stage_features >= in_features > (plan.row_stages - 1) * plan.stage_features
    segment, group = plan.stage_features // plan.constants["NUM_WARPS"], form.scale_group  # type: ignore[operator]
    assert segment % STEP == 0
    if group:
        assert group % segment == 0 or segment % group == 0
        assert in_features % segment == 0
        assert in_features // group % 2 == 0


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("num_tokens", [1, 8])
@pytest.mark.parametrize("width", [896, 1536, 4096, 4864, 14336])
def test_lanes_read_every_element_of_few_bits_once(width: int, num_tokens: int, form: WeightForm) -> None:
    plan = plan_stream(width, 4096, num_tokens, normed=False, form=form, **H200)
    if plan is None:
        assert not takes(form, width, 4096)
        return
    # As in streamed_input.cuh: stage, warp, run of four lanes, and piece of a lane's run.
    segment, run = plan.stage_features // 8, plan.lane_run
    begins = [
        stage * plan.stage_features + warp * segment + first + lane * run + piece
        for stage in range(plan.row_stages)
        for warp in range(8)
        for first in range(0, segment, 4 * run)
        for lane in range(4)
        for piece in range(0, run, PIECE)
    ]
    assert sorted(begin for begin in begins if begin < width) == list(range(0, width, PIECE))
    assert run * form.bits <= 128
    assert form.scale_group % (4 * run) == 0


@pytest.mark.parametrize("form", [WHOLE, WeightForm("int8"), WeightForm("fp8"), *FORMS[-3:]], ids=str)
@pytest.mark.parametrize(("width", "normed"), [(4096, True), (14336, False)])
def test_one_row_of_four_bits_goes_in_pairs_of_units_through_a_large_ring(
    width: int, form: WeightForm, *, normed: bool
) -> None:
    for num_tokens in (1, 3, 8):
        plan = plan_stream(width, 4096, num_tokens, normed=normed, form=form, **H200)
        assert plan is not None
        assert plan.shared_tokens == (1 if (form.bits, num_tokens) == (4, 1) else 0)
        if plan.shared_tokens:
            assert plan.group == 2
            assert plan.stages >= min(2, plan.row_stages) * 4  # a pair that is multiplied, and as much that comes


def test_forms_that_no_ring_takes() -> None:
    assert takes(WeightForm("int8"), 4096, 1000)
    assert not takes(WeightForm("int8"), 4104, 1000)  # rows are no whole steps
    assert not takes(WeightForm("int8", 16), 4096, 1000)
    assert not takes(WeightForm("int4", 128), 896, 1000)  # 7 groups: scales of 4 rows are no whole pieces
    assert takes(WeightForm("int4", 64), 896, 1000)
    assert not takes(WeightForm("int4", 0, has_minimums=True), 4096, 1000)


def test_few_bits_are_made_in_pairs_of_units_and_whole_rows() -> None:
    plan = plan_stream(4096, 28672, 1, normed=True, form=WeightForm("int4", 128, has_minimums=True), **H200)
    assert plan is not None
    assert (plan.stage_features, plan.row_stages, plan.group) == (4096, 1, 2)
    assert plan.stage_bytes == 8 * (2048 + 64) + 16
