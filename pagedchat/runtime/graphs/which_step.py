"""Which captured step serves which batch of which model on which GPU: an ordered table for decodes, one for
prompts.

The first step that nothing speaks against is taken, and nobody else chooses. All of it is arithmetic on sizes, so
that `pagedchat doctor` can ask for a model that is not loaded. Figures are microseconds on one NVIDIA H200 for the
shape of opt-125m; kernels/DECODE_STEPS.md has all of them, for other shapes too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pagedchat.runtime.graphs import step_wants as wants
from pagedchat.runtime.graphs.step_facts import DecodeFacts, PrefillFacts
from pagedchat.runtime.graphs.whole_steps import CLUSTERS, CLUSTERS_SCREENED, ONE_LAUNCH, SCREENED

MAX_STREAMED = 8
"""Rows up to which one launch for all layers is faster than the chain of fused kernels, where it is at all."""
MAX_FUSED = 8
"""Rows up to which the chain of fused kernels is faster than one with products by warpgroups, or by cuBLAS."""
MAX_FUSED_ELSEWHERE = 16
"""The same on a GPU without warpgroup products."""
MAX_WARPGROUPED = 256
"""Rows up to which products by warpgroups are faster than those of cuBLAS."""
MANY_TOKENS = 256
"""Of a pass over prompts: up to so many, a layer takes little longer than to read its weights."""
MOST_TABLE_ENTRIES = 1 << 24
"""Of a block table for every token, which the kernel that norms and turns the heads of prompts wants."""

LAYERS = "all layers in one launch"
FUSED, WARPGROUPS, LIBRARY = "fused chain", "warpgroup products", "library products"
MERGED, MODULES = "merged launches", "modules"
CHAINS = (LAYERS, FUSED, WARPGROUPS, LIBRARY)
"""Names of steps for decodes that end as `HEADS` says."""
SCREENED_HEAD, ALL_LOGITS = "screened head", "all logits"

Facts = TypeVar("Facts", DecodeFacts, PrefillFacts)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Facts]):
    """A line of a table."""

    name: str
    """Of the step."""
    wants: tuple[Callable[[Facts], str], ...]
    """Asked in this order; each says what speaks against the step, see `step_wants`."""
    reason: str
    """Why it comes before those below it: what was measured."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a table says."""

    name: str
    """Of the step."""
    reason: str
    """Of its rule."""
    refused: tuple[tuple[str, str], ...]
    """The steps above it, each with what speaks against it."""


_WHOLE = (
    wants.numbers_of_batch, wants.whole_weights, wants.usual_layers, wants.tensor_cores,
    wants.rows_of_one_launch, wants.nothing_shared, wants.own_sequences,
    wants.bulk_copies, wants.plain_gates, wants.places_for_layers, wants.code_for_sizes, wants.multiprocessors,
    wants.whole_pieces,
)  # fmt: skip
"""What every step of one launch wants."""
_NOT_TRUSTED = "it gave other results than the model when it was tried out"
# NOTE: on this road eager steps, decodes and prompts do the same operations, one by one. What is to be the same in
# any batch goes by it alone.
_CAPTURED = "any model runs through its own modules, captured in one graph"

