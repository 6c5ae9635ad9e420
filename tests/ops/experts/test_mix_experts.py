"""A whole mixture: every way of its products gives what the definition gives, and can be captured."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pagedchat.ops.experts import mix_experts as mix
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.mix_experts import mix_experts
from tests.ops.experts.mixture_case import CLAMPED, Mixture, exact_products, exact_routes, make_mixture
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import allowed, error
from tests.ops.recorder import recorded_launches


def mixed(mixture: Mixture, *, renormalised: bool = True) -> torch.Tensor:
    return mix_experts(
        mixture.rows,
        mixture.logits,
        mixture.experts,
        per_token=mixture.per_token,
        renormalised=renormalised,
        gate=mixture.gate,
    )


def exact(mixture: Mixture, *, renormalised: bool) -> torch.Tensor:
    """In float64."""
    experts, weights = exact_routes(mixture.logits, mixture.per_token, renormalised=renormalised)
    into, out, bias_into, bias_out = mixture.experts
    middle = exact_products(mixture.rows, into, experts, paired=True, bias=bias_into, gate=mixture.gate)
    products = exact_products(middle, out, experts, paired=False, bias=bias_out)
    return (products.view(*experts.shape, -1) * weights[:, :, None]).sum(dim=1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("renormalised", [False, True])
@pytest.mark.parametrize("gate", [SILU, CLAMPED], ids=["silu", "clamped"])
@pytest.mark.parametrize("num_tokens", [1, 9, 120])
def test_agrees_with_the_definition(
    num_tokens: int, gate: Gate, renormalised: bool, dtype: torch.dtype, device: str
) -> None:
    mixture = make_mixture(num_tokens, 5, 2, dtype=dtype, device=device, gate=gate)
    # far apart, so that rounding leaves everybody the experts that they have
    spread = (mixture.logits.float().argsort(dim=1).argsort(dim=1) / 4).to(dtype)
    mixture = replace(mixture, logits=spread)
    wanted = exact(mixture, renormalised=renormalised)
    limit = 2e-6 if dtype == torch.float32 else 2 * allowed(dtype)
    assert error(mixed(mixture, renormalised=renormalised), wanted) < limit


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("num_tokens", [1, 40, 900])
def test_a_captured_mixture_follows_its_router(num_tokens: int, dtype: torch.dtype) -> None:
    first, second = (
        make_mixture(num_tokens + more, 16, 4, hidden=256, width=128, dtype=dtype, device="cuda") for more in (0, 1)
    )
    second = replace(second, rows=second.rows[1:], logits=second.logits[1:])
    held = replace(first, rows=first.rows.clone(), logits=first.logits.clone())
    mixed(held)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # whatever waits for the device is an error in here
        output = mixed(held)
    for other in (first, second, first):
        held.rows.copy_(other.rows)
        held.logits.copy_(other.logits)
        graph.replay()
        wanted = mixed(replace(other, experts=held.experts))
        assert torch.equal(output, wanted)


@pytest.mark.parametrize(
    ("dtype", "options", "way"),
    [
        (torch.bfloat16, {}, "warpgroups"),
        (torch.float16, {}, "warpgroups"),
        (torch.bfloat16, {"gate": CLAMPED}, "warpgroups"),
        (torch.bfloat16, {"batch_invariant": True}, "tiles"),
        (torch.float32, {}, "cuda cores"),
    ],
)
def test_many_pairs_go_by_warpgroups_where_nothing_speaks_against_it(
    dtype: torch.dtype, options: dict[str, Any], way: str
) -> None:
    exact = options.get("batch_invariant", False)
    mixture = make_mixture(1, 5, 2, dtype=dtype, gate=options.get("gate", SILU))
    with recorded_launches((9, 0)):
        assert mix._plan(mixture.rows, mixture.experts, 1000, exact).way == way
    with recorded_launches((8, 0)):
        elsewhere = "tiles" if way == "warpgroups" else way
        assert mix._plan(mixture.rows, mixture.experts, 1000, exact).way == elsewhere


def test_wrong_shapes_are_named() -> None:
    mixture = make_mixture(3, 5, 2)
    with pytest.raises(ValueError, match=r"logits has shape \[3, 4\], expected \[3, 5\]"):
        mixed(replace(mixture, logits=mixture.logits[:, :4]))
    with pytest.raises(ValueError, match=r"gate_up has shape \[5, 62, 64\], expected \[5, 64, 64\]"):
        mixed(replace(mixture, experts=mixture.experts._replace(gate_up=mixture.experts.gate_up[:, :62])))
