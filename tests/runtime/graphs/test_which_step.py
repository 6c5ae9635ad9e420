"""Which step serves which batch: the choices as they are, and the words for what speaks against a step."""

from dataclasses import replace
from typing import Any

import pytest

from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.doctor.step_kernels import decode_work
from pagedchat.doctor.step_work import Fallback
from pagedchat.layers.alibi import Alibi
from pagedchat.layers.attention import Heads
from pagedchat.layers.experts import MixtureConfig
from pagedchat.layers.norms import NormConfig
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.ops.quantized.weight_form import WeightForm
from pagedchat.ops.whole_step.plan import CLUSTER_TURN, ONE_TURN
from pagedchat.runtime.graphs.objections import objection_to, objection_to_whole_steps
from pagedchat.runtime.graphs.step_facts import HEAD, DecodeFacts, PrefillFacts
from pagedchat.runtime.graphs.step_wants import code_for_layers
from pagedchat.runtime.graphs.which_step import (
    ALL_LOGITS,
    DECODES,
    FUSED,
    LAYERS,
    LIBRARY,
    MERGED,
    MODULES,
    PREFILLS,
    SCREENED_HEAD,
    WARPGROUPS,
    rows_of_last_layer,
    which_decode,
    which_head,
    which_prefill,
)
from pagedchat.runtime.graphs.whole_steps import (
    CLUSTERS,
    CLUSTERS_SCREENED,
    ONE_LAUNCH,
    SCREENED,
    WHOLE_STEPS,
    one_turn_len,
    whole_step_plan,
)
from tests.runtime.graphs.configs import config_of, facts, setting

LETTERS = {
    CLUSTERS_SCREENED: "C", SCREENED: "S", CLUSTERS: "c", ONE_LAUNCH: "o", LAYERS: "a", FUSED: "f", WARPGROUPS: "w",
    LIBRARY: "l", MODULES: "m",
}  # fmt: skip
ROWS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 64, 128, 256, 257)
CHOICES = """
opt-125m      -       float16   ffffffffllllll  ffffffffllllll
opt-125m      -       float32   llllllllllllll  llllllllllllll
opt-125m      sm_75   float16   ffffffffllllll  ffffffffllllll
opt-125m      sm_75   bfloat16  llllllllllllll  llllllllllllll
opt-125m      sm_80   bfloat16  ffffffffllllll  ffffffffllllll
opt-125m      sm_86   float16   ffffffffllllll  ffffffffllllll
opt-125m      sm_89   float16   ffffffffllllll  ffffffffllllll
opt-125m      sm_90   float16   CSooffwwwwwwwl  coooffwwwwwwwl
opt-125m      sm_90   bfloat16  CSooffwwwwwwwl  coooffwwwwwwwl
opt-125m      sm_90   float32   llllllllllllll  llllllllllllll
opt-125m      sm_100  float16   CSooffffllllll  coooffffllllll
opt-125m      sm_120  float16   ffffffffllllll  ffffffffllllll
smollm-135m   sm_80   bfloat16  ffffffffllllll  ffffffffllllll
smollm-135m   sm_90   bfloat16  SSooffwwwwwwwl  ooooffwwwwwwwl
smollm-135m   sm_100  bfloat16  SSooffffllllll  ooooffffllllll
qwen2.5-0.5b  sm_75   bfloat16  llllllllllllll  llllllllllllll
qwen2.5-0.5b  sm_80   bfloat16  ffffffffllllll  ffffffffllllll
qwen2.5-0.5b  sm_90   bfloat16  aafafawwwwwwwl  aafafawwwwwwwl
qwen3-1.7b    -       float16   ffffffffllllll  ffffffffllllll
qwen3-1.7b    sm_75   bfloat16  llllllllllllll  llllllllllllll
qwen3-1.7b    sm_80   bfloat16  ffffffffllllll  ffffffffllllll
qwen3-1.7b    sm_90   bfloat16  aafafawwwwwwwl  aafafawwwwwwwl
gemma-2-2b    sm_90   bfloat16  ffffffwwwwwwwl  ffffffwwwwwwwl
gemma-3-1b    sm_90   bfloat16  ffffffwwwwwwwl  ffffffwwwwwwwl
gpt2          sm_90   float16   ffffffwwwwwwwl  ffffffwwwwwwwl
phi-2         sm_90   float16   ffffffwwwwwlll  ffffffwwwwwlll
pythia-160m   sm_90   float16   ffffffwwwwwwwl  ffffffwwwwwwwl
llama-3.1-8b  sm_80   bfloat16  ffffffllllllll  ffffffllllllll
llama-3.1-8b  sm_90   bfloat16  ffffffwwwwwwwl  ffffffwwwwwwwl
llama-3.1-8b  sm_90   float32   llllllllllllll  llllllllllllll
"""
"""Model, GPU, element type; for each of `ROWS` the step with the most likely tokens, and with drawn ones."""
OPT, SMOLLM = config_of("opt-125m"), config_of("smollm-135m")


