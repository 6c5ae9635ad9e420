import math

import pytest
import torch

from pagedchat.ops.attention.merge_attn_states import merge_attn_states
from tests.ops.paged_case import DEVICES

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
HEAD_SIZES = [32, 64, 80, 96, 112, 128, 256]
SHAPES = [(1, 1), (3, 5), (70, 12)]  # num_tokens, num_heads
INFINITY = float("inf")


def expected(
    prefix: torch.Tensor, prefix_lse: torch.Tensor, suffix: torch.Tensor, suffix_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """From the definition, in float64 on the CPU; every log-sum-exp finite."""
    prefix, prefix_lse, suffix, suffix_lse = (t.cpu().double() for t in (prefix, prefix_lse, suffix, suffix_lse))
    lse = torch.logsumexp(torch.stack([prefix_lse, suffix_lse]), dim=0)
    shares = [(side_lse - lse).exp()[..., None] for side_lse in (prefix_lse, suffix_lse)]
    return shares[0] * prefix + shares[1] * suffix, lse


def rounding(dtype: torch.dtype) -> dict[str, float]:
    """One rounding of the result, and that of float32 log-sum-exps of about 10 before it."""
    return {"rtol": torch.finfo(dtype).eps, "atol": 1e-5}


def random_side(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape, device=device).to(dtype), 4 * torch.randn(shape[:2], device=device)


def merged(
    prefix: torch.Tensor, prefix_lse: torch.Tensor, suffix: torch.Tensor, suffix_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    output = torch.full_like(prefix, float("nan"), memory_format=torch.contiguous_format)
    lse = torch.full(prefix_lse.shape, float("nan"), device=prefix.device)
    merge_attn_states(output, lse, prefix, prefix_lse, suffix, suffix_lse)
    return output, lse


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_the_definition(
    shape: tuple[int, int], head_size: int, dtype: torch.dtype, device: str
) -> None:
    sides = [random_side((*shape, head_size), dtype, device) for _ in range(2)]
    output, lse = merged(*sides[0], *sides[1])
    wanted, wanted_lse = expected(*sides[0], *sides[1])
    torch.testing.assert_close(output.cpu().double(), wanted, **rounding(dtype))
    torch.testing.assert_close(lse.cpu().double(), wanted_lse, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("empty", "empty_too"), [(-INFINITY, -INFINITY), (INFINITY, INFINITY), (INFINITY, -INFINITY)], ids=str
)
def test_side_without_keys_does_not_count(empty: float, empty_too: float, dtype: torch.dtype, device: str) -> None:
    (prefix, prefix_lse), (suffix, suffix_lse) = (random_side((3, 2, 64), dtype, device) for _ in range(2))
    prefix_lse[0], suffix_lse[1] = empty, empty
    prefix_lse[2], suffix_lse[2] = empty, empty_too
    prefix[0], suffix[1], prefix[2] = float("nan"), float("nan"), float("nan")
    output, lse = merged(prefix, prefix_lse, suffix, suffix_lse)
    assert torch.equal(output[0], suffix[0])
    assert torch.equal(lse[0], suffix_lse[0])
    assert torch.equal(output[1], prefix[1])
    assert torch.equal(lse[1], prefix_lse[1])
    assert torch.equal(output[2], torch.zeros_like(output[2]))
    assert bool((lse[2] == -INFINITY).all())


@pytest.mark.parametrize("device", DEVICES)
def test_far_apart_and_large_log_sums(device: str) -> None:
    prefix, suffix = (torch.randn(2, 1, 64, device=device) for _ in range(2))
    prefix_lse = torch.tensor([[5000.0], [-5000.0]], device=device)
    suffix_lse = torch.tensor([[-5000.0], [-5000.0]], device=device)
    output, lse = merged(prefix, prefix_lse, suffix, suffix_lse)
    torch.testing.assert_close(output[0], prefix[0])
    torch.testing.assert_close(output[1], (prefix[1] + suffix[1]) / 2)
    torch.testing.assert_close(lse.cpu(), torch.tensor([[5000.0], [math.log(2) - 5000.0]]))


@pytest.mark.parametrize("device", DEVICES)
def test_strided_inputs_and_no_log_sum_wanted(device: str) -> None:
    sides = [random_side((4, 6, 64), torch.float16, device) for _ in range(2)]
    flipped = [(out.transpose(0, 1), lse.transpose(0, 1)) for out, lse in sides]
    output = torch.full((6, 4, 64), float("nan"), dtype=torch.float16, device=device)
    merge_attn_states(output, None, *flipped[0], *flipped[1])
    torch.testing.assert_close(
        output.cpu().double(), expected(*flipped[0], *flipped[1])[0], **rounding(torch.float16)
    )


def test_nothing_to_merge() -> None:
    output, lse = merged(
        *random_side((0, 4, 64), torch.float32, "cpu"), *random_side((0, 4, 64), torch.float32, "cpu")
    )
    assert output.shape == (0, 4, 64)
    assert lse.shape == (0, 4)


@pytest.mark.gpu
def test_captured_in_a_graph() -> None:
    sides = [random_side((9, 4, 128), torch.float16, "cuda") for _ in range(2)]
    output, lse = merged(*sides[0], *sides[1])  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        merge_attn_states(output, lse, *sides[0], *sides[1])
    for side in sides:
        side[0].normal_()
        side[1].normal_()
    graph.replay()
    torch.testing.assert_close(output.cpu().double(), expected(*sides[0], *sides[1])[0], **rounding(torch.float16))


@pytest.mark.gpu
def test_more_than_four_gibi_elements() -> None:
    shape = (1 << 20, 17, 256)
    prefix, output = (torch.zeros(shape, dtype=torch.float16, device="cuda") for _ in range(2))
    lse = torch.zeros(shape[:2], device="cuda")
    prefix[-1] = 3
    merge_attn_states(output, None, prefix, lse, prefix, lse)
    assert torch.equal(output[-1], prefix[-1])
    assert not bool(output[:-1].any())


def test_wrong_arguments_are_named() -> None:
    output, lse = torch.zeros(3, 2, 64), torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"suffix_output has shape \[3, 2, 32\], expected \[3, 2, 64\]"):
        merge_attn_states(output, lse, output, lse, torch.zeros(3, 2, 32), lse)
    with pytest.raises(ValueError, match=r"prefix_output is torch\.float16 on cpu, expected torch\.float32 on cpu"):
        merge_attn_states(output, lse, output.half(), lse, output, lse)
    with pytest.raises(ValueError, match=r"prefix_lse is torch\.float16, expected torch\.float32"):
        merge_attn_states(output, lse, output, lse.half(), output, lse)
    with pytest.raises(ValueError, match=r"suffix_lse has shape \[2, 3\], expected \[3, 2\]"):
        merge_attn_states(output, None, output, lse, output, lse.T)
