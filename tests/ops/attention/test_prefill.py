"""Prefill over the paged cache against float64; on a CPU the torch version behind the same name."""

from collections.abc import Callable

import pytest
import torch

from pagedchat.ops.attention import prefill as module
from pagedchat.ops.attention import prefill_mma, prefill_simt, prefill_wgmma
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.prefill import paged_prefill
from tests.ops.cuda_layout_case import (
    BLOCK_SIZES,
    DTYPES,
    HEAD_SIZES,
    LayoutCase,
    check_attention,
    make_layout_case,
    make_options,
    make_sinks,
    random_layout_case,
    results,
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KERNELS = [prefill_wgmma, prefill_mma, prefill_simt]
SEQ_LENS = [5, 1, 140, 33, 700, 64, 300, 555, 18]
QUERY_LENS = [5, 1, 140, 33, 1, 64, 7, 200, 17]
"""Whole prompts, chunks of one token, later chunks."""
GROUPS = [(4, 4), (4, 2), (3, 1), (8, 1), (71, 1)]
RULES: list[dict[str, float]] = [
    {"cap": 2.0}, {"sliding_window": 20}, {"sliding_window": 1}, {"alibi": True}, {"sinks": True},
    {"cap": 2.0, "sliding_window": 20, "alibi": True, "sinks": True},
]  # fmt: skip


def attend(
    case: LayoutCase, options: AttentionOptions, max_query_len: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    call = case.call(options)
    longest = max_query_len or case.max_query_len
    assert paged_prefill(call, case.cu_seqlens_q, max_query_len=longest) is call.output
    return results(call)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_every_shape_of_head_and_block(device: str, dtype: torch.dtype, block_size: int, head_size: int) -> None:
    case = make_layout_case(
        SEQ_LENS, QUERY_LENS, head_size=head_size, block_size=block_size, dtype=dtype, device=device
    )
    options = AttentionOptions(scale=head_size**-0.5)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), GROUPS)
def test_every_size_of_group(device: str, num_heads: int, num_kv_heads: int) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    case = make_layout_case(SEQ_LENS, QUERY_LENS, dtype=torch.float16, device=device, **heads)
    options = AttentionOptions(scale=0.1)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_of_scores(device: str, rule: dict[str, float]) -> None:
    case = make_layout_case(SEQ_LENS, QUERY_LENS, dtype=torch.float16, device=device)
    options = make_options(rule, device)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(20))
def test_random_batches(device: str, seed: int) -> None:
    case, options = random_layout_case(seed, device, max_query_len=200)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
def test_a_sequence_that_holds_nothing_gets_zeros(device: str) -> None:
    case = make_layout_case([40, 0, 9], [3, 1, 9], dtype=torch.float16, device=device)

    output, lse = attend(case, AttentionOptions(scale=0.1))

    assert torch.all(output[3] == 0)
    assert torch.all(lse[3] == float("-inf"))
    check_attention(case, AttentionOptions(scale=0.1), output, lse)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lens", [([40, 0, 9], [3, 1, 9]), ([1500, 0], [3, 1])], ids=str)
def test_a_sink_alone_takes_all_weights(device: str, lens: tuple[list[int], list[int]]) -> None:
    """Where there is no key, and where the sink is far above all scores; also with keys split over the grid."""
    case = make_layout_case(*lens, dtype=torch.float16, device=device)
    sinks = make_sinks(4, device)
    sinks[0] = 500.0
    options = AttentionOptions(scale=0.1, sinks=sinks)

    output, lse = attend(case, options)

    empty = int(case.cu_seqlens_q[1])
    assert torch.all(output[empty] == 0)
    assert torch.all(output[:, 0] == 0)
    assert torch.equal(lse[empty], sinks)
    check_attention(case, options, output, lse)