@pytest.mark.parametrize("line", CHOICES.split("\n")[1:-1])
def test_every_batch_has_its_step(line: str) -> None:
    name, architecture, element, *expected = line.split()
    where = setting(config_of(name), architecture.strip("-"), element)
    found = [
        "".join(LETTERS[which_decode(facts(where, rows, choice=choice)).name] for rows in ROWS)
        for choice in ("greedy", "drawn")
    ]
    assert found == expected
    of_few = (which_decode(facts(where, rows, choice="shortlist")).name for rows in ROWS)
    assert "".join(LETTERS[each] for each in of_few) == expected[1]


def test_the_fastest_steps_are_asked_first_and_the_last_ones_want_nothing() -> None:
    assert [rule.name for rule in DECODES] == [*WHOLE_STEPS, LAYERS, FUSED, WARPGROUPS, LIBRARY, MODULES]
    assert [rule.name for rule in PREFILLS] == [MERGED, MODULES]
    assert DECODES[-1].wants == PREFILLS[-1].wants == ()
    assert all(rule.reason for rule in (*DECODES, *PREFILLS))


def test_what_speaks_against_one_launch_for_all_layers() -> None:
    """The fused chain serves instead."""
    qwen, llama, gemma = (config_of(name) for name in ("qwen2.5-0.5b", "llama-3.1-8b", "gemma-2-2b"))
    for asked, words in (
        (facts(setting(qwen, "sm_90"), 9), "from 9 rows on other products are faster"),
        (facts(setting(qwen, "sm_90"), 3), "no room for 3 rows of 512 tokens"),
        (
            replace(facts(setting(qwen, "sm_90"), 2), context_len=2048),
            "attention of 2 rows to more than 1,024 tokens",
        ),
        (
            replace(facts(setting(qwen, "sm_90"), 8), context_len=1024),
            "attention of 8 rows to more than 512 tokens",
        ),
        (facts(setting(qwen, "sm_80"), 1), "bulk copies exist from sm_90 on"),
        (facts(setting(llama, "sm_90"), 1), "not faster for 218,103,808 weights of a layer and 1 rows"),
        (facts(setting(gemma, "sm_90"), 1), "its norms come before and behind each half of a layer"),
        (replace(facts(setting(qwen, "sm_90"), 1), context_len=16384), "no room for 1 rows of 16,384 tokens"),
    ):
        assert words in against(replace(asked, without_trust=frozenset(WHOLE_STEPS)), LAYERS)


def test_weights_of_few_bits_have_one_launch_for_the_layers_of_one_row() -> None:
    int8, int4 = WeightForm("int8"), WeightForm("int4", 128, has_minimums=True)
    forms = {"qkv": int8, "out": int4, "up": int4, "down": int4, HEAD: int8}
    llama = replace(setting(config_of("llama-3.1-8b"), "sm_90"), forms=forms)
    assert which_decode(facts(llama, 1)).name == LAYERS
    for form in (int8, WeightForm("fp8")):
        assert which_decode(facts(replace(llama, forms=dict.fromkeys(forms, form)), 1)).name == LAYERS
    groups = dict.fromkeys(forms, WeightForm("int4", 32, has_minimums=True))
    for changed, rows, words in (
        (llama, 2, "has code for one row where weights have few bits"),
        (replace(llama, layers_differ=True), 1, "of several forms"),
        (replace(llama, forms=forms | {"down": int8}), 1, "of several forms"),
        (replace(llama, forms=groups), 1, "its weights are int4, groups of 32 with minimums"),
        (replace(llama, forms={"qkv": int8}), 1, "its weights are 16 bits"),
    ):
        chosen = which_decode(facts(changed, rows))
        assert chosen.name == FUSED
        assert words in dict(chosen.refused)[LAYERS]
    for context_len, name in ((1024, LAYERS), (2048, FUSED)):
        assert which_decode(replace(facts(llama, 1), context_len=context_len)).name == name


