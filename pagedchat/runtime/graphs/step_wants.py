"""What speaks against a captured step: the conditions that the tables of `which_step` are made of.

Each says why a step cannot or should not serve some facts, in words that go after "since", or nothing if it may.
"""

from collections.abc import Callable
from dataclasses import replace

from pagedchat.ops.all_layers.shape import MAX_LAYERS, why_not
from pagedchat.ops.common.model_sizes import ProductSizes
from pagedchat.ops.products.few_rows_plan import plan_few_rows
from pagedchat.ops.products.many_rows_plan import plan_many_rows
from pagedchat.ops.screening.plan import MAX_TOKENS as MAX_SCREENED_TOKENS
from pagedchat.ops.screening.plan import plan_screen, screen_bytes
from pagedchat.ops.whole_step.plan import MAX_SCREENED, MAX_TOKENS, missing_blocks, missing_code
from pagedchat.runtime.graphs.step_facts import HEAD, DecodeFacts, PrefillFacts
from pagedchat.runtime.graphs.whole_steps import (
    CLUSTERS,
    ONE_LAUNCH,
    layers_plan,
    layers_shape,
    missing_places,
    whole_step_plan,
)

Condition = Callable[[DecodeFacts], str]


def plain_layers(facts: DecodeFacts | PrefillFacts) -> str:
    """Layers of the kind that chains of launches do."""
    return facts.setting.objection


def usual_layers(facts: DecodeFacts) -> str:
    """Layers of the kind that whole steps do."""
    return facts.setting.objection or facts.setting.whole_objection


def tensor_cores(facts: DecodeFacts) -> str:
    """An element type that the GPU multiplies on tensor cores."""
    return facts.setting.missing_tensor_cores


def numbers_of_batch(facts: DecodeFacts | PrefillFacts) -> str:
    """Numbers that may depend on what else is in the batch."""
    return "a reply is to be the same in any company, bit for bit" if facts.setting.batch_invariant else ""


def whole_weights(facts: DecodeFacts) -> str:
    """Weights of the type of the rows."""
    return "its weights have few bits, which products one by one take" if facts.setting.forms else ""


# --- one launch ---------------------------------------------------------------------------------------


def rows_of_one_launch(facts: DecodeFacts) -> str:
    """Few rows."""
    rows = facts.rows
    return f"{rows} rows are more than the {MAX_TOKENS} that one launch has room for" if rows > MAX_TOKENS else ""


def nothing_shared(facts: DecodeFacts) -> str:
    """Rows that each read their own context."""
    return "one launch does not read a shared beginning once for all rows" if facts.shares else ""


def own_sequences(facts: DecodeFacts) -> str:
    """Rows of a sequence each: its kernels read old keys while others write the new ones."""
    return "its rows do not wait for what others of one sequence write" if facts.reads_rows else ""


def bulk_copies(facts: DecodeFacts) -> str:
    """A GPU that has them."""
    gpu = facts.setting.gpu
    return "bulk copies exist from sm_90 on" if gpu is None or gpu.compute_capability < (9, 0) else ""


def places_for_layers(facts: DecodeFacts) -> str:
    """Not too many layers, and all of them alike."""
    return missing_places(facts.setting)


def code_for_sizes(facts: DecodeFacts) -> str:
    """Widths that the kernel knows."""
    return missing_code(facts.setting.shape)


def whole_pieces(facts: DecodeFacts) -> str:
    """Tensors that can be copied 16 bytes at a time."""
    return "" if facts.setting.is_aligned else "some tensor does not start at a multiple of 16 bytes"


def multiprocessors(facts: DecodeFacts) -> str:
    """As many as there are things to do at the same time."""
    gpu = facts.setting.gpu
    return missing_blocks(facts.setting.shape, facts.rows, 0 if gpu is None else gpu.num_multiprocessors)


def room_for_layers(facts: DecodeFacts) -> str:
    """Shared memory for a layer."""
    if whole_step_plan(ONE_LAUNCH, facts) is not None:
        return ""
    return "a thread block has too little shared memory for its part of a layer"


def likeliest_tokens(facts: DecodeFacts) -> str:
    """Nobody who wants logits."""
    return "" if facts.choice == "greedy" else "tokens are drawn from logits, and a screened step makes none"


def rows_of_quantized_head(facts: DecodeFacts) -> str:
    """Fewer still."""
    rows = facts.rows
    return f"the quantized head screens {MAX_SCREENED} rows at most, not {rows}" if rows > MAX_SCREENED else ""


def clusters(facts: DecodeFacts) -> str:
    """One row, a context that is not too long, and layers that fit into clusters."""
    if whole_step_plan(CLUSTERS, facts) is not None:
        return ""
    if facts.rows > 1:
        return "thread blocks in clusters have room for one row"
    short = replace(facts, context_len=1)
    if whole_step_plan(CLUSTERS, short) is None:
        return "the heads and layers do not fit into clusters of thread blocks"
    return f"{facts.context_len:,} tokens of context are more than a cluster attends to in one turn"


