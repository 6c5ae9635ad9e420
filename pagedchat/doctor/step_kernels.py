"""What a captured step launches, kernel by kernel, and what of it a library does: asked of the ops' plans, not run.

Knows in which order each step does its work; which step it is says `runtime.graphs.which_step`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pagedchat.doctor.products import form_of, head_of, multiplied, of_heads_and_others
from pagedchat.doctor.step_work import HEAD, Fallback, Launch, Work
from pagedchat.jit.variant import Constant
from pagedchat.ops.attention import prefill_plan, wgmma_plan
from pagedchat.ops.attention.prefill import MIN_WGMMA_ROWS
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.choices import H200_SHARED_BYTES
from pagedchat.ops.common.model_sizes import ModelSizes, ProductSizes
from pagedchat.ops.experts.expert_plan import MOST_FEW_PAIRS, plan_experts, plan_few_bits_experts
from pagedchat.ops.products.few_rows_plan import plan_few_rows, plan_few_rows_head
from pagedchat.ops.products.invariant_plan import InvariantPlan, plan_invariant
from pagedchat.ops.products.library_linear import in_epilogue
from pagedchat.ops.products.many_rows_plan import MOST_OF_FEW_BITS, plan_many_rows
from pagedchat.ops.products.small_batch_launch import STREAMED
from pagedchat.ops.products.small_batch_plan import PIECE
from pagedchat.ops.products.stream_k_plan import StreamKPlan
from pagedchat.ops.products.streamed_plan import StreamPlan
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan
from pagedchat.ops.products.wide_plan import WidePlan
from pagedchat.ops.quantized.weight_form import WHOLE
from pagedchat.ops.screening.plan import plan_screen
from pagedchat.runtime.graphs.step_facts import EXPERTS, DecodeFacts, PrefillFacts, Setting
from pagedchat.runtime.graphs.which_step import (
    FUSED,
    LAYERS,
    LIBRARY,
    MERGED,
    SCREENED_HEAD,
    WARPGROUPS,
    is_screened,
    rows_of_last_layer,
    which_head,
)
from pagedchat.runtime.graphs.whole_steps import WHOLE_STEPS, layers_plan, whole_step_plan

_LONG_PROMPTS = "prompts are long enough for it"
_HEAD_ALONE = "the head, as large as all layers of a small model, is left to it"
_PRODUCTS = "products"
_MANY_ROWS = {
    WarpgroupPlan: "warpgroup_linear",
    ClusterPlan: "cluster_linear",
    StreamKPlan: "stream_k_linear",
    WidePlan: "wide_gates",
}


def decode_work(name: str, facts: DecodeFacts, refused: tuple[tuple[str, str], ...]) -> list[Work]:
    """What the decode step `name` is made of, in its order; each layer repeats its parts.

    Args:
        name: of the step.
        facts: what it was chosen by.
        refused: the quicker steps, each with what speaks against it.
    """
    if facts.setting.batch_invariant:
        work = [*_same_in_any_company(facts.setting, facts.rows, facts.rows), Launch("next token", "decode_state")]
    elif name in WHOLE_STEPS:
        work = list(_whole_step(name, facts))
    elif name == LAYERS:
        work = list(_streamed_layers(facts))
    elif name == FUSED:
        work = list(_fused_chain(facts))
    elif name == WARPGROUPS:
        work = list(_warpgroup_products(facts))
    else:
        why = refused[-1][1]
        work = list(_library_products(facts, why) if name == LIBRARY else _modules_decode(facts, why))
    if facts.choice == "drawn" or (facts.choice == "shortlist" and not is_screened(name, facts)):
        work.append(Launch("drawing", "sample"))
    return list(_over_bytes(facts.setting.sizes, work)) if facts.setting.cache_kind else work


def prefill_work(name: str, facts: PrefillFacts, refused: tuple[tuple[str, str], ...]) -> list[Work]:
    """The same for the pass `name` over a prompt."""
    work = _prefill_work(name, facts, refused)
    return list(_over_bytes(facts.setting.sizes, work)) if facts.setting.cache_kind else work


def _prefill_work(name: str, facts: PrefillFacts, refused: tuple[tuple[str, str], ...]) -> list[Work]:
    setting, num_tokens = facts.setting, facts.num_tokens
    if setting.batch_invariant:
        parts = [*_same_in_any_company(setting, num_tokens, 1)]
        parts += _last_layer(setting, parts, _same_in_any_company(setting, 1, 1))
        return [*parts, Launch("next token", "decode_state")]
    attention = _prefill_attention(setting, min(num_tokens, facts.num_blocks * setting.block_size))
    if name != MERGED:
        why = refused[-1][1]
        parts = [*_modules(setting, num_tokens, 1, why), Launch("cache", "reshape_and_cache"), attention]
        parts += _last_layer(setting, parts, _modules(setting, 1, 1, why))
    else:
        parts = [*_merged_products(setting, num_tokens), *_written_chunks(setting.sizes), attention]
        if (rows := rows_of_last_layer(num_tokens, 1)) < num_tokens:
            by_warpgroups = _is_by_warpgroups(setting, num_tokens)
            parts += _last_layer(setting, parts, _merged_layer(setting, rows, by_warpgroups=by_warpgroups))
        parts += [*multiplied(setting, head_of(setting.sizes), 1, _LONG_PROMPTS), *_finish(setting.sizes)]
    return [*parts, Launch("next token", "decode_state")]


def _over_bytes(sizes: ModelSizes, works: list[Work]) -> Iterator[Work]:
    """The same where the cache is of one byte an element, which others write."""
    writers = {"reshape_and_cache": "rows_to_bytes", "heads_to_cache": "heads_to_bytes"}
    if sizes.normed_together:
        writers["heads_to_cache"] = "rows_to_bytes"
    for work in works:
        if isinstance(work, Fallback):
            yield work
            continue
        if work.kernel == "heads_to_cache" and sizes.normed_together:
            yield Fallback("norms and turns of heads", "torch", "a norm goes over all heads of a token")
            yield Launch("slots", "decode_state")
        yield replace(work, kernel=writers.get(work.kernel, work.kernel))


def _last_layer(setting: Setting, before: list[Work], works: Iterable[Work]) -> Iterator[Work]:
    """What the one row that is read takes behind that layer's attention, where it is not among what there is."""
    heads, _ = of_heads_and_others(setting)
    others = {product.name for product in heads} | {HEAD}
    for work in works:
        if work not in before and work.part not in others:
            yield replace(work, part=f"last layer's {work.part}")