def test_layers_without_gates_have_no_code_in_one_launch() -> None:
    assert "has code for RMS norms, gates, and no biases" in code_for_layers(facts(setting(OPT, "sm_90"), 1))
    assert code_for_layers(facts(setting(SMOLLM, "sm_90"), 1)) == ""


def against(asked: DecodeFacts, name: str) -> str:
    """What speaks against a step; it must have been refused."""
    return dict(which_decode(asked).refused)[name]


def test_refusals_say_why() -> None:
    h200 = setting(OPT, "sm_90")
    assert against(facts(h200, 1, choice="drawn"), SCREENED).startswith("tokens are drawn from logits")
    assert against(facts(h200, 5), ONE_LAUNCH) == "5 rows are more than the 4 that one launch has room for"
    assert against(facts(h200, 3), SCREENED) == "the quantized head screens 2 rows at most, not 3"
    assert against(facts(h200, 2), CLUSTERS_SCREENED) == "thread blocks in clusters have room for one row"
    long = facts(h200, 1, context_len=1024)
    assert (
        against(long, CLUSTERS_SCREENED) == "1,024 tokens of context are more than a cluster attends to in one turn"
    )
    assert against(facts(h200, 2, shares=True), ONE_LAUNCH).startswith(
        "one launch does not read a shared beginning"
    )
    assert against(facts(h200, 9), FUSED) == "from 9 rows on other products are faster"
    assert against(facts(h200, 257), WARPGROUPS) == "from 257 rows on a library is faster"
    unaligned = facts(setting(OPT, "sm_90", is_aligned=False), 1)
    assert against(unaligned, ONE_LAUNCH) == "some tensor does not start at a multiple of 16 bytes"
    a100 = setting(OPT, "sm_80")
    assert against(facts(a100, 1), ONE_LAUNCH) == "bulk copies exist from sm_90 on"
    assert against(facts(a100, 17), FUSED) == "from 17 rows on other products are faster"
    assert against(facts(a100, 17), WARPGROUPS) == "products by warpgroups exist on sm_90 alone"
    assert against(facts(setting(OPT, "sm_75", "bfloat16"), 1), FUSED) == (
        "tensor cores multiply bfloat16 from sm_80 on"
    )
    assert against(facts(setting(OPT, "sm_90", "float32"), 1), FUSED) == "tensor cores do not multiply float32"


def test_large_heads_are_screened_on_hopper_where_few_tokens_matter() -> None:
    for name in ("qwen2.5-0.5b", "qwen3-1.7b", "llama-3.1-8b"):
        h200 = setting(config_of(name), "sm_90", "bfloat16")
        for choice in ("greedy", "shortlist"):
            heads = [which_head(facts(h200, rows, choice=choice)).name for rows in (1, 8, 64, 65)]
            assert heads == [SCREENED_HEAD] * 3 + [ALL_LOGITS]


def test_heads_that_are_not_screened_say_why() -> None:
    def why(config: DecoderConfig, rows: int = 1, architecture: str = "sm_90", **others: Any) -> str:
        of_step = {
            "choice": others.pop("choice", "greedy"),
            "without_trust": others.pop("without_trust", frozenset()),
        }
        chosen = which_head(facts(setting(config, architecture, "bfloat16", **others), rows, **of_step))
        return dict(chosen.refused)[SCREENED_HEAD]

    qwen = config_of("qwen3-1.7b")
    assert why(qwen, choice="drawn") == "tokens are drawn from all logits"
    assert why(qwen, 65) == "a vocabulary is screened for 64 rows at most, and not for 65 of 2,048"
    assert why(qwen, architecture="sm_80") == "products by warpgroups exist on sm_90 alone"
    assert why(qwen, batch_invariant=True).startswith("a reply is to be the same in any company")
    assert why(qwen, forms={"head": WeightForm("int8", 2048)}) == "its head has few bits already"
    assert why(qwen, without_trust=frozenset({SCREENED_HEAD})).startswith("it gave other results")
    assert why(SMOLLM) == "a vocabulary of 28,311,552 elements is read in no time"
    assert why(config_of("gemma-2-2b")) == "its logits are more than a product of rows and vocabulary"
    small = replace(KNOWN_GPUS["sm_90"], memory_bytes=24 << 30)
    assert why(qwen, gpu=small) == (
        "a copy of the vocabulary of 299 MiB is more than a hundredth of the GPU's memory"
    )


