"""What layers do by either arithmetic is the same within rounding; by the one, each row as if it were alone."""

import pytest
import torch
from torch.nn import functional

from pagedchat.layers.arithmetic import FastArithmetic, InvariantArithmetic, use_arithmetic
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import GatedMlp, Mlp
from pagedchat.layers.norms import Norm, NormConfig
from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.layers.rotary_frequencies import RotaryConfig
from tests.ops.paged_case import DEVICES

WIDTH = 72
NORMS = [
    NormConfig(kind="rms", eps=1e-5),
    NormConfig(kind="rms", eps=1e-5, exact=True),
    NormConfig(kind="rms", eps=1e-5, offset=1.0),
    NormConfig(kind="layer", eps=1e-5, bias=True),
    NormConfig(kind="layer", eps=1e-5, bias=True, offset=1.0),
    NormConfig(kind="layer", eps=1e-5, weight=False),
]


def filled(layer: torch.nn.Module, device: str, dtype: torch.dtype) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data = (torch.randn(parameter.shape, generator=generator) * 0.3).to(device, dtype)
    return layer.eval()


def mlp(*, gated: bool) -> torch.nn.Module:
    up, down = Linear(WIDTH, 2 * 200 if gated else 200, bias=True), Linear(200, WIDTH, bias=False)
    return GatedMlp(up, down, "silu") if gated else Mlp(up, down, "gelu")


LAYERS = [
    lambda: Linear(WIDTH, 100, bias=True),
    lambda: mlp(gated=True),
    lambda: mlp(gated=False),
    *(lambda norm=norm: Norm(norm, WIDTH) for norm in NORMS),
]


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        *(("cpu", dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)),
        *(pytest.param("cuda", dtype, marks=pytest.mark.gpu) for dtype in (torch.float16, torch.bfloat16)),
    ],
)
@pytest.mark.parametrize("make", LAYERS)
def test_rows_are_the_same_alone_and_among_others(make: object, dtype: torch.dtype, device: str) -> None:
    layer = filled(make(), device, dtype)  # type: ignore[operator]
    rows = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(2)).to(device, dtype)
    fast = layer(rows)
    use_arithmetic(layer, InvariantArithmetic())
    among_others = layer(rows)
    torch.testing.assert_close(among_others, fast, atol=3e-2, rtol=3e-2)
    assert torch.equal(torch.cat([layer(row) for row in rows.split(1)]), among_others)
    assert torch.equal(layer(rows[7:30]), among_others[7:30])


@pytest.mark.parametrize("device", DEVICES)
def test_angles_too(device: str) -> None:
    rotary = RotaryEmbedding(RotaryConfig(10000.0), 20).to(device)
    use_arithmetic(rotary, InvariantArithmetic())
    positions = torch.arange(100, device=device)
    alone = [torch.cat(parts) for parts in zip(*map(rotary.turns, positions.split(1)), strict=True)]
    assert all(map(torch.equal, rotary.turns(positions), alone))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("config", NORMS, ids=str)
def test_a_sum_and_its_norm(config: NormConfig, device: str) -> None:
    norm = filled(Norm(config, WIDTH), device, torch.float16)
    hidden, update = (
        torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(seed)).to(device, torch.float16)
        for seed in (1, 2)
    )
    for arithmetic in (FastArithmetic(), InvariantArithmetic()):
        use_arithmetic(norm, arithmetic)
        stream, normed = norm.of_sum(hidden.clone(), update)
        assert torch.equal(stream, hidden + update)
        assert torch.equal(normed, norm(hidden + update))


def test_without_a_word_layers_do_what_torch_does() -> None:
    linear = filled(Linear(WIDTH, 100, bias=True), "cpu", torch.float32)
    rows = torch.randn(3, WIDTH)
    assert torch.equal(linear(rows), functional.linear(rows, linear.weight, linear.bias))  # type: ignore[arg-type]