def _is_by_warpgroups(setting: Setting, num_tokens: int) -> bool:
    are_too_many = bool(setting.forms) and num_tokens > MOST_OF_FEW_BITS
    return not (setting.missing_warpgroups or setting.sizes.mlp_bias or are_too_many)


def _merged_products(setting: Setting, num_tokens: int) -> Iterator[Work]:
    """Of a prompt, with what is before and between them; without biases they are added to the residual stream."""
    by_warpgroups = _is_by_warpgroups(setting, num_tokens)
    if by_warpgroups:
        yield from (Launch("embedding", "embed_tokens"), Launch("norms", "add_norm"))
    else:
        yield from _norms_between(setting.sizes)
    yield from _merged_layer(setting, num_tokens, by_warpgroups=by_warpgroups)


def _merged_layer(setting: Setting, rows: int, *, by_warpgroups: bool) -> Iterator[Work]:
    if not by_warpgroups:
        yield from _all_products(setting, rows, _LONG_PROMPTS)
    for product in setting.products if by_warpgroups else ():
        yield from _warpgroup_product(setting, product, rows)
    yield from _experts(setting, rows)


def _written_chunks(sizes: ModelSizes) -> list[Work]:
    changed, as_they_are = Launch("cache", "heads_to_cache"), Launch("cache", "reshape_and_cache")
    if not sizes.changes_heads:
        return [as_they_are]
    return [changed] if sizes.normed_heads or sizes.all_turn else [changed, as_they_are]


# --- decodes ------------------------------------------------------------------------------------------


def _whole_step(name: str, facts: DecodeFacts) -> Iterator[Work]:
    plan = whole_step_plan(name, facts)
    if plan is not None:
        constants: dict[str, Constant] = {
            "CLUSTER": plan.cluster,
            "NUM_BLOCKS": plan.num_thread_blocks,
            "NUM_WARPS": plan.num_warps,
            "SPLITS": plan.num_splits,
            "SCREENED": int(plan.screened_tiles > 0),
        }
        if plan.seats > 1:
            constants["SEATS"] = plan.seats
        yield Launch("the whole step", "persistent_decode", constants)


def _streamed_layers(facts: DecodeFacts) -> Iterator[Work]:
    plan = layers_plan(facts)
    constants = {} if plan is None else plan.constants
    yield from (Launch("embedding", "embed_tokens"), Launch("all layers", "streamed_layers", constants))
    yield from _end(facts, _few_rows_head(facts.setting, facts.rows))