DECODES: tuple[Rule[DecodeFacts], ...] = (
    Rule(
        CLUSTERS_SCREENED,
        (*_WHOLE, wants.likeliest_tokens, wants.rows_of_quantized_head, wants.clusters,
         wants.room_for_quantized_head(CLUSTERS_SCREENED), wants.room_at_once(CLUSTERS_SCREENED)),
        "one chat takes 100 us a step at 10 tokens and 105 at 544, with all logits 107 and 113",
    ),
    Rule(
        SCREENED,
        (*_WHOLE, wants.likeliest_tokens, wants.rows_of_quantized_head, wants.room_for_layers,
         wants.room_for_quantized_head(SCREENED)),
        "the quantized head has half of the vocabulary's bytes, and reading those takes 9 us less",
    ),
    Rule(
        CLUSTERS,
        (*_WHOLE, wants.clusters, wants.room_at_once(CLUSTERS)),
        "one chat takes 107 us a step at 10 tokens and 113 at 544, without clusters 109 and 130",
    ),
    Rule(
        ONE_LAUNCH,
        (*_WHOLE, wants.room_for_layers),
        "one chat takes 109 us a step at 10 tokens, as fused kernels 189; four take 142 and 224 on an H100",
    ),
    Rule(
        LAYERS,
        (wants.numbers_of_batch, wants.forms_of_layers, wants.usual_layers, wants.tensor_cores,
         wants.few_rows(MAX_STREAMED, MAX_STREAMED),
         wants.nothing_shared, wants.own_sequences, wants.bulk_copies, wants.whole_pieces, wants.whole_contexts,
         wants.layers_worth_streaming, wants.short_contexts, wants.code_for_layers,
         wants.room_for_streamed_layers),
        "one chat of Qwen2.5-0.5B's shape takes 391 us a step instead of 519, two 419 and 532, eight 560 and 565; "
        "eight of Qwen3-1.7B's 1,214 and 1,309; all layers of Llama-3.1-8B's in int4 and the head 1,285 instead of "
        "1,623",
    ),
    Rule(
        FUSED,
        (wants.numbers_of_batch, wants.plain_layers, wants.tensor_cores, wants.own_sequences,
         wants.few_rows(MAX_FUSED, MAX_FUSED_ELSEWHERE), wants.plain_gates, wants.fused_products),
        "4 rows take 216 us a step and 8 rows 221, with products by warpgroups 225 and 231; 16 rows 325 and 271",
    ),
    Rule(
        WARPGROUPS,
        (wants.numbers_of_batch, wants.plain_layers, wants.warpgroups,
         wants.rows_of_warpgroups(MAX_WARPGROUPED), wants.plain_gates, wants.warpgroup_products),
        "64 rows take 437 us a step, with cuBLAS 620; 256 rows 1,189 and 1,253; 64 of Llama-3.1-8B's shape in int8 "
        "4,372, by products one by one 5,610",
    ),
    Rule(
        LIBRARY,
        (wants.numbers_of_batch, wants.plain_layers),
        "64 rows take 550 us a step and 256 rows 1,133, through the model's modules 748 and 1,386",
    ),
    Rule(MODULES, (), _CAPTURED),
)  # fmt: skip
"""Steps for decodes, the fastest first. Where tokens are drawn, one more launch behind the step draws them."""

HEADS: tuple[Rule[DecodeFacts], ...] = (
    Rule(
        SCREENED_HEAD,
        (wants.numbers_of_batch, wants.plain_layers, wants.few_tokens, wants.warpgroups, wants.plain_head,
         wants.whole_head, wants.rows_of_screened_head, wants.head_worth_screening, wants.room_for_screen),
        "a copy of the vocabulary in 8-bit integers has half of its bytes: head and tokens take 75 us instead of "
        "122 with one chat of Llama-3.2-1B's shape, 95 instead of 154 with 64; 43 instead of 65 with one of "
        "Qwen2.5-0.5B's",
    ),
    Rule(ALL_LOGITS, (), "every logit is there for whoever asks"),
)  # fmt: skip
"""How steps for decodes end that are no whole steps of one launch, the fastest first."""

PREFILLS: tuple[Rule[PrefillFacts], ...] = (
    Rule(
        MERGED,
        (wants.numbers_of_batch, wants.plain_layers, wants.tables_for_tokens(MOST_TABLE_ENTRIES)),
        "32 tokens take 448 us and 1,024 tokens 871, through the model's modules 542 and 994",
    ),
    Rule(MODULES, (), _CAPTURED),
)
"""Passes over chunks of prompts, the fastest first."""


def which_decode(facts: DecodeFacts) -> Chosen:
    """The step for a decode."""
    return _first(DECODES, facts)


def which_head(facts: DecodeFacts) -> Chosen:
    """How a step for a decode ends that is one of `CHAINS`."""
    return _first(HEADS, facts)


def is_screened(name: str, facts: DecodeFacts) -> bool:
    """Whether the step `name` for a decode ends without logits, by a screened head."""
    return name in CHAINS and which_head(facts).name == SCREENED_HEAD


def rows_of_last_layer(num_tokens: int, num_seqs: int) -> int:
    """With how many rows the last layer of a pass over prompts goes on behind its attention: with each chunk's last
    one, where that saves more than to read the layer's weights takes, which few rows have to do as well."""
    return num_seqs if num_tokens > MANY_TOKENS and 2 * num_seqs <= num_tokens else num_tokens


def which_prefill(facts: PrefillFacts) -> Chosen:
    """The pass for chunks of prompts."""
    return _first(PREFILLS, facts)


def _first(rules: Sequence[Rule[Facts]], facts: Facts) -> Chosen:
    refused: list[tuple[str, str]] = []
    for rule in rules:
        against = next((why for want in rule.wants if (why := want(facts))), "")
        if rule.name in facts.without_trust:
            against = _NOT_TRUSTED
        if not against:
            return Chosen(rule.name, rule.reason, tuple(refused))
        refused.append((rule.name, against))
    raise ValueError(f"there is no step for {facts}")  # not with the tables above: their last steps want nothing