def room_for_quantized_head(name: str) -> Condition:
    """Shared memory for the bounds of the vocabulary's rows, in the step `name`."""

    def room(facts: DecodeFacts) -> str:
        if whole_step_plan(name, facts) is not None:
            return ""
        vocab_size = facts.setting.sizes.vocab_size
        return f"a thread block has too little shared memory for its part of {vocab_size:,} bounds"

    return room


def room_at_once(name: str) -> Condition:
    """A GPU that has turned out to have enough neighbours for all clusters of the step `name`, or was not asked."""

    def room(facts: DecodeFacts) -> str:
        return "the GPU has no room for all clusters at the same time" if name in facts.without_room else ""

    return room


# --- one launch for all layers --------------------------------------------------------------------------

_FEWEST_STREAMED, _MOST_STREAMED = 8_000_000, 61_000_000
"""Weights of a layer between which one launch for all layers is faster than a few for each. Fewer need no ring, and
with more the memory is all that counts. All layers of Llama-3.2-1B, with 61 million weights each, take 527 us for
one row of 300 tokens, 558 for two, 619 for four, 651 for eight; by launches 627, 646, 700 and 717, on an H200."""
_MOST_STREAMED_FEW_BITS = 220_000_000
"""The same of one row and weights of few bits. Of 218 million 4 bits are 19 % faster, integers of 8 bits 5 % and
floats of 8 bits 7 %, on an H200."""
_MOST_CONTEXT_OF_FEW_BITS = 1024
"""Tokens: with 8 billion weights of 4 bits 7 % faster at 824 tokens, and 5 % slower at 1,848."""
_MOST_CONTEXT = {2: 1024, 4: 1024, 8: 512}
"""The same of weights of 16 bits, by rows, up to which one launch is faster. Two rows of Llama-3.2-1B take 743 us
instead of 774 at 900 tokens and 793 instead of 786 at 1,900; four 804 and 827, 888 and 852."""


def forms_of_layers(facts: DecodeFacts) -> str:
    """Weights of 16 bits, or those of one row in few bits, alike in all layers and but for one product."""
    setting = facts.setting
    if not setting.forms:
        return ""
    if facts.rows > 1:
        return "one launch for all layers has code for one row where weights have few bits"
    if setting.layers_differ or len({setting.form(name) for name in ("out", "up", "down")}) > 1:
        return "the weights of its layers are of several forms"
    return ""


def whole_contexts(facts: DecodeFacts) -> str:
    """Layers that attend to all of a context."""
    sizes = facts.setting.sizes
    return (
        f"{sizes.num_windowed} of its {sizes.num_layers} layers have a sliding window" if sizes.num_windowed else ""
    )


def layers_worth_streaming(facts: DecodeFacts) -> str:
    """Layers of a size for which it was measured to be faster."""
    count = sum(map(_weights, facts.setting.products))
    if _FEWEST_STREAMED <= count <= _most_streamed(facts):
        return ""
    return f"one launch for all layers is not faster for {count:,} weights of a layer and {facts.rows} rows"


def _most_streamed(facts: DecodeFacts) -> int:
    """Weights of a layer."""
    return _MOST_STREAMED_FEW_BITS if facts.setting.forms else _MOST_STREAMED


def short_contexts(facts: DecodeFacts) -> str:
    """Contexts that few thread blocks attend to in no more time than all would, where little else is left to do."""
    most = _MOST_CONTEXT_OF_FEW_BITS if facts.setting.forms else _MOST_CONTEXT.get(facts.rows, facts.context_len)
    if facts.context_len <= most:
        return ""
    which = (
        "where weights have few bits, attention to" if facts.setting.forms else f"attention of {facts.rows} rows to"
    )
    return f"{which} more than {most:,} tokens is faster in a launch of its own"


def code_for_layers(facts: DecodeFacts) -> str:
    """Gated feed-forwards behind RMS norms, of widths that the kernel knows."""
    sizes = facts.setting.sizes
    if not sizes.gated or sizes.norm != "rms" or sizes.mlp_bias or sizes.out_bias:
        return (
            "one launch for all layers has code for RMS norms, gates, and no biases but those of the first product"
        )
    if sizes.num_layers > MAX_LAYERS:
        return f"it has {sizes.num_layers} layers and one launch has places for {MAX_LAYERS}"
    return why_not(layers_shape(facts.setting))


def room_for_streamed_layers(facts: DecodeFacts) -> str:
    """Thread blocks for what is attended to, and shared memory for a ring."""
    if layers_plan(facts) is not None:
        return ""
    return f"thread blocks of one launch have no room for {facts.rows} rows of {facts.context_len:,} tokens"


# --- chains of launches -------------------------------------------------------------------------------


def few_rows(most: int, most_elsewhere: int) -> Condition:
    """So few rows that no other products are faster; on GPUs without products by warpgroups `most_elsewhere`."""

    def few(facts: DecodeFacts) -> str:
        limit = most_elsewhere if facts.setting.missing_warpgroups else most
        return f"from {limit + 1} rows on other products are faster" if facts.rows > limit else ""

    return few


