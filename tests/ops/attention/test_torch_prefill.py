import pytest
import torch

from pagedchat.ops.attention import dense_attention
from pagedchat.ops.attention import torch_prefill as module
from pagedchat.ops.attention.torch_prefill import plan_torch_prefill, torch_prefill
from tests.ops.cuda_layout_case import make_sinks
from tests.ops.paged_case import DEVICES, PagedCase, make_case, tolerance

# (seq_lens, query_lens): whole prompts, later chunks, chunks of one, all mixed
CHUNKS = [
    ([5], [5]),
    ([16, 3], [16, 3]),
    ([9], [4]),
    ([9, 12, 7], [1, 12, 3]),
    ([33, 8, 20, 5], [2, 8, 19, 5]),
]
RULES = [("alibi_slopes",), ("sinks",), ("alibi_slopes", "sinks", "cap")]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def attend(
    case: PagedCase, *, scale: float = 0.4, window: int | None = None, **rule: float | torch.Tensor | None
) -> torch.Tensor:
    query = torch.cat(case.query)
    lens = list(zip(case.key, case.value, case.query_lens, strict=True))
    plan = plan_torch_prefill(
        case.block_tables,
        case.query_lens,
        case.seq_lens,
        block_size=case.key_cache.shape[1],
        dtype=query.dtype,
        device=query.device,
        sliding_window=window,
    )
    key = torch.cat([key[-length:] for key, _, length in lens])
    value = torch.cat([value[-length:] for _, value, length in lens])
    return torch_prefill(query, key, value, case.key_cache, case.value_cache, plan, scale=scale, **rule)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_agrees_with_dense_attention(
    chunks: tuple[list[int], list[int]], heads: tuple[int, int], device: str
) -> None:
    case = make_case(*chunks, num_heads=heads[0], num_kv_heads=heads[1], device=device)
    torch.testing.assert_close(attend(case).cpu().double(), case.expected(0.4), **tolerance(torch.float32))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type(dtype: torch.dtype, device: str) -> None:
    case = make_case([9, 30], [9, 11], dtype=dtype, device=device)
    output = attend(case)
    assert output.dtype == dtype
    torch.testing.assert_close(output.cpu().double(), case.expected(0.4), **tolerance(dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", [1, 3, 8, 100])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_sliding_window(chunks: tuple[list[int], list[int]], window: int, device: str) -> None:
    case = make_case(*chunks, device=device)
    output = attend(case, window=window).cpu().double()
    torch.testing.assert_close(output, case.expected(0.4, window), **tolerance(torch.float32))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_soft_cap(chunks: tuple[list[int], list[int]], device: str) -> None:
    case = make_case(*chunks, device=device)
    output = attend(case, scale=3.0, cap=2.0).cpu().double()
    torch.testing.assert_close(output, case.expected(3.0, cap=2.0), **tolerance(torch.float32))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("names", RULES, ids=" ".join)
@pytest.mark.parametrize("at_once", [1 << 20, 100])
def test_slopes_and_sinks(
    at_once: int,
    names: tuple[str, ...],
    window: int | None,
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense_attention, "MAX_SCORES", at_once)
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01], device=device)
    known = {"alibi_slopes": slopes, "sinks": make_sinks(4, device), "cap": 2.0}
    rule = {name: known[name] for name in names}
    case = make_case([33, 8, 20, 5], [2, 8, 19, 5], dtype=dtype, device=device)
    output = attend(case, window=window, **rule)
    torch.testing.assert_close(output.cpu().double(), case.expected(0.4, window, **rule), **tolerance(dtype))


@pytest.mark.parametrize("window", [None, 6])
def test_long_chunk_is_cut_into_pieces(monkeypatch: pytest.MonkeyPatch, window: int | None) -> None:
    monkeypatch.setattr(module, "MAX_SCORES", 64)
    case = make_case([30, 12], [20, 5])
    output = attend(case, window=window).double()
    torch.testing.assert_close(output, case.expected(0.4, window), **tolerance(torch.float32))


def test_wrong_arguments_are_named() -> None:
    case = make_case([5], [5])
    plan = plan_torch_prefill([[0, 1]], [5], [5], block_size=4, dtype=torch.float32, device=torch.device("cpu"))
    query = torch.cat(case.query)
    with pytest.raises(ValueError, match=r"key has shape \[4, 2, 8\], expected \[5, 2, 8\]"):
        torch_prefill(query, case.key[0][:4], case.value[0], case.key_cache, case.value_cache, plan, scale=1.0)
