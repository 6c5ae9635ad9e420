"""What the kernels of a step's products are compiled for, as the plans say. Loads no torch.

They say so for some widths of models. Each width takes what it needs: the variants here stand for all of them in
tests and in `doctor --compile`.
"""

from pagedchat.jit.kernel_file import Choices, KernelFile, Tuning, Use
from pagedchat.ops.common.choices import (
    ACTIVATIONS,
    BLOCK_SIZES,
    ELEMENTS,
    FLAG,
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    HEAD_SIZES,
    HOPPER_ONLY,
    NO_BFLOAT16,
    NO_BULK_COPIES,
    NORMS,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.products.invariant_plan import MAX_PARTS, TILES
from pagedchat.ops.products.small_batch_plan import ProductPlan, plan_head, plan_product
from pagedchat.ops.products.stream_k_plan import plan_stream_k
from pagedchat.ops.products.streamed_plan import MAX_TOKENS, plan_stream
from pagedchat.ops.products.warpgroup_plan import WARPGROUPS, num_stages
from pagedchat.ops.products.wide_plan import num_wide_stages
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

_LINEAR: Choices = {"ACTIVATION": tuple(ACTIVATIONS.values()), "PAIRED": FLAG}
_QKV: Choices = {"HEAD_SIZE": HEAD_SIZES, "BLOCK_SIZE": BLOCK_SIZES, "ROTARY": FLAG}

# --- weights in registers -------------------------------------------------------------------------------

_PRODUCT: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS, "NORM": NORMS, "TOKEN_TILES": (1, 2, 3, 4)}


def _product(in_features: int, plan: ProductPlan | None) -> Tuning:
    assert plan is not None  # noqa: S101 - these widths have one
    return Tuning({"IN_FEATURES": in_features, "NUM_WARPS": plan.num_warps})


def _in_part(tuning: Tuning) -> Tuning:
    """The same where a part of each head is turned."""
    return Tuning({**tuning.constants, "TURNED": 32}, {**tuning.where, "ROTARY": (1,)})


def _beside(tuning: Tuning, number: int) -> Tuning:
    """The same of values that are apart, or of queries and keys beside them."""
    return Tuning({**tuning.constants, "BESIDE": number}, tuning.where)


_PRODUCT_TUNINGS = tuple(
    _product(width, plan_product(width, 1, normed)) for width, normed in ((768, True), (1024, True), (3072, False))
)
_QKV_TUNINGS = (*_PRODUCT_TUNINGS, _in_part(_PRODUCT_TUNINGS[0]))
_HEAD_TUNINGS = tuple(_product(width, plan_head(width, 1, True, H200_SHARED_BYTES)) for width in (768, 1024))

_SMALL_BATCH = (
    KernelFile(
        "small_batch_linear",
        ("small_batch_linear",),
        Use.CAPTURED_STEPS,
        {**_PRODUCT, **_LINEAR},
        _PRODUCT_TUNINGS,
        (NO_BFLOAT16,),
    ),
    KernelFile(
        "qkv_to_cache",
        ("qkv_to_cache",),
        Use.CAPTURED_STEPS,
        {**_PRODUCT, **_QKV},
        _QKV_TUNINGS,
        (NO_BFLOAT16,),
    ),
    KernelFile("next_token", ("logits_argmax",), Use.CAPTURED_STEPS, _PRODUCT, _HEAD_TUNINGS, (NO_BFLOAT16,)),
)

# --- weights that stream --------------------------------------------------------------------------------

_STREAM: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS, "NORM": NORMS}
_MANY_ROWS, _VOCABULARY_ROWS = 49_000, 128_256
"""Of a weight: as many as a ring can have under way, and of one whose ring has less under way."""


def _ring(
    in_features: int,
    form: WeightForm = WHOLE,
    num_tokens: int = 1,
    num_rows: int = _MANY_ROWS,
    **where: tuple[int],
) -> Tuning:
    plan = plan_stream(
        in_features,
        num_rows,
        num_tokens,
        normed=False,
        num_multiprocessors=H200_MULTIPROCESSORS,
        shared_limit=H200_SHARED_BYTES,
        form=form,
    )
    assert plan is not None  # noqa: S101 - these widths have one
    return Tuning({"IN_FEATURES": in_features, **plan.constants}, where)


_LONG_AND_SHORT = (_ring(14336, NORM=(0,)), _ring(896))
"""Rows whose units are made together, and rows of one stage; those of 2,560 have a last stage that is short."""
_FEW_BITS_TUNINGS = (
    _ring(2048, WeightForm("fp8", 128), num_tokens=MAX_TOKENS),
    _ring(4096, WeightForm("int4", 128, has_minimums=True)),
)
"""Input in registers and in shared memory; groups without and with minimums."""
_STREAMED = tuple(
    KernelFile(
        stem,
        (stem,),
        Use.CAPTURED_STEPS,
        {**_STREAM, **of_its_own},
        tunings,
        (NO_BULK_COPIES,),
    )
    for stem, of_its_own, tunings in (
        ("streamed_linear", _LINEAR, (*_LONG_AND_SHORT, _ring(2560), *_FEW_BITS_TUNINGS)),
        (
            "streamed_qkv",
            _QKV,
            (
                *_LONG_AND_SHORT,
                _ring(2560),
                _in_part(_LONG_AND_SHORT[-1]),
                *map(_beside, _FEW_BITS_TUNINGS, (2, 1)),
            ),
        ),
        (
            "streamed_vocabulary",
            {},
            (*_LONG_AND_SHORT, _ring(2560, num_rows=_VOCABULARY_ROWS), *_FEW_BITS_TUNINGS),
        ),
    )
)

