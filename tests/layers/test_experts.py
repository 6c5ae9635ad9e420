from collections.abc import Iterable

import pytest
import torch

from pagedchat.jit.variant import Variant
from pagedchat.layers.experts import MixtureConfig, SparseMlp
from tests.ops.products.small_batch_case import normal
from tests.ops.recorder import recorded_launches

HIDDEN = 32


def made(**options: object) -> SparseMlp:
    config = {"num_experts": 5, "per_token": 2, "width": 16, "renormalised": True} | options
    layer = SparseMlp(MixtureConfig(**config), HIDDEN)  # type: ignore[arg-type]
    for i, parameter in enumerate(layer.parameters()):
        parameter.copy_(normal(*parameter.shape, device="cpu", dtype=torch.float32, scale=0.3, seed=i))
    return layer


def gated(rows: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = (rows @ gate_up.T).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up) @ down.T


@pytest.mark.parametrize("renormalised", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 13])
def test_a_token_gets_the_weighted_sum_of_its_experts(num_tokens: int, renormalised: bool) -> None:
    layer = made(renormalised=renormalised)
    rows = normal(num_tokens, HIDDEN, device="cpu", dtype=torch.float32)
    likely = (rows @ layer.router.weight.T).softmax(dim=-1)
    kept = torch.where(likely >= likely.sort(dim=-1).values[:, -2:-1], likely, 0)
    weights = kept / kept.sum(dim=-1, keepdim=True) if renormalised else kept
    each = torch.stack(
        [gated(rows, *pair) for pair in zip(layer.experts.gate_up, layer.experts.down, strict=True)], dim=1
    )
    torch.testing.assert_close(layer(rows), (weights[:, :, None] * each).sum(dim=1))


@pytest.mark.parametrize("has_gate", [False, True])
def test_a_shared_expert_is_added(has_gate: bool) -> None:
    layer = made(shared_width=20, gated_share=has_gate)
    assert (layer.shared_gate is not None) == has_gate
    rows = normal(4, HIDDEN, device="cpu", dtype=torch.float32)
    assert layer.shared is not None
    shared = gated(rows, layer.shared.gate_up.weight, layer.shared.down.weight)
    if layer.shared_gate is not None:
        shared = shared * (rows @ layer.shared_gate.weight.T).sigmoid()
    both = layer(rows)
    layer.shared = None
    layer.shared_gate = None
    torch.testing.assert_close(both, layer(rows) + shared)


def test_no_gate_without_a_shared_expert() -> None:
    assert made(gated_share=True).shared_gate is None


@pytest.mark.parametrize(("num_experts", "per_token"), [(4, 2), (60, 4), (200, 1)])
def test_a_few_sizes_of_batches_launch_all_kernels_that_any_size_does(num_experts: int, per_token: int) -> None:
    layer = made(num_experts=num_experts, per_token=per_token).half()

    def asked(sizes: Iterable[int]) -> set[Variant]:
        with recorded_launches((9, 0)) as launches:
            for num_tokens in sizes:
                layer(torch.zeros(num_tokens, HIDDEN, dtype=torch.float16))
        return {variant for variant, _ in launches}

    few = asked(layer.distinct_sizes())
    assert {"route_few", "route_tokens", "group_pairs", "sum_experts"} < {variant.stem for variant in few}
    assert asked([*range(1, 40), *range(40, 20_000, 397)]) <= few