def test_what_a_model_has_too_much_of_is_said() -> None:
    def one_launch(config: DecoderConfig, architecture: str = "sm_90") -> str:
        return against(facts(setting(config, architecture), 1), ONE_LAUNCH)

    windowed = replace(SMOLLM, windows=(None, 64, *SMOLLM.windows[2:]))
    assert one_launch(windowed) == "1 of its 30 layers have a sliding window"
    deep = replace(SMOLLM, num_layers=33, windows=(None,) * 33, rotaries=SMOLLM.rotaries[:1] * 33)
    assert one_launch(deep) == "it has 33 layers and one launch has places for 32"
    assert one_launch(config_of("llama-3.1-8b")) == "its heads are 128 wide and the kernel is for 64"
    assert one_launch(config_of("qwen2.5-0.5b")) == (
        "no number of warps shares out rows of 896, 4,864 and 896 evenly and in parts that are narrow enough"
    )
    grouped = replace(SMOLLM, heads=Heads(9, 1, 64))
    assert one_launch(grouped) == "9 query heads share a KV head and the kernel has room for 8"
    wide = replace(OPT, hidden_size=1024, embedding_size=1024, ffn_size=2048, heads=Heads(16, 16, 64))
    assert one_launch(wide) == (
        "it takes 128 thread blocks for rows of 1,024 and 16 for attention, and the GPU has 132 multiprocessors"
    )
    assert one_launch(OPT, "sm_120") == "a thread block has too little shared memory for its part of a layer"
    many_words = replace(OPT, vocab_size=10_000_000)
    assert against(facts(setting(many_words, "sm_90"), 2), SCREENED) == (
        "a thread block has too little shared memory for its part of 10,000,000 bounds"
    )
    normed = replace(SMOLLM, qk_norm=QkNorm(SMOLLM.norm))
    assert one_launch(normed) == "one launch does not norm queries and keys"
    biased = facts(setting(replace(SMOLLM, mlp_bias=True), "sm_90"), 8)
    assert [against(biased, name) for name in (FUSED, WARPGROUPS)] == ["its gates have biases"] * 2
    assert which_decode(biased).name == LIBRARY
    assert against(replace(biased, rows=1), ONE_LAUNCH) == "its gates have biases"
    wide_llama = config_of("llama-3.1-8b")
    wide_llama = replace(wide_llama, hidden_size=5120, heads=Heads(40, 8, 128), ffn_size=13_824)
    assert against(facts(setting(wide_llama, "sm_80"), 3), FUSED) == (
        "most of a layer is its product qkv, 5,120 to 7,168 and up, 5,120 to 13,824, "
        "which no kernel for few rows shares out among its warps"
    )
    tall = replace(OPT, hidden_size=4096, embedding_size=4096, ffn_size=16_384, heads=Heads(32, 32, 128))
    assert against(facts(setting(tall, "sm_90"), 96), WARPGROUPS) == (
        "a library is faster for 4 of its 4 products, or they are not whole tiles"
    )


def test_one_product_that_no_kernel_does_goes_by_a_library_alone() -> None:
    sizes = config_of("llama-3.1-8b")
    seven_b = facts(setting(replace(sizes, ffn_size=11_008), "sm_80"), 1)
    assert which_decode(seven_b).name == FUSED
    by_library = [part.part for part in decode_work(FUSED, seven_b, ()) if isinstance(part, Fallback)]
    assert by_library == ["down", "vocabulary"]
    mixed = facts(setting(config_of("qwen2.5-0.5b"), "sm_90"), 64)
    by_library = [part.part for part in decode_work(WARPGROUPS, mixed, ()) if isinstance(part, Fallback)]
    assert by_library == []
    crowded = facts(setting(config_of("qwen2.5-0.5b"), "sm_90"), 65)
    by_library = [part.part for part in decode_work(WARPGROUPS, crowded, ()) if isinstance(part, Fallback)]
    assert by_library == ["vocabulary"]


