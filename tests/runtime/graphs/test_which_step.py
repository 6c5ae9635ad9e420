"""Which step serves which batch: the choices as they are, and the words for what speaks against a step."""

from dataclasses import replace

import pytest

from pagedchat.doctor.step_kernels import Fallback, decode_work
from pagedchat.layers.attention import Heads
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.llama_config import LlamaConfig
from pagedchat.models.opt_config import OptConfig
from pagedchat.ops.whole_step.plan import CLUSTER_TURN, ONE_TURN
from pagedchat.runtime.graphs.model_tensors import objection_to
from pagedchat.runtime.graphs.step_facts import DecodeFacts, PrefillFacts
from pagedchat.runtime.graphs.which_step import (
    DECODES,
    FUSED,
    LIBRARY,
    MERGED,
    MODULES,
    PREFILLS,
    WARPGROUPS,
    which_decode,
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
    CLUSTERS_SCREENED: "C", SCREENED: "S", CLUSTERS: "c", ONE_LAUNCH: "o", FUSED: "f", WARPGROUPS: "w",
    LIBRARY: "l", MODULES: "m",
}  # fmt: skip
ROWS = (1, 2, 3, 8, 9, 16, 17, 32, 64, 128, 256, 257)
CHOICES = """
opt-125m      -       float16   ffffffllllll  ffffffllllll
opt-125m      -       float32   llllllllllll  llllllllllll
opt-125m      sm_75   float16   ffffffllllll  ffffffllllll
opt-125m      sm_75   bfloat16  llllllllllll  llllllllllll
opt-125m      sm_80   bfloat16  ffffffllllll  ffffffllllll
opt-125m      sm_86   float16   ffffffllllll  ffffffllllll
opt-125m      sm_89   float16   ffffffllllll  ffffffllllll
opt-125m      sm_90   float16   CSffwwwwwwwl  coffwwwwwwwl
opt-125m      sm_90   bfloat16  CSffwwwwwwwl  coffwwwwwwwl
opt-125m      sm_90   float32   llllllllllll  llllllllllll
opt-125m      sm_100  float16   CSffffllllll  coffffllllll
opt-125m      sm_120  float16   ffffffllllll  ffffffllllll
smollm-135m   sm_80   bfloat16  ffffffllllll  ffffffllllll
smollm-135m   sm_90   bfloat16  SSffwwwwwwwl  ooffwwwwwwwl
smollm-135m   sm_100  bfloat16  SSffffllllll  ooffffllllll
qwen2.5-0.5b  sm_75   bfloat16  llllllllllll  llllllllllll
qwen2.5-0.5b  sm_80   bfloat16  ffffffllllll  ffffffllllll
qwen2.5-0.5b  sm_90   bfloat16  ffffwwwwwwwl  ffffwwwwwwwl
qwen3-1.7b    -       float16   mmmmmmmmmmmm  mmmmmmmmmmmm
qwen3-1.7b    sm_90   bfloat16  mmmmmmmmmmmm  mmmmmmmmmmmm
llama-3.1-8b  sm_80   bfloat16  ffffllllllll  ffffllllllll
llama-3.1-8b  sm_90   bfloat16  ffffllllllll  ffffllllllll
llama-3.1-8b  sm_90   float32   llllllllllll  llllllllllll
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


def test_the_fastest_steps_are_asked_first_and_the_last_ones_want_nothing() -> None:
    assert [rule.name for rule in DECODES] == [*WHOLE_STEPS, FUSED, WARPGROUPS, LIBRARY, MODULES]
    assert [rule.name for rule in PREFILLS] == [MERGED, MODULES]
    assert DECODES[-1].wants == PREFILLS[-1].wants == ()
    assert all(rule.reason for rule in (*DECODES, *PREFILLS))


def against(asked: DecodeFacts, name: str) -> str:
    """What speaks against a step; it must have been refused."""
    return dict(which_decode(asked).refused)[name]


def test_refusals_say_why() -> None:
    h200 = setting(OPT, "sm_90")
    assert against(facts(h200, 1, choice="drawn"), SCREENED).startswith("tokens are drawn from logits")
    assert against(facts(h200, 3), ONE_LAUNCH) == "3 rows are more than the 2 that one launch has room for"
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


def test_what_a_model_has_too_much_of_is_said() -> None:
    def one_launch(config: OptConfig | LlamaConfig, architecture: str = "sm_90") -> str:
        return against(facts(setting(config, architecture), 1), ONE_LAUNCH)

    assert isinstance(SMOLLM, LlamaConfig)
    assert isinstance(OPT, OptConfig)
    windowed = replace(SMOLLM, windows=(None, 64, *SMOLLM.windows[2:]))
    assert one_launch(windowed) == "1 of its 30 layers have a sliding window"
    deep = replace(SMOLLM, num_layers=33, windows=(None,) * 33)
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
    wide_llama = config_of("llama-3.1-8b")
    assert isinstance(wide_llama, LlamaConfig)
    wide_llama = replace(wide_llama, hidden_size=5120, heads=Heads(40, 8, 128), ffn_size=13_824)
    assert against(facts(setting(wide_llama, "sm_80"), 3), FUSED) == (
        "most of a layer is its product qkv, 5,120 to 7,168 and up, 5,120 to 13,824, "
        "which no kernel for few rows shares out among its warps"
    )
    tall = config_of("llama-3.1-8b")
    assert against(facts(setting(tall, "sm_90"), 64), WARPGROUPS) == (
        "4 of its 4 products are too large for a tile a multiprocessor, or not whole tiles"
    )


def test_one_product_that_no_kernel_does_goes_by_a_library_alone() -> None:
    sizes = config_of("llama-3.1-8b")
    assert isinstance(sizes, LlamaConfig)
    seven_b = facts(setting(replace(sizes, ffn_size=11_008), "sm_80"), 1)
    assert which_decode(seven_b).name == FUSED
    by_library = [part.part for part in decode_work(FUSED, seven_b, ()) if isinstance(part, Fallback)]
    assert by_library == ["down", "vocabulary"]
    mixed = facts(setting(config_of("qwen2.5-0.5b"), "sm_90"), 64)
    by_library = [part.part for part in decode_work(WARPGROUPS, mixed, ()) if isinstance(part, Fallback)]
    assert by_library == ["up", "vocabulary"]


def test_families_that_the_kernels_do_not_do_are_named() -> None:
    assert isinstance(SMOLLM, LlamaConfig)
    assert isinstance(OPT, OptConfig)
    objections = {
        "its queries and keys are normed head by head": replace(SMOLLM, qk_norm=True),
        "its gates have biases": replace(SMOLLM, mlp_bias=True),
        "its feed-forward goes through gelu instead of silu": replace(SMOLLM, activation="gelu"),
        "its feed-forward goes through gelu instead of relu": replace(OPT, activation="gelu"),
        "its norms come behind each half of a layer": replace(OPT, norm_first=False),
        "it has no norm behind its last layer": replace(OPT, final_norm=False),
        "its tokens' vectors are 512 wide and its layers 768": replace(OPT, embedding_size=512),
        "its norms have no weights": replace(OPT, affine_norms=False),
        "": replace(SMOLLM, rotary=RotaryConfig(5e5), qkv_bias=True),
    }
    assert {objection_to(config): config for config in objections.values()} == objections
    chosen = which_decode(facts(setting(replace(SMOLLM, qk_norm=True), "sm_90"), 1))
    assert chosen.name == MODULES
    assert {why for _, why in chosen.refused} == {"its queries and keys are normed head by head"}


def test_a_step_whose_clusters_found_no_room_makes_way_for_the_next() -> None:
    asked, names = facts(setting(OPT, "sm_90"), 1), []
    for _ in range(3):
        names.append(which_decode(asked).name)
        asked = replace(asked, without_room=asked.without_room | {names[-1]})
    assert names == [CLUSTERS_SCREENED, SCREENED, SCREENED]
    drawn = replace(asked, choice="drawn")
    assert which_decode(drawn).name == CLUSTERS
    assert which_decode(replace(drawn, without_room=frozenset({CLUSTERS}))).name == ONE_LAUNCH


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
    assert isinstance(SMOLLM, LlamaConfig)
    assert [one_turn_len(setting(OPT, "sm_90"), rows) for rows in (1, 2)] == [CLUSTER_TURN, ONE_TURN]
    others = (
        setting(OPT, ""),
        setting(OPT, "sm_80"),
        setting(SMOLLM, "sm_90"),
        setting(config_of("qwen3-1.7b"), "sm_90"),
    )
    assert [one_turn_len(where, 1) for where in others] == [ONE_TURN] * 4


def test_prompts_are_merged_where_tables_have_room() -> None:
    turned, placed = setting(SMOLLM, "sm_90"), setting(OPT, "sm_90")
    assert which_prefill(PrefillFacts(setting=turned, num_tokens=1 << 12, num_blocks=1 << 12)).name == MERGED
    huge = PrefillFacts(setting=turned, num_tokens=1 << 13, num_blocks=1 << 12)
    assert which_prefill(huge).name == MODULES
    assert which_prefill(huge).refused == (
        (MERGED, "a block table for every token would have 33,554,432 entries, and 16,777,216 is the most"),
    )
    assert which_prefill(replace(huge, setting=placed)).name == MERGED
    assert which_prefill(replace(huge, setting=setting(config_of("qwen3-1.7b"), "sm_90"))).name == MODULES
