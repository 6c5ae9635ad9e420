"""What `ops.quantized.multiply` launches: it is asked of the ops' plans. Runs nothing."""

from collections.abc import Iterator

from pagedchat.doctor.step_work import HEAD, Fallback, Launch, Work
from pagedchat.ops.common.model_sizes import ModelSizes, ProductSizes
from pagedchat.ops.quantized.few_bits_plan import (
    FIRST_GPU,
    MAX_TOKENS,
    most_rows,
    objection_to_form,
    plan_few_bits,
)
from pagedchat.ops.quantized.weight_form import WeightForm
from pagedchat.runtime.graphs.step_facts import HEAD as HEAD_NAME
from pagedchat.runtime.graphs.step_facts import Setting


def multiplied(setting: Setting, product: ProductSizes, rows: int, why: str) -> Iterator[Work]:
    """A library takes whole weights, kernels those of few bits.

    Args:
        setting: of the step.
        product: its sizes.
        rows: that are multiplied.
        why: a library has a whole weight.
    """
    form = form_of(setting, product)
    if form.few:
        yield from _few_bits(setting, product, form, rows)
    else:
        yield Fallback(product.name, "cuBLAS", why)


def form_of(setting: Setting, product: ProductSizes) -> WeightForm:
    """Of its weight."""
    return setting.form(HEAD_NAME if product.name == HEAD else product.name)


def head_of(sizes: ModelSizes) -> ProductSizes:
    """The product with the vocabulary."""
    return ProductSizes(HEAD, sizes.narrow or sizes.hidden, sizes.vocab_size)


def of_heads_and_others(setting: Setting) -> tuple[tuple[ProductSizes, ...], tuple[ProductSizes, ...]]:
    """Products of a layer: the one or two that make queries, keys and values, and the others."""
    count = 1 if setting.values_form is None else 2
    return setting.products[:count], setting.products[count:]


def _few_bits(setting: Setting, product: ProductSizes, form: WeightForm, rows: int) -> Iterator[Work]:
    gpu, sizes = setting.gpu, (product.in_features, product.num_rows)
    if gpu is None or gpu.compute_capability < FIRST_GPU or objection_to_form(form, product.in_features):
        yield Fallback(product.name, "torch", f"no kernel takes {form} of {product.in_features:,}")
        return
    if rows > most_rows(*sizes, gpu.num_multiprocessors):
        yield Launch(product.name, "dequantize")
        yield Fallback(product.name, "cuBLAS", "a weight that becomes 16 bits once is faster with so many rows")
        return
    plan = plan_few_bits(
        form.kind,
        *sizes,
        min(rows, MAX_TOKENS),
        gpu.num_multiprocessors,
        gpu.shared_bytes,
        warpgroups=not setting.missing_warpgroups,
    )
    if plan is not None:
        yield Launch(product.name, "few_bits_warpgroups" if plan.warpgroups else "few_bits_linear", plan.constants)