def _fused_chain(facts: DecodeFacts) -> Iterator[Work]:
    setting, rows, sizes = facts.setting, facts.rows, facts.setting.sizes
    heads, others = of_heads_and_others(setting)
    yield Launch("embedding", "embed_tokens")
    if not sizes.adds_products:
        yield Launch("norms", "add_norm")
    if sizes.heads_apart or not sizes.adds_products or setting.cache_kind:
        for product in heads:
            works = _few_rows_product(setting, product, rows, "small_batch_linear")
            yield from (work for work in works if work.part != "cache")
        yield from _written_and_read(setting)
    elif sizes.rotary and sizes.head_dim % 16:
        yield Launch("norms", "add_norm")
        for product in heads:
            yield from multiplied(setting, product, rows, "the kernel turns heads by 16 elements at a time")
        yield from (Launch("cache", "heads_to_cache"), _decode_attention(setting))
    else:
        for product in heads:
            yield from _few_rows_product(setting, product, rows, "qkv_to_cache")
        yield _decode_attention(setting)
    for product in others:
        yield from _few_rows_product(setting, product, rows, "small_batch_linear")
    if sizes.mixture is not None:
        yield from (Launch("norms", "add_norm"), *_experts(setting, rows))
    yield from _end(facts, _few_rows_head(setting, rows))


def _few_rows_product(setting: Setting, product: ProductSizes, rows: int, stem: str) -> Iterator[Work]:
    sizes = product.in_features, product.num_rows
    form = form_of(setting, product)
    found = plan_few_rows(*sizes, rows, normed=product.normed, gpu=setting.gpu, form=form)
    if found.norm_apart:
        yield Launch("norms", "add_norm")
    if found.plan is not None:
        streams = isinstance(found.plan, StreamPlan)
        yield Launch(product.name, STREAMED[stem] if streams else stem, found.plan.constants)
        return
    yield from multiplied(setting, product, rows, _no_kernel(product.in_features))
    if product.name == "qkv":
        yield Launch("cache", "heads_to_cache")
    elif product.name == "up" and setting.sizes.activation != "none":
        yield Launch("gates" if product.paired else "activation", "activate")


def _no_kernel(in_features: int) -> str:
    return f"no number of warps shares out its rows of {in_features:,}"


def _end(facts: DecodeFacts, with_logits: Iterable[Work]) -> Iterator[Work]:
    """Of a chain: from its last rows to the next tokens, where nothing speaks against it without logits."""
    if which_head(facts).name != SCREENED_HEAD:
        yield from with_logits
        return
    gpu = facts.setting.gpu
    plan = None if gpu is None else plan_screen(facts.setting.sizes.hidden, facts.rows, gpu.shared_bytes)
    yield Launch("digits of rows", "screen_rows")
    yield Launch(HEAD, "screen_vocabulary", {} if plan is None else plan.constants)
    if facts.choice == "greedy":
        yield Launch("next token", "choose_screened")
        return
    yield Launch("few tokens", "list_screened")
    yield Launch("drawing", "sample_listed")


def _few_rows_head(setting: Setting, rows: int) -> Iterator[Work]:
    sizes = setting.sizes
    if not sizes.plain_head:
        yield from _finished_logits(setting, rows)
        return
    normed = sizes.adds_products and sizes.final_norm
    form = form_of(setting, head_of(sizes))
    found = plan_few_rows_head(sizes.hidden, sizes.vocab_size, rows, normed=normed, gpu=setting.gpu, form=form)
    if found.norm_apart:
        yield Launch("norms", "add_norm")
    if found.plan is not None:
        streams = isinstance(found.plan, StreamPlan)
        yield Launch(HEAD, "streamed_vocabulary" if streams else "next_token", found.plan.constants)
    else:
        yield from multiplied(setting, head_of(sizes), rows, _no_kernel(sizes.hidden))
        yield Launch("next token", "decode_state")


def _finished_logits(setting: Setting, rows: int) -> Iterator[Work]:
    """The head as a product like others, and what follows it."""
    sizes = setting.sizes
    if sizes.adds_products and sizes.final_norm:
        yield Launch("norms", "add_norm")
    yield from _few_rows_product(setting, head_of(sizes), rows, "small_batch_linear")
    if sizes.narrow is not None:
        inner = ProductSizes("narrower rows", sizes.hidden, sizes.narrow)
        yield from _few_rows_product(setting, inner, rows, "small_batch_linear")
    yield from _finish(sizes)
    yield Launch("next token", "decode_state")


def _finish(sizes: ModelSizes) -> list[Work]:
    return [Launch("logits", "finish_logits")] if sizes.finishes_logits else []


