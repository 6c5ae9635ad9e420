"""Which kernel makes a product of a decode step of a few rows, one product at a time. Arithmetic only.

The ops launch what this says, and `pagedchat doctor` says it of models that are not loaded.
"""

from dataclasses import dataclass

from pagedchat.jit.driver import Gpu
from pagedchat.ops.products.small_batch_plan import TILE_ROWS, ProductPlan, plan_head, plan_product
from pagedchat.ops.products.streamed_plan import UNIT, StreamPlan, plan_stream
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

LEAST_SIDE = 1536
"""Of a weight that streams; what has shorter or fewer rows is as quick in registers, where kernels start sooner."""
LEAST_SIDE_OF_LARGE, LARGE_BYTES = 896, 48 << 20
"""But a weight of so many bytes, as those of vocabularies, streams from this side on."""
_BULK_COPIES = (9, 0)
"""Compute capability of the first GPU that has them."""


@dataclass(frozen=True, slots=True)
class FewRowsPlan:
    """One product."""

    plan: StreamPlan | ProductPlan | None
    """Of weights that stream, or of weights in registers; None: a library multiplies."""
    norm_apart: bool = False
    """Whether its norm is a launch of its own."""


def plan_few_rows(
    in_features: int, num_rows: int, num_tokens: int, *, normed: bool, gpu: Gpu | None, form: WeightForm = WHOLE
) -> FewRowsPlan:
    """The quickest way that there is; weights of few bits stream or are made whole for a library.

    A norm goes along where the input stays in registers; in front of a longer one it is a launch of its own.

    Args:
        in_features: the inner dimension.
        num_rows: of the weight: with gates twice the outputs.
        num_tokens: of the launch.
        normed: whether the input is normed first.
        gpu: None is a GPU of which nothing is known.
        form: of the weight.
    """
    plan = _plan(in_features, num_rows, num_tokens, normed, gpu, form)
    if plan is not None or not normed:
        return FewRowsPlan(plan)
    alone = _streamed(in_features, num_rows, num_tokens, False, gpu, form) if num_rows % UNIT == 0 else None
    return FewRowsPlan(alone, norm_apart=True)


def plan_few_rows_head(
    in_features: int, vocab_size: int, num_tokens: int, *, normed: bool, gpu: Gpu | None, form: WeightForm = WHOLE
) -> FewRowsPlan:
    """The same for the product with the vocabulary, whose rows need not be whole units."""
    plan = _plan_head(in_features, vocab_size, num_tokens, normed, gpu, form)
    if plan is not None or not normed:
        return FewRowsPlan(plan)
    return FewRowsPlan(_streamed(in_features, vocab_size, num_tokens, False, gpu, form), norm_apart=True)


def _plan(
    in_features: int, num_rows: int, num_tokens: int, normed: bool, gpu: Gpu | None, form: WeightForm
) -> StreamPlan | ProductPlan | None:
    streamed = _streamed(in_features, num_rows, num_tokens, normed, gpu, form) if num_rows % UNIT == 0 else None
    if form.few:
        return streamed
    in_registers = plan_product(in_features, num_tokens, normed) if num_rows % TILE_ROWS == 0 else None
    return _quicker(in_features, num_rows, streamed, in_registers)


def _plan_head(
    in_features: int, vocab_size: int, num_tokens: int, normed: bool, gpu: Gpu | None, form: WeightForm
) -> StreamPlan | ProductPlan | None:
    streamed = _streamed(in_features, vocab_size, num_tokens, normed, gpu, form) if vocab_size >= UNIT else None
    if form.few:
        return streamed
    in_registers = plan_head(in_features, num_tokens, normed, 0 if gpu is None else gpu.shared_bytes)
    return _quicker(in_features, vocab_size, streamed, in_registers)


def _quicker(
    in_features: int, num_rows: int, streamed: StreamPlan | None, in_registers: ProductPlan | None
) -> StreamPlan | ProductPlan | None:
    side = min(in_features, num_rows)
    is_large = side >= LEAST_SIDE or (side >= LEAST_SIDE_OF_LARGE and 2 * in_features * num_rows >= LARGE_BYTES)
    return streamed if streamed is not None and (is_large or in_registers is None) else in_registers


def _streamed(
    in_features: int, num_rows: int, num_tokens: int, normed: bool, gpu: Gpu | None, form: WeightForm
) -> StreamPlan | None:
    if gpu is None or gpu.compute_capability < _BULK_COPIES:
        return None
    return plan_stream(
        in_features,
        num_rows,
        num_tokens,
        normed=normed,
        num_multiprocessors=gpu.num_multiprocessors,
        shared_limit=gpu.shared_bytes,
        form=form,
    )
