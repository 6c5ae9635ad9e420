"""GPUs that are described and not there: the shapes that people run have captured steps there, and plans that fit.

Numbers of an H200 may decide what is quick elsewhere, never what is possible: multiprocessors and shared memory are
those of the GPU that is asked for.
"""

import pytest

from pagedchat.bench.engine.shapes import SHAPES
from pagedchat.bench.random_checkpoint import OPT_125M
from pagedchat.jit.driver import Gpu
from pagedchat.models.native import NativeConfig, read_native
from pagedchat.ops.attention import prefill_plan, simt_plan
from pagedchat.ops.products.few_rows_plan import FewRowsPlan, plan_few_rows, plan_few_rows_head
from pagedchat.ops.products.small_batch_plan import head_shared_bytes
from pagedchat.ops.products.streamed_plan import StreamPlan
from pagedchat.ops.products.warpgroup_plan import plan_warpgroups, shared_bytes
from pagedchat.runtime.graphs.model_tensors import sizes_of
from pagedchat.runtime.graphs.objections import objection_to, objection_to_whole_steps
from pagedchat.runtime.graphs.step_facts import PrefillFacts, Setting
from pagedchat.runtime.graphs.which_step import (
    FUSED,
    LAYERS,
    LIBRARY,
    MERGED,
    WARPGROUPS,
    which_decode,
    which_prefill,
)
from pagedchat.runtime.graphs.whole_steps import WHOLE_STEPS, whole_step_plan
from tests.runtime.graphs.configs import facts

GPUS = {
    "A100": Gpu(0, "NVIDIA A100", (8, 0), 80 << 30, 108, 163 << 10),
    "RTX 3060": Gpu(0, "NVIDIA GeForce RTX 3060", (8, 6), 12 << 30, 28, 99 << 10),
    "RTX 4090": Gpu(0, "NVIDIA GeForce RTX 4090", (8, 9), 24 << 30, 128, 99 << 10),
    "H100 PCIe": Gpu(0, "NVIDIA H100 PCIe", (9, 0), 80 << 30, 114, 227 << 10),
    "H20": Gpu(0, "NVIDIA H20", (9, 0), 96 << 30, 78, 227 << 10),
    "RTX 5090": Gpu(0, "NVIDIA GeForce RTX 5090", (12, 0), 32 << 30, 170, 99 << 10),
}
MODELS = SHAPES | {"opt-125m": OPT_125M}
ROWS = (1, 2, 4, 8, 16, 64, 256)
STATIC_BYTES = 48 << 10
"""Of shared memory, that a kernel has without asking for more."""


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    return GPUS[request.param]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> NativeConfig:
    return read_native(MODELS[request.param]).config


@pytest.fixture
def setting(model: NativeConfig, gpu: Gpu) -> Setting:
    return Setting(
        sizes=sizes_of(model),
        objection=objection_to(model),
        whole_objection=objection_to_whole_steps(model),
        element="float16",
        block_size=16,
        gpu=gpu,
    )


def gpu_of(setting: Setting) -> Gpu:
    assert setting.gpu is not None
    return setting.gpu


def test_every_batch_has_a_captured_step_with_products_of_ours_for_few_rows(setting: Setting) -> None:
    hopper = gpu_of(setting).compute_capability == (9, 0)
    for rows in ROWS:
        for choice in ("greedy", "drawn"):
            name = which_decode(facts(setting, rows, choice=choice)).name
            if rows <= 8:
                assert name in (FUSED, LAYERS) or (rows <= 2 and name in WHOLE_STEPS)
            elif rows == 16 and not hopper:
                assert name in (FUSED, LIBRARY)  # a normed input of 16 rows may be too wide for registers
            else:
                assert name in ((WARPGROUPS, LIBRARY) if hopper else (LIBRARY,))
    prompt = PrefillFacts(setting=setting, num_tokens=1536, num_blocks=128)
    assert which_prefill(prompt).name == MERGED


def test_products_for_few_rows_fit(setting: Setting) -> None:
    sizes, gpu = setting.sizes, gpu_of(setting)
    for rows in (1, 2, 4, 8, 16):
        for product in sizes.products:
            found = plan_few_rows(product.in_features, product.num_rows, rows, normed=product.normed, gpu=gpu)
            check_few_rows(found, gpu, product.in_features, product.num_rows, normed=product.normed)
        head = plan_few_rows_head(sizes.hidden, sizes.vocab_size, rows, normed=True, gpu=gpu)
        if head.plan is not None and not isinstance(head.plan, StreamPlan):
            normed = not head.norm_apart
            assert head_shared_bytes(sizes.hidden, head.plan, normed) <= gpu.shared_bytes


def check_few_rows(found: FewRowsPlan, gpu: Gpu, in_features: int, num_rows: int, *, normed: bool) -> None:
    plan = found.plan
    if isinstance(plan, StreamPlan):
        assert gpu.compute_capability >= (9, 0)  # bulk copies
        assert plan.shared_bytes(normed and not found.norm_apart) <= gpu.shared_bytes
    elif plan is not None:
        sums = 80 * plan.num_warps * 8 * plan.token_tiles
        norm = 8 * plan.num_warps * 8 * plan.token_tiles + 4 * in_features if normed else 0
        assert sums + norm <= STATIC_BYTES
        assert plan.num_threads <= 1024
        assert in_features % plan.num_warps == 0
        assert num_rows % 16 == 0


def test_products_by_warpgroups_fit_and_have_a_multiprocessor_each(setting: Setting) -> None:
    gpu, plans = gpu_of(setting), 0
    if setting.missing_warpgroups:
        pytest.skip(setting.missing_warpgroups)
    for rows in (16, 64, 256):
        for product in setting.sizes.products:
            plan = plan_warpgroups(
                product.in_features, product.out_features, rows, product.paired,
                num_multiprocessors=gpu.num_multiprocessors, shared_limit=gpu.shared_bytes,
            )  # fmt: skip
            if plan is not None:
                plans += 1
                columns, tokens = product.out_features // plan.columns, -(-rows // plan.tokens)
                assert plan.cluster * columns * tokens <= gpu.num_multiprocessors
                assert shared_bytes(product.in_features, plan, product.paired) <= gpu.shared_bytes
    assert plans > 0 or setting.sizes.hidden > 2048


def test_steps_of_one_launch_fit(setting: Setting) -> None:
    gpu = gpu_of(setting)
    for name in WHOLE_STEPS:
        for rows in (1, 2):
            plan = whole_step_plan(name, facts(setting, rows))
            if plan is not None:
                assert plan.num_thread_blocks <= gpu.num_multiprocessors
                assert plan.shared_bytes(setting.shape, rows) <= gpu.shared_bytes


def test_attention_over_prompts_fits(setting: Setting) -> None:
    sizes, limit = setting.sizes, gpu_of(setting).shared_bytes
    for rows in (16, 64, 4096):
        tile = prefill_plan.choose_tile(sizes.head_dim, 16, rows, limit)
        assert tile is not None
        assert tile.shared_bytes(sizes.head_dim, 16) <= limit
    assert simt_plan.shared_memory(sizes.head_dim, *simt_plan.tile_shape(sizes.head_dim)) <= 64 << 10


def test_fewer_multiprocessors_change_what_warpgroups_are_given() -> None:
    plans = {
        gpu.num_multiprocessors: plan_warpgroups(
            768, 3072, 256, False, num_multiprocessors=gpu.num_multiprocessors, shared_limit=gpu.shared_bytes
        )
        for gpu in (GPUS["H100 PCIe"], GPUS["H20"])
    }
    assert plans[114] is not None
    assert plans[78] is None  # 96 thread blocks at least