def _warpgroup_products(facts: DecodeFacts) -> Iterator[Work]:
    setting, rows = facts.setting, facts.rows
    heads, others = of_heads_and_others(setting)
    yield from (Launch("embedding", "embed_tokens"), Launch("norms", "add_norm"))
    for product in heads:
        yield from _warpgroup_product(setting, product, rows)
    yield from _written_and_read(setting)
    for product in others:
        yield from _warpgroup_product(setting, product, rows)
    yield from _experts(setting, rows)
    head = _warpgroup_product(setting, head_of(setting.sizes), rows)
    yield from _end(facts, (*head, *_finish(setting.sizes), Launch("next token", "decode_state")))


def _warpgroup_product(setting: Setting, product: ProductSizes, rows: int) -> Iterator[Work]:
    sizes = product.in_features, product.out_features, rows
    plan = plan_many_rows(*sizes, paired=product.paired, gpu=setting.gpu, form=form_of(setting, product))
    if plan is not None:
        yield Launch(product.name, _MANY_ROWS[type(plan)], plan.constants)
        return
    yield from multiplied(setting, product, rows, "a library is faster with so many rows, or it is not whole tiles")
    if product.name == "up":
        yield Launch("gates" if product.paired else "activation", "activate")


def _library_products(facts: DecodeFacts, why: str) -> Iterator[Work]:
    sizes = facts.setting.sizes
    yield from _norms_between(sizes)
    yield from _written_and_read(facts.setting)
    yield from _all_products(facts.setting, facts.rows, why)
    yield from _experts(facts.setting, facts.rows)
    head = multiplied(facts.setting, head_of(sizes), facts.rows, why)
    yield from _end(facts, (*head, *_finish(sizes), Launch("next token", "decode_state")))


def _modules_decode(facts: DecodeFacts, why: str) -> Iterator[Work]:
    yield from _modules(facts.setting, facts.rows, facts.rows, why)
    yield from (Launch("slots", "decode_state"), Launch("cache", "reshape_and_cache"))
    yield from (_decode_attention(facts.setting), Launch("next token", "decode_state"))


# --- what several steps have --------------------------------------------------------------------------


def _modules(setting: Setting, rows: int, read: int, why: str) -> list[Work]:
    """Of so many rows, of which so many are read in the end."""
    turns = "norms, turns, activations" if setting.sizes.rotary else "norms, activations"
    return [
        Fallback(turns, "torch", why),
        *_all_products(setting, rows, why),
        *multiplied(setting, head_of(setting.sizes), read, why),
        *_experts(setting, rows),
    ]


def _all_products(setting: Setting, rows: int, why: str) -> Iterator[Work]:
    """Of layers: a library takes whole weights all alike."""
    if setting.forms:
        for product in setting.products:
            yield from multiplied(setting, product, rows, why)
    else:
        yield Fallback(_PRODUCTS, "cuBLAS", why)


def _same_in_any_company(setting: Setting, rows: int, read: int) -> Iterator[Work]:
    """Of decodes and of prompts, of whose rows so many are read in the end: what the modules launch where no row
    may depend on others."""
    sizes, gpu = setting.sizes, setting.gpu
    multiprocessors, limit = (0, 0) if gpu is None else (gpu.num_multiprocessors, gpu.shared_bytes)
    if sizes.norm_weights:
        yield Launch("norms", "add_norm")
    else:
        yield Fallback("norms", "torch", "they have no weights, and it does each row by itself")
    if sizes.mixture is not None:
        yield from _experts(setting, rows)
    elif sizes.gated and sizes.activation == "silu":
        yield Launch("gates", "activate")
    else:
        yield Fallback("gates" if sizes.gated else "activation", "torch", "it does each element by itself")
    bounded = sizes.normed_heads and sizes.qkv_clip is not None
    yield from [Launch("cache", "reshape_and_cache")] if bounded else _written_chunks(sizes)
    tile = prefill_plan.choose_invariant_tile(sizes.head_dim, setting.block_size, limit)
    constants = {} if tile is None else {"TILE_KEYS": tile.keys, "PART_KEYS": prefill_plan.PART_KEYS}
    yield Launch("attention", "prefill_mma", _heads(sizes) | constants)
    products = [*((each, rows) for each in sizes.products), (head_of(sizes), read)]
    if sizes.narrow is not None:
        products.append((ProductSizes("narrower rows", sizes.hidden, sizes.narrow), read))
    for product, its_rows in products:
        plan = plan_invariant(product.in_features, product.num_rows, its_rows, multiprocessors, limit)
        yield Launch(product.name, "invariant_linear", _tile(plan))