def test_decoders_that_whole_steps_do_not_do_are_told_why() -> None:
    part = replace(SMOLLM.rotaries[0] or RotaryConfig(1e4), share=0.25)
    objections = {
        "its queries and keys are normed over their whole width": replace(
            SMOLLM, qk_norm=QkNorm(SMOLLM.norm, "width")
        ),
        "its queries and keys are normed, and not as Qwen3's": replace(SMOLLM, qk_norm=QkNorm(OPT.norm)),
        "its feed-forward is a mixture of experts": replace(
            SMOLLM,
            mixture=MixtureConfig(num_experts=4, per_token=2, width=64, renormalised=True),
            sparse=(True,) * 30,
        ),
        "its feed-forward goes through gelu instead of silu": replace(SMOLLM, activation="gelu"),
        "its feed-forward goes through gelu instead of relu": replace(OPT, activation="gelu"),
        "no family with such norms has such a feed-forward": replace(SMOLLM, norm=OPT.norm),
        "its norms come behind each half of a layer": replace(OPT, norm_places="after sum"),
        "its norms come before and behind each half of a layer": replace(SMOLLM, norm_places="around"),
        "it has no norm behind its last layer": replace(OPT, final_norm=False),
        "its norms have no weights": replace(OPT, norm=NormConfig(kind="layer", eps=1e-5, weight=False)),
        "its norms multiply by one more than their weights": replace(
            SMOLLM, norm=NormConfig(kind="rms", eps=1e-5, offset=1.0)
        ),
        "both halves of a layer start from the same rows": replace(OPT, parallel="one norm"),
        "its tokens' vectors are 512 wide and its layers 768": replace(OPT, embedding_size=512),
        "what is added to its residual stream is scaled": replace(SMOLLM, residual_scale=0.5),
        "its scores are scaled by 0.2": replace(SMOLLM, score_scale=0.2),
        "its scores have a soft cap": replace(SMOLLM, score_cap=20.0),
        "its scores fall with the distance of a key": replace(SMOLLM, alibi=Alibi()),
        "its heads have sinks": replace(SMOLLM, sinks=True),
        "its tokens' vectors are normed": replace(OPT, embedding_norm=True),
        "its queries, keys and values have a bound": replace(SMOLLM, qkv_clip=8.0),
        "16 of 64 elements of its heads are turned": replace(SMOLLM, rotaries=(part,) * 30),
        "not all of its layers turn queries and keys alike": replace(SMOLLM, rotaries=(None, *SMOLLM.rotaries[1:])),
        "its positions are both learned and angles, or neither": replace(SMOLLM, position_offset=0),
        "its head has a bias": replace(OPT, head_bias=True),
        "its logits are scaled or capped": replace(SMOLLM, logits_cap=30.0),
        "": replace(
            SMOLLM,
            rotaries=(RotaryConfig(5e5),) * 30,
            qkv_bias=True,
            qk_norm=QkNorm(SMOLLM.norm),
            mlp_bias=True,
        ),
    }
    assert {objection_to_whole_steps(config): config for config in objections.values()} == objections
    assert {objection_to(config) for config in objections.values()} == {""}
    bound = replace(SMOLLM, qk_norm=QkNorm(SMOLLM.norm), qkv_clip=8.0)
    assert objection_to(bound) == "its queries and keys are normed and then have a bound"
    beside = replace(objections["its feed-forward is a mixture of experts"], parallel="one norm")
    assert objection_to(beside) == "a mixture of experts stands beside its attention"
    chosen = which_decode(facts(setting(replace(OPT, activation="gelu"), "sm_90"), 1))
    assert chosen.name == FUSED
    assert {why for _, why in chosen.refused} == {"its feed-forward goes through gelu instead of relu"}


def test_a_decoder_that_no_chain_does_is_left_to_its_modules() -> None:
    odd = replace(SMOLLM, norm=replace(SMOLLM.norm, offset=2.0))
    words = "its norms multiply by 2 more than their weights"
    for config in (odd, replace(SMOLLM, qk_norm=QkNorm(odd.norm))):
        where = setting(config, "sm_90")
        chosen = which_decode(facts(where, 8))
        assert chosen.name == MODULES
        assert dict(chosen.refused)[LIBRARY] == dict(chosen.refused)[FUSED] == words
        assert which_prefill(PrefillFacts(setting=where, num_tokens=16, num_blocks=16)).refused == (
            (MERGED, words),
        )


def test_a_step_whose_clusters_found_no_room_makes_way_for_the_next() -> None:
    asked, names = facts(setting(OPT, "sm_90"), 1), []
    for _ in range(3):
        names.append(which_decode(asked).name)
        asked = replace(asked, without_room=asked.without_room | {names[-1]})
    assert names == [CLUSTERS_SCREENED, SCREENED, SCREENED]
    drawn = replace(asked, choice="drawn")
    assert which_decode(drawn).name == CLUSTERS
    assert which_decode(replace(drawn, without_room=frozenset({CLUSTERS}))).name == ONE_LAUNCH