@pytest.mark.parametrize("device", DEVICES)
def test_scores_far_apart_do_not_overflow(device: str) -> None:
    case = make_layout_case([300], [300], dtype=torch.float16, device=device)
    options = AttentionOptions(scale=20.0)

    output, lse = attend(case, options)

    assert torch.isfinite(output).all()
    expected, _ = case.attend(options, torch.float64)
    torch.testing.assert_close(output.double(), expected, atol=5e-3, rtol=5e-3)
    assert torch.isfinite(lse).all()


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(10))
def test_each_kernel_does_what_it_says_it_supports(
    kernel: object, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in KERNELS:
        if other is not kernel:
            monkeypatch.setattr(other, "supported", lambda *_: False)
    monkeypatch.setattr(module, "MIN_WGMMA_ROWS", 0)
    case, options = random_layout_case(100 + seed, "cuda", max_query_len=300, max_len=1500)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize("max_query_len", [2, 300])
def test_a_captured_launch_follows_its_inputs(max_query_len: int) -> None:
    case = make_layout_case([700, 33, 40], [300, 33, 1], dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125)
    attend(case, options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, lse = attend(case, options)
    case.query.normal_()

    for _ in range(2):
        output.fill_(float("nan"))
        graph.replay()
        check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize("seq_lens", [[700, 300], [3000]], ids=str)
@pytest.mark.parametrize("num_queries", [30, 300])
def test_a_launch_that_begins_early_waits_for_what_it_reads(seq_lens: list[int], num_queries: int) -> None:
    case = make_layout_case(seq_lens, [num_queries] * len(seq_lens), dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125)
    expected, _ = attend(case, options)
    keys, values = case.key_cache.clone(), case.value_cache.clone()
    tables = (case.block_tables, case.seq_lens)
    delay = torch.ones(1 << 24, device="cuda")

    for _ in range(10):
        query = torch.zeros_like(case.query)
        case.key_cache.zero_()
        case.value_cache.zero_()
        delay.mul_(1.5)
        query.copy_(case.query)
        case.key_cache.copy_(keys)
        case.value_cache.copy_(values)
        cache = (case.key_cache, case.value_cache)
        call = AttentionCall.to_new(query, *cache, *tables, options)
        output = paged_prefill(call, case.cu_seqlens_q, max_query_len=num_queries, overlap=True)
        assert torch.equal(output, expected)


@pytest.mark.gpu
def test_rows_of_no_sequence_are_left_alone() -> None:
    case = make_layout_case([300, 20], [3, 2], dtype=torch.float16, device="cuda")
    case.cu_seqlens_q[2] = 4

    output, _ = attend(case, AttentionOptions(scale=0.1))

    assert torch.isfinite(output[:4]).all()
    assert torch.isnan(output[4]).all()


@pytest.mark.parametrize("device", DEVICES)
def test_query_and_output_may_have_any_strides(device: str) -> None:
    case = make_layout_case([20, 40], [20, 3], dtype=torch.float16, device=device)
    options = AttentionOptions(scale=0.1)
    expected, _ = attend(case, options)
    wide = torch.zeros(*case.query.shape[:2], case.query.shape[2] + 1, dtype=torch.float16, device=device)
    query, output = wide[..., 1:], torch.zeros_like(wide)[..., 1:]
    query.copy_(case.query)

    paged_prefill(case.call(options).between(query, output), case.cu_seqlens_q, max_query_len=20)

    assert torch.equal(output, expected)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("cu_seqlens_q", lambda t: t[:-1], r"cu_seqlens_q has shape \[1\], expected \[2\]"),
        ("seq_lens", lambda t: t.long(), r"seq_lens is torch\.int64, expected torch\.int32"),
        ("query", lambda t: t[:, :3], r"query has 3 heads, expected a multiple of 2 KV heads"),
        ("query", lambda t: t.double(), r"query is torch\.float64 on cpu, expected torch\.float32 on cpu"),
    ],
)
def test_wrong_arguments_are_named(name: str, wrong: Callable[[torch.Tensor], torch.Tensor], message: str) -> None:
    case = make_layout_case([5], [5])
    tensors = {
        "query": case.query,
        "key_cache": case.key_cache,
        "value_cache": case.value_cache,
        "block_tables": case.block_tables,
        "seq_lens": case.seq_lens,
        "cu_seqlens_q": case.cu_seqlens_q,
    }
    tensors[name] = wrong(tensors[name])
    cu_seqlens_q = tensors.pop("cu_seqlens_q")
    call = AttentionCall.to_new(**tensors, options=AttentionOptions(scale=1.0))
    with pytest.raises(ValueError, match=message):
        paged_prefill(call, cu_seqlens_q, max_query_len=5)