def _tile(plan: InvariantPlan) -> dict[str, int]:
    return {"PARTS": plan.parts, "WEIGHT_ROWS": plan.tile.weight_rows, "INPUT_ROWS": plan.tile.input_rows}


def _experts(setting: Setting, rows: int) -> Iterator[Work]:
    sizes, mixture, gpu = setting.sizes, setting.sizes.mixture, setting.gpu
    if mixture is None:
        return
    few_bits = setting.forms.get(EXPERTS, WHOLE).few
    plan = (
        plan_few_bits_experts(rows * mixture.per_token, mixture.num_experts)
        if few_bits
        else plan_experts(
            sizes.hidden,
            mixture.width,
            rows * mixture.per_token,
            mixture.num_experts,
            tensor_cores=not setting.missing_tensor_cores,
            shared_limit=H200_SHARED_BYTES if gpu is None else gpu.shared_bytes,
            warpgroups=not setting.missing_warpgroups,
            batch_invariant=setting.batch_invariant,
        )
    )
    if rows * mixture.per_token <= MOST_FEW_PAIRS:
        yield Launch("routes", "route_few")
    else:
        yield from (Launch("routes", "route_tokens"), Launch("pairs", "group_pairs"))
    if plan.way == "few bits":
        yield Launch("experts", "expert_few_bits", {"TOKENS": plan.tile_rows})
    elif plan.way == "registers":
        yield Launch("experts", "expert_linear", {"TOKEN_TILES": plan.tile_rows // PIECE})
    elif plan.way == "tiles":
        yield Launch("experts", "expert_tiles", {"TILE_ROWS": plan.tile_rows})
    elif plan.way == "warpgroups":
        yield Launch("experts", "expert_warpgroups")
    else:
        yield Launch("experts", "expert_simt")
    yield Launch("their sums", "sum_experts")


def _norms_between(sizes: ModelSizes) -> list[Work]:
    parts: list[Work] = [Launch("embedding", "embed_tokens"), Launch("norms", "add_norm")]
    if sizes.mixture is not None:
        return parts
    behind_bias = sizes.mlp_bias and in_epilogue(sizes.activation, on_gpu=True)
    if not sizes.gated and (behind_bias or sizes.activation == "relu"):
        return parts
    return [*parts, Launch("gates" if sizes.gated else "activation", "activate")]


def _written_and_read(setting: Setting) -> Iterator[Work]:
    attention = _decode_attention(setting)
    if (
        setting.sizes.changes_heads or attention.kernel != "decode_split"
    ):  # else that kernel writes keys and values itself
        yield Launch("cache", "heads_to_cache")
    yield attention


def _decode_attention(setting: Setting) -> Launch:
    kernel = "decode_simt" if setting.missing_tensor_cores else "decode_split"
    return Launch("attention", kernel, _heads(setting.sizes))


def _prefill_attention(setting: Setting, longest: int) -> Launch:
    """The kernel that `ops.attention.prefill` takes for chunks of so many tokens."""
    sizes, gpu = setting.sizes, setting.gpu
    group_size, limit = sizes.num_heads // sizes.num_kv_heads, 0 if gpu is None else gpu.shared_bytes
    if not setting.missing_warpgroups and not setting.cache_kind and longest * group_size >= MIN_WGMMA_ROWS:
        finishes_scores = sizes.score_cap is not None or sizes.sloped
        tile = wgmma_plan.choose_tile(
            sizes.head_dim,
            finishes_scores=finishes_scores,
            num_rows=longest * group_size,
            num_kv_heads=sizes.num_kv_heads,
            num_multiprocessors=0 if gpu is None else gpu.num_multiprocessors,
        )
        return Launch("attention", "prefill_wgmma", {**_heads(sizes), **tile.constants})
    fitting = prefill_plan.choose_tile(sizes.head_dim, setting.block_size, longest * group_size, limit)
    if setting.missing_tensor_cores or fitting is None:
        return Launch("attention", "prefill_simt", _heads(sizes))
    constants = {"WARP_ROWS": fitting.warp_rows, "TILE_KEYS": fitting.keys, "STAGES": fitting.stages}
    return Launch("attention", "prefill_mma", _heads(sizes) | constants)


def _heads(sizes: ModelSizes) -> dict[str, int]:
    return {"HEAD_SIZE": sizes.head_dim, "GROUP_SIZE": sizes.num_heads // sizes.num_kv_heads}