# --- products by warpgroups -----------------------------------------------------------------------------


def _division(tokens: int, in_features: int, sums: int, cluster: int, **where: tuple[int]) -> Tuning:
    """With as many stages as there is room for; `sums` is the largest number of weight rows of a thread block."""
    stages = num_stages(in_features, tokens, sums, cluster, H200_SHARED_BYTES)
    assert stages is not None  # noqa: S101 - these sizes have room
    sizes = {"TOKENS": tokens, "IN_FEATURES": in_features, "CLUSTER": cluster}
    return Tuning({**sizes, "WARPGROUPS": WARPGROUPS, "STAGES": stages}, where)


def _with_norm(tuning: Tuning, **part: int) -> Tuning:
    """The same with a part in a norm."""
    return Tuning({**tuning.constants, **part}, tuning.where)


_WARPGROUP = KernelFile(
    "warpgroup_linear",
    ("warpgroup_linear",),
    Use.CAPTURED_STEPS,
    {"ELEMENT": TENSOR_CORE_ELEMENTS, "COLUMNS": (48, 16, 96, 32, 64, 128), **_LINEAR},
    (
        _division(32, 768, 64, 1, COLUMNS=(64,), PAIRED=(0,)),
        _division(64, 768, 96, 1),
        _division(64, 3072, 96, 4),
        _with_norm(_division(64, 896, 96, 1, COLUMNS=(96,)), NORM_DUE=14),
        _with_norm(_division(64, 896, 64, 1, COLUMNS=(32,)), NORM_AHEAD=NORMS[2]),
    ),
    (HOPPER_ONLY,),
)

# --- products of rows that do not depend on others ------------------------------------------------------

_INVARIANT = KernelFile(
    "invariant_linear",
    ("invariant_linear",),
    Use.CAPTURED_STEPS,
    {"ELEMENT": TENSOR_CORE_ELEMENTS, "PARTS": (1, 2, 4, 6, 7, MAX_PARTS)},
    tuple(Tuning(tile.constants) for tile in TILES),
    (NO_BFLOAT16,),
)
"""Of eager steps too, where they are asked for; loading has them built then."""


def _stream_k(in_features: int, num_tokens: int) -> Tuning:
    sizes = (in_features, _MANY_ROWS, num_tokens, False, H200_MULTIPROCESSORS, H200_SHARED_BYTES)
    plan = plan_stream_k(*sizes)
    assert plan is not None  # noqa: S101 - these sizes have one
    return Tuning({"IN_FEATURES": in_features, **plan.constants})


_STREAM_K = KernelFile(
    "stream_k_linear",
    ("stream_k_linear",),
    Use.CAPTURED_STEPS,
    {"ELEMENT": TENSOR_CORE_ELEMENTS, **_LINEAR},
    tuple(_stream_k(4096, num_tokens) for num_tokens in (16, 48, 64)),
    (HOPPER_ONLY,),
)


def _wide(tokens: int, sums: int, **others: int) -> Tuning:
    stages = num_wide_stages(tokens, sums, H200_SHARED_BYTES)
    return Tuning({"TOKENS": tokens, "SUMS": sums, "STAGES": stages, **others})


_WIDE = KernelFile(
    "wide_gates",
    ("wide_gates",),
    Use.CAPTURED_STEPS,
    {"ELEMENT": TENSOR_CORE_ELEMENTS, "ACTIVATION": tuple(ACTIVATIONS.values())},
    (_wide(128, 192, SHARED=1, TURNS=1), _wide(256, 128, SHARED=2, TURNS=0), _wide(128, 64, SHARED=2, TURNS=1)),
    (HOPPER_ONLY,),
)

KERNELS = (
    *_SMALL_BATCH,
    *_STREAMED,
    _WARPGROUP,
    _STREAM_K,
    _WIDE,
    _INVARIANT,
    KernelFile(
        "add_norm",
        ("add_norm",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": ELEMENTS, "NORM": NORMS},
        (Tuning({}), *(Tuning({"UPDATE_NORM": kind}) for kind in NORMS[1:])),
    ),
    KernelFile("embed_tokens", ("embed_tokens",), Use.CAPTURED_STEPS, {"ELEMENT": ELEMENTS}),
    KernelFile("activate", ("activate_rows",), Use.CAPTURED_STEPS, {"ELEMENT": ELEMENTS, **_LINEAR}),
    KernelFile("finish_logits", ("finish_logits",), Use.CAPTURED_STEPS, {"ELEMENT": ELEMENTS, "CAPPED": FLAG}),
)