def test_a_step_that_was_not_right_makes_way_for_the_next() -> None:
    asked, names = facts(setting(OPT, "sm_90"), 1), []
    while (name := which_decode(asked).name) != MODULES:
        names.append(name)
        asked = replace(asked, without_trust=asked.without_trust | {name})
    assert names == [rule.name for rule in DECODES[:-1] if rule.name != LAYERS]
    assert {why for name, why in which_decode(asked).refused if name != LAYERS} == {
        "it gave other results than the model when it was tried out"
    }


def test_steps_of_one_launch_are_cut_as_they_are_named() -> None:
    asked = facts(setting(OPT, "sm_90"), 1)
    plans = {name: whole_step_plan(name, asked) for name in WHOLE_STEPS}
    assert {name: plan.cluster > 1 for name, plan in plans.items() if plan} == {
        CLUSTERS_SCREENED: True, SCREENED: False, CLUSTERS: True, ONE_LAUNCH: False,
    }  # fmt: skip
    assert {name: plan.screened_tiles > 0 for name, plan in plans.items() if plan} == {
        CLUSTERS_SCREENED: True, SCREENED: True, CLUSTERS: False, ONE_LAUNCH: False,
    }  # fmt: skip
    assert whole_step_plan(FUSED, asked) is None
    assert whole_step_plan(ONE_LAUNCH, facts(setting(OPT, ""), 1)) is None


def test_clusters_attend_to_longer_contexts_in_one_turn() -> None:
    assert [one_turn_len(setting(OPT, "sm_90"), rows) for rows in (1, 2, 4, 5)] == [
        CLUSTER_TURN, ONE_TURN, ONE_TURN, None,
    ]  # fmt: skip
    others = (
        setting(OPT, ""),
        setting(OPT, "sm_80"),
        setting(SMOLLM, "sm_90"),
        setting(config_of("qwen3-1.7b"), "sm_90"),
    )
    assert [one_turn_len(where, 1) for where in others] == [ONE_TURN] * 4
    assert [one_turn_len(where, 4) for where in others] == [None, None, ONE_TURN, None]


def test_prompts_are_merged_where_tables_have_room() -> None:
    turned, placed = setting(SMOLLM, "sm_90"), setting(OPT, "sm_90")
    assert which_prefill(PrefillFacts(setting=turned, num_tokens=1 << 12, num_blocks=1 << 12)).name == MERGED
    huge = PrefillFacts(setting=turned, num_tokens=1 << 13, num_blocks=1 << 12)
    assert which_prefill(huge).name == MODULES
    assert which_prefill(huge).refused == (
        (MERGED, "a block table for every token would have 33,554,432 entries, and 16,777,216 is the most"),
    )
    assert which_prefill(replace(huge, setting=placed)).name == MERGED
    normed = replace(placed, sizes=replace(placed.sizes, normed_heads=True))
    assert which_prefill(replace(huge, setting=normed)).name == MODULES
    other = setting(replace(OPT, activation="gelu"), "sm_90")
    assert which_prefill(PrefillFacts(setting=other, num_tokens=16, num_blocks=16)).name == MERGED


# --- the same in any company ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["opt-125m", "qwen2.5-0.5b"])
def test_what_is_to_be_the_same_in_any_batch_goes_one_road(name: str) -> None:
    exact = setting(config_of(name), "sm_90", batch_invariant=True)
    for rows in ROWS:
        chosen = which_decode(facts(exact, rows))
        assert chosen.name == MODULES
        assert {why for _, why in chosen.refused} == {"a reply is to be the same in any company, bit for bit"}
    for num_tokens in (1, 64, 8192):
        assert which_prefill(PrefillFacts(setting=exact, num_tokens=num_tokens, num_blocks=100)).name == MODULES


@pytest.mark.parametrize(
    ("num_tokens", "num_seqs", "rows"), [(256, 1, 256), (257, 1, 1), (512, 256, 256), (512, 257, 512), (1536, 4, 4)]
)
def test_the_last_layer_of_long_prompts_goes_on_with_the_rows_that_are_read(
    num_tokens: int, num_seqs: int, rows: int
) -> None:
    assert rows_of_last_layer(num_tokens, num_seqs) == rows
