"""What the ops ask for while a model runs was compiled before its first step, and takes what they pass."""

import sys
from collections import Counter

import pytest
import torch

from pagedchat.jit.architecture import architecture_of
from pagedchat.jit.arguments import Frame, Layout
from pagedchat.jit.builder import KernelBuilder
from pagedchat.jit.parameters import cubin_parameters
from pagedchat.jit.variant import Variant
from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.catalogue import CATALOGUE, covering_set, variants_for_model, variants_where_asked
from pagedchat.ops.common.choices import BLOCK_SIZES, HEAD_SIZES
from pagedchat.ops.common.launch import element_name
from tests.ops.recorder import (
    SHARED_BYTES,
    decode,
    decode_step,
    draw,
    gather_and_merge,
    prefill,
    recorded_launches,
    tell_and_rule,
    whole_step,
    write,
)

GROUP_SIZES = (1, 5, 32)
SCORES = {
    "plain": {}, "soft cap": {"soft_cap": True}, "ALiBi": {"alibi": True}, "sinks": {"sinks": True},
    "ALiBi and sinks": {"alibi": True, "sinks": True},
}  # fmt: skip


@pytest.mark.parametrize("capability", SHARED_BYTES, ids=lambda pair: architecture_of(*pair))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_ops_ask_only_for_what_the_catalogue_lists_for_the_model(
    capability: tuple[int, int], dtype: torch.dtype, scores: dict[str, bool]
) -> None:
    architecture = architecture_of(*capability)
    tensor_cores = dtype == torch.float16 or (dtype == torch.bfloat16 and capability >= (8, 0))
    for i, head_size in enumerate(HEAD_SIZES):
        block_size, group_size = BLOCK_SIZES[i % 3], GROUP_SIZES[i // 2]
        of_heads = torch.zeros(2 * group_size)
        with recorded_launches(capability) as launches:
            write(dtype, head_size, block_size)
            draw(dtype)
            for window in (None, 100):
                options = AttentionOptions(
                    scale=0.1,
                    sliding_window=window,
                    cap=30.0 if "soft_cap" in scores else None,
                    alibi_slopes=of_heads if "alibi" in scores else None,
                    sinks=of_heads if "sinks" in scores else None,
                )
                decode(dtype, head_size, block_size, group_size, options, tensor_cores)
                prefill(dtype, head_size, block_size, group_size, options)
        listed = variants_for_model(element_name(dtype), head_size, block_size, group_size, architecture, **scores)
        asked = {variant for variant, _ in launches}
        assert {"reshape_and_cache", "copy_blocks", "sample"} < {variant.stem for variant in asked}
        assert asked <= set(listed), [str(variant) for variant in asked - set(listed)]


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)], ids=lambda pair: architecture_of(*pair))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_attention_of_rows_by_themselves_is_listed_where_it_is_asked_for(
    capability: tuple[int, int], dtype: torch.dtype
) -> None:
    for i, head_size in enumerate(HEAD_SIZES):
        shape = head_size, BLOCK_SIZES[i % 3], GROUP_SIZES[i // 2]
        with recorded_launches(capability) as launches:
            prefill(dtype, *shape, AttentionOptions(scale=0.1), batch_invariant=True)
        listed = variants_for_model(element_name(dtype), *shape, architecture_of(*capability), batch_invariant=True)
        asked = {variant for variant, _ in launches}
        assert "prefill_mma" in {variant.stem for variant in asked}
        assert asked <= set(listed), [str(variant) for variant in asked - set(listed)]


def test_opt_125m_starts_with_these_kernels_and_no_more() -> None:
    """A first start compiles them all; what no eager step launches would only keep its user waiting."""
    listed = variants_for_model("float16", 64, 16, 1, "sm_90")
    assert Counter(variant.stem for variant in listed) == {
        "reshape_and_cache": 1, "copy_blocks": 1, "swap_blocks": 1, "sample": 3, "decode_split": 7,
        "decode_shared": 1, "prefill_mma": 4, "prefill_merge": 1, "prefill_wgmma": 3,
    }  # fmt: skip


@pytest.mark.parametrize("capability", [(7, 5), (8, 9), (9, 0)], ids=lambda pair: architecture_of(*pair))
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_what_few_requests_ask_for_is_listed_apart(capability: tuple[int, int], dtype: torch.dtype) -> None:
    architecture, element = architecture_of(*capability), element_name(dtype)
    with recorded_launches(capability) as launches:
        tell_and_rule(dtype)
    listed = {*variants_where_asked(element, architecture), *variants_for_model(element, 64, 16, 1, architecture)}
    asked = {variant for variant, _ in launches}
    assert {variant.stem for variant in asked} == {"top_logprobs", "choose_beams", "row_rules", "sample"}
    assert asked <= listed, [str(variant) for variant in asked - listed]


@pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_ops_pass_what_their_kernels_take(dtype: torch.dtype) -> None:
    """One variant of each kernel has the same parameters as all others: one that every check compiles anyhow."""
    with recorded_launches((9, 0)) as launches:
        write(dtype, 64, 16)
        gather_and_merge(dtype, 64, 16)
        draw(dtype)
        tell_and_rule(dtype)
        options = AttentionOptions(scale=0.1)
        decode(dtype, 64, 16, 4, options, tensor_cores=dtype == torch.float16)
        prefill(dtype, 64, 16, 4, options)
        decode_step(dtype, 64, 16)
    one_each = {(variant.stem, entry): args for (variant, entry), args in launches.items()}
    compiled = {variant.stem: variant for variant in covering_set("sm_90")}
    builds = KernelBuilder(anywhere=True).build_all([(compiled[stem], "sm_90") for stem, _ in one_each])
    for build, ((_, entry), args) in zip(builds, one_each.items(), strict=True):
        assert build.cubin is not None, build.error
        layout = Layout(entry, cubin_parameters(build.cubin.code, entry), args)
        frame = Frame(layout)
        frame.pack(frame.buffer, 0, *[1] * 7, 0, 0, 0, *args)  # an address would not fit into 4 bytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_captured_steps_use_the_constants_that_the_catalogue_names(dtype: torch.dtype) -> None:
    named = {
        (file.stem, frozenset([*file.constants, *tuning.constants]))
        for file in CATALOGUE
        for tuning in file.tunings
    }
    with recorded_launches((9, 0)) as launches:
        decode_step(dtype, 64, 16)
    asked = {(variant.stem, frozenset(variant.constants)) for variant, _ in launches}
    assert len(asked) == (10 if dtype == torch.float32 else 22)
    assert asked <= named


@pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_whole_steps_ask_for_what_the_catalogue_lists(dtype: torch.dtype) -> None:
    """But for the size of the vocabulary. One in clusters with logits compiles; the covering set has others."""
    file = next(file for file in CATALOGUE if file.stem == "persistent_decode")
    listed = {_without_vocabulary(variant) for variant in file.variants("sm_90")}
    with recorded_launches((9, 0)) as launches:
        whole_step(dtype)
    asked = [variant for variant, _ in launches]
    assert {_without_vocabulary(variant) for variant in asked} <= listed
    clustered = [variant for variant in asked if variant.constants["CLUSTER"] == "4"]
    assert {variant.constants["SCREENED"] for variant in clustered} == {"0", "1"}
    if dtype == torch.float16:
        full = next(variant for variant in clustered if variant.constants["SCREENED"] == "0")
        (build,) = KernelBuilder(anywhere=True).build_all([(full, "sm_90")])
        assert build.cubin is not None, build.error


def _without_vocabulary(variant: Variant) -> frozenset[tuple[str, str]]:
    return frozenset(pair for pair in variant.constants.items() if pair[0] != "SCREENED_TILES")