def fused_products(facts: DecodeFacts) -> str:
    """Products most of which, by their weights, the fused kernels do; the others go by a library."""
    gpu, rows = facts.setting.gpu, facts.rows
    return _most_by_library(
        facts,
        lambda product: (
            plan_few_rows(
                product.in_features,
                product.num_rows,
                rows,
                normed=product.normed,
                gpu=gpu,
                form=facts.setting.form(product.name),
            ).plan
            is None
        ),
        "which no kernel for few rows shares out among its warps",
    )


def _most_by_library(facts: DecodeFacts, by_library: Callable[[ProductSizes], bool], why: str) -> str:
    """Names the products, if they have more than half of a layer's weights."""
    products = facts.setting.products
    left = [product for product in products if by_library(product)]
    if 2 * sum(map(_weights, left)) <= sum(map(_weights, products)):
        return ""
    return f"most of a layer is its product {' and '.join(map(str, left))}, {why}"


def _weights(product: ProductSizes) -> int:
    return product.in_features * product.num_rows


def plain_gates(facts: DecodeFacts) -> str:
    """Gates without biases, where one kernel makes them and multiplies by them."""
    return "its gates have biases" if facts.setting.sizes.biased_gates else ""


def warpgroups(facts: DecodeFacts) -> str:
    """A GPU that multiplies by warpgroups."""
    return facts.setting.missing_warpgroups


def rows_of_warpgroups(most: int) -> Condition:
    """So few rows that a library is not faster."""

    def few(facts: DecodeFacts) -> str:
        return f"from {most + 1} rows on a library is faster" if facts.rows > most else ""

    return few


def warpgroup_products(facts: DecodeFacts) -> str:
    """Half of the products at least by kernels of ours, or of their weights; others go by a library."""
    gpu, rows = facts.setting.gpu, facts.rows
    products = facts.setting.products
    left = [
        product
        for product in products
        if plan_many_rows(
            product.in_features,
            product.out_features,
            rows,
            paired=product.paired,
            gpu=gpu,
            form=facts.setting.form(product.name),
        )
        is None
    ]
    if 2 * len(left) <= len(products) or 2 * sum(map(_weights, left)) <= sum(map(_weights, products)):
        return ""
    return f"a library is faster for {len(left)} of its {len(products)} products, or they are not whole tiles"


# --- heads that are screened --------------------------------------------------------------------------

_LEAST_SCREENED = 36_000_000
"""Elements of a vocabulary from which on reading half of its bytes saves more than two more launches take. One of
50,272 by 768 takes 21 us instead of 25 with one row and 28 instead of 36 with 64, one of 49,152 by 576 as long as
before, on an H200."""
_SCREEN_SHARE = 0.01
"""Of a GPU's memory, that the copy of a vocabulary may take."""


def few_tokens(facts: DecodeFacts) -> str:
    """Nobody who wants more than the highest logits."""
    return "tokens are drawn from all logits" if facts.choice == "drawn" else ""


def plain_head(facts: DecodeFacts) -> str:
    """Logits that are products of rows and vocabulary, all of them here."""
    return "" if facts.setting.sizes.plain_head else "its logits are more than a product of rows and vocabulary"


def whole_head(facts: DecodeFacts) -> str:
    """A head of 16 bits."""
    return "its head has few bits already" if facts.setting.form(HEAD).few else ""


def rows_of_screened_head(facts: DecodeFacts) -> str:
    """Few rows, of a width that the kernels know."""
    gpu, hidden = facts.setting.gpu, facts.setting.sizes.hidden
    if gpu is not None and plan_screen(hidden, facts.rows, gpu.shared_bytes) is not None:
        return ""
    return (
        f"a vocabulary is screened for {MAX_SCREENED_TOKENS} rows at most, and not for {facts.rows} of {hidden:,}"
    )


def head_worth_screening(facts: DecodeFacts) -> str:
    """A vocabulary that takes long to read."""
    sizes = facts.setting.sizes
    count = sizes.vocab_size * sizes.hidden
    return f"a vocabulary of {count:,} elements is read in no time" if count < _LEAST_SCREENED else ""


def room_for_screen(facts: DecodeFacts) -> str:
    """Memory for a copy of half the size."""
    sizes, gpu = facts.setting.sizes, facts.setting.gpu
    size = screen_bytes(sizes.vocab_size, sizes.hidden)
    if gpu is None or size <= gpu.memory_bytes * _SCREEN_SHARE:
        return ""
    return f"a copy of the vocabulary of {size >> 20:,} MiB is more than a hundredth of the GPU's memory"


# --- prompts ------------------------------------------------------------------------------------------


def tables_for_tokens(most_entries: int) -> Callable[[PrefillFacts], str]:
    """Room for a block table of every token, where the kernel that writes keys norms or turns them before."""

    def room(facts: PrefillFacts) -> str:
        entries = facts.num_tokens * facts.num_blocks
        if not facts.setting.sizes.changes_heads or entries <= most_entries:
            return ""
        return f"a block table for every token would have {entries:,} entries, and {most_entries:,} is the most"

    return room
