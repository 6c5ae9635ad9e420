import pytest
import torch

from pagedchat.ops.attention import decode_gathered
from pagedchat.ops.attention.decode_in_place import RowLayout
from pagedchat.ops.attention.torch_decode import plan_torch_decode, torch_decode
from tests.ops.cuda_layout_case import make_sinks
from tests.ops.paged_case import DEVICES, PagedCase, make_case, tolerance

SEQ_LENS = [[1], [4], [5], [1, 1, 1], [16, 16], [1, 33, 7, 16], [40, 3, 39, 20, 2, 64]]
HEADS = [(4, 4), (4, 2), (6, 1)]
RULES = [("alibi_slopes",), ("sinks",), ("alibi_slopes", "sinks", "cap")]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def attend(
    case: PagedCase, *, scale: float = 0.4, window: int | None = None, **rule: float | torch.Tensor | None
) -> torch.Tensor:
    query = torch.cat(case.query)
    plan = plan_torch_decode(
        case.block_tables,
        case.seq_lens,
        block_size=case.key_cache.shape[1],
        num_heads=query.shape[1],
        num_kv_heads=case.key_cache.shape[2],
        dtype=query.dtype,
        device=query.device,
        sliding_window=window,
    )
    return torch_decode(query, case.key_cache, case.value_cache, plan, scale=scale, **rule)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("seq_lens", SEQ_LENS)
def test_agrees_with_dense_attention(seq_lens: list[int], heads: tuple[int, int], device: str) -> None:
    case = make_case(seq_lens, [1] * len(seq_lens), num_heads=heads[0], num_kv_heads=heads[1], device=device)
    torch.testing.assert_close(attend(case).cpu().double(), case.expected(0.4), **tolerance(torch.float32))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type(dtype: torch.dtype, device: str) -> None:
    case = make_case([9, 30, 31], [1, 1, 1], dtype=dtype, device=device)
    output = attend(case)
    assert output.dtype == dtype
    torch.testing.assert_close(output.cpu().double(), case.expected(0.4), **tolerance(dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("window", [1, 4, 6, 100])
def test_sliding_window(window: int, dtype: torch.dtype, device: str) -> None:
    case = make_case([3, 17, 40], [1, 1, 1], dtype=dtype, device=device)
    output = attend(case, window=window).cpu().double()
    torch.testing.assert_close(output, case.expected(0.4, window), **tolerance(dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_soft_cap(dtype: torch.dtype, device: str) -> None:
    case = make_case([3, 17, 40], [1, 1, 1], dtype=dtype, device=device)
    output = attend(case, scale=3.0, cap=2.0).cpu().double()
    torch.testing.assert_close(output, case.expected(3.0, cap=2.0), **tolerance(dtype))


def make_rule(names: tuple[str, ...], device: str) -> dict[str, torch.Tensor | float]:
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01], device=device)
    known = {"alibi_slopes": slopes, "sinks": make_sinks(4, device), "cap": 2.0}
    return {name: known[name] for name in names}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lens", [[3, 17, 40], [9, 9]], ids=str)
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("names", RULES, ids=" ".join)
def test_slopes_and_sinks(
    names: tuple[str, ...], window: int | None, lens: list[int], dtype: torch.dtype, device: str
) -> None:
    case, rule = make_case(lens, [1] * len(lens), dtype=dtype, device=device), make_rule(names, device)
    output = attend(case, window=window, **rule)
    assert output.dtype == dtype
    torch.testing.assert_close(output.cpu().double(), case.expected(0.4, window, **rule), **tolerance(dtype))


def test_scores_far_apart_do_not_overflow() -> None:
    case = make_case([20, 5], [1, 1])
    output = attend(case, scale=1e4)
    torch.testing.assert_close(output.double(), case.expected(1e4), **tolerance(torch.float32))


def test_query_may_be_a_strided_view() -> None:
    case = make_case([6, 6], [1, 1])
    query = torch.cat(case.query).transpose(0, 1).contiguous().transpose(0, 1)
    case.query = list(query.split(1))
    torch.testing.assert_close(attend(case).double(), case.expected(0.4), **tolerance(torch.float32))


def test_cpu_reads_in_place_and_elsewhere_contexts_are_gathered() -> None:
    common = {"block_size": 4, "num_heads": 4, "num_kv_heads": 2, "device": torch.device("cpu")}
    in_place = plan_torch_decode([[0]], [3], dtype=torch.float32, **common)
    gathered = plan_torch_decode([[0]], [3], dtype=torch.float16, **common)
    assert isinstance(in_place.layout, RowLayout)
    assert isinstance(gathered.layout, list)


def test_groups_hold_similar_lengths_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_gathered, "MAX_GATHERED_TOKENS", 100)
    contexts = [torch.arange(length) for length in [40, 3, 39, 21, 2, 64]]
    groups = decode_gathered.plan_groups(contexts, torch.float32, torch.device("cpu"))
    assert [group.members.tolist() for group in groups] == [[5], [0, 2], [3], [1, 4]]
    assert all(group.slots.numel() <= 100 for group in groups)


def test_wrong_arguments_are_named() -> None:
    case = make_case([3, 4], [1, 1])
    plan = plan_torch_decode(
        case.block_tables, case.seq_lens, block_size=4, num_heads=4, num_kv_heads=2,
        dtype=torch.float32, device=torch.device("cpu"),
    )  # fmt: skip
    query = torch.cat(case.query)
    with pytest.raises(ValueError, match=r"query has shape \[1, 4, 8\], expected \[2, 4, 8\]"):
        torch_decode(query[:1], case.key_cache, case.value_cache, plan, scale=1.0)
    with pytest.raises(ValueError, match=r"query is torch\.float64 on cpu, expected torch\.float32 on cpu"):
        torch_decode(query.double(), case.key_cache, case.value_cache, plan, scale=1.0)
    case.block_tables[1] = []
    with pytest.raises(ValueError, match="block_table has 0 blocks of 4, expected 1 for 4 tokens"):
        attend(case)
