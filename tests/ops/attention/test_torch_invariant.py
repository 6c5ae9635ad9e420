from typing import Any

import pytest
import torch

from pagedchat.ops.attention.torch_invariant import plan_torch_invariant, torch_invariant
from tests.ops.paged_case import PagedCase, make_case, tolerance

SEQ_LENS, QUERY_LENS = [33, 8, 20, 5], [2, 8, 19, 5]
SLOPES, SINKS = torch.tensor([0.5, 0.25, 0.1, 0.01]), torch.tensor([2.0, -1.0, float("-inf"), 5.0])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def attend(case: PagedCase, **options: Any) -> torch.Tensor:
    return attend_with(torch.cat(case.query), case, case.block_tables, case.query_lens, case.seq_lens, **options)


def attend_with(
    query: torch.Tensor,
    case: PagedCase,
    tables: list[list[int]],
    query_lens: list[int],
    seq_lens: list[int],
    scale: float = 0.4,
    window: int | None = None,
    cap: float | None = None,
    of_heads: dict[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    plan = plan_torch_invariant(
        tables, query_lens, seq_lens, block_size=case.key_cache.shape[1], sliding_window=window
    )
    return torch_invariant(query, case.key_cache, case.value_cache, plan, scale=scale, cap=cap, **of_heads or {})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 6])
def test_agrees_with_dense_attention(dtype: torch.dtype, window: int | None) -> None:
    case = make_case(SEQ_LENS, QUERY_LENS, dtype=dtype)
    output = attend(case, window=window)
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), case.expected(0.4, window), **tolerance(dtype))


def test_soft_cap() -> None:
    case = make_case(SEQ_LENS, QUERY_LENS)
    output = attend(case, scale=3.0, cap=2.0).double()
    torch.testing.assert_close(output, case.expected(3.0, cap=2.0), **tolerance(torch.float32))


@pytest.mark.parametrize("of_heads", [{"alibi_slopes": SLOPES}, {"sinks": SINKS}], ids=["slopes", "sinks"])
def test_slopes_and_sinks(of_heads: dict[str, torch.Tensor]) -> None:
    case = make_case(SEQ_LENS, QUERY_LENS)
    output = attend(case, window=6, of_heads=of_heads).double()
    expected = case.expected(0.4, 6, **of_heads)
    torch.testing.assert_close(output, expected, **tolerance(torch.float32))
    assert not torch.allclose(output, case.expected(0.4, 6), atol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("of_heads", [{}, {"alibi_slopes": SLOPES, "sinks": SINKS}], ids=["plain", "finished"])
@pytest.mark.parametrize("window", [None, 6])
def test_a_token_is_the_same_as_a_decode_and_in_a_chunk(
    dtype: torch.dtype, window: int | None, of_heads: dict[str, torch.Tensor]
) -> None:
    case = make_case(SEQ_LENS, QUERY_LENS, dtype=dtype, head_dim=20)
    together, row = attend(case, window=window, of_heads=of_heads), 0
    for query, table, length in zip(case.query, case.block_tables, SEQ_LENS, strict=True):
        for i, token in enumerate(query):
            seq_len = length - len(query) + i + 1
            alone = attend_with(token[None], case, [table], [1], [seq_len], window=window, of_heads=of_heads)
            assert torch.equal(alone[0], together[row])
            row += 1


def test_wrong_arguments_are_named() -> None:
    case = make_case([5], [5])
    with pytest.raises(ValueError, match=r"query has shape \[4, 4, 8\], expected \[5, \*, 8\]"):
        attend_with(case.query[0][:4], case, case.block_tables, [5], [5])
