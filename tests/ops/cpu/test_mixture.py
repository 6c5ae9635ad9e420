"""A mixture of experts by CPU kernels: who has which expert, and what comes of it, against torch and float64."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.mixture import ExpertTables, Mixed, MixtureMemory
from pagedchat.ops.cpu.packing import packed_weight
from pagedchat.ops.cpu.product import Product, RowNorm, Rows
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.route_tokens import route_tokens
from pagedchat.ops.quantized.quantize import quantize
from tests.ops.cpu.mixture_case import mixed, tables
from tests.ops.experts.mixture_case import CLAMPED, Mixture, exact_products, exact_routes, make_mixture

OF_BYTES = 0.02
"""Inputs of both products are brought to 8 bits, each off by half a percent."""


def expected(mixture: Mixture, *, sums_to_one: bool = True) -> torch.Tensor:
    """float64."""
    experts, weights = exact_routes(mixture.logits, mixture.per_token, renormalised=sums_to_one)
    gate_up, down, gate_up_bias, down_bias = mixture.experts
    assert isinstance(gate_up, torch.Tensor)
    assert isinstance(down, torch.Tensor)
    middle = exact_products(mixture.rows, gate_up, experts, paired=True, bias=gate_up_bias, gate=mixture.gate)
    products = exact_products(middle, down, experts, paired=False, bias=down_bias)
    return (products.view(*weights.shape, -1) * weights[:, :, None]).sum(1)


def assert_close(result: torch.Tensor, wanted: torch.Tensor) -> None:
    off = (result.double() - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert (off < OF_BYTES).all(), off


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("gate", [SILU, CLAMPED], ids=["silu", "limited"])
@pytest.mark.parametrize(("num_rows", "num_experts", "per_token"), [(1, 8, 2), (7, 60, 4), (70, 5, 3), (33, 16, 1)])
def test_a_row_gets_the_weighted_sum_of_its_experts(
    kernels: CpuKernels, num_rows: int, num_experts: int, per_token: int, gate: Gate, bits: int
) -> None:
    given_mixture = make_mixture(num_rows, num_experts, per_token, hidden=128, width=96, gate=gate)
    made, meant = tables(kernels, given_mixture, bits)
    assert_close(mixed(kernels, made, given_mixture), expected(meant))


@pytest.mark.parametrize(("hidden", "width", "group"), [(80, 48, 16), (256, 32, 32), (48, 112, 16)])
def test_widths_that_fill_no_tile(kernels: CpuKernels, hidden: int, width: int, group: int) -> None:
    given_mixture = make_mixture(9, 6, 2, hidden=hidden, width=width)
    made, meant = tables(kernels, given_mixture, 8, group)
    assert_close(mixed(kernels, made, given_mixture), expected(meant))


def test_weights_that_do_not_sum_to_one(kernels: CpuKernels) -> None:
    given_mixture = make_mixture(5, 20, 3)
    made, meant = tables(kernels, given_mixture)
    made = made._replace(sums_to_one=False)
    assert_close(mixed(kernels, made, given_mixture), expected(meant, sums_to_one=False))


def test_it_is_added_to_rows_beside_what_all_share(kernels: CpuKernels) -> None:
    given_mixture = make_mixture(6, 9, 2)
    made, _ = tables(kernels, given_mixture)
    alone = mixed(kernels, made, given_mixture)
    hidden, shared, logits = torch.randn(6, 64), torch.randn(6, 64), torch.randn(6, 1)
    both = mixed(kernels, made, given_mixture, added_to=hidden, shared=shared)
    torch.testing.assert_close(both, hidden + alone + shared)
    gated = mixed(kernels, made, given_mixture, added_to=hidden, shared=shared, shared_logits=logits)
    torch.testing.assert_close(gated, hidden + alone + shared * logits.sigmoid())


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_rows_are_normed_on_the_way(kernels: CpuKernels, kind: str) -> None:
    given_mixture = make_mixture(4, 6, 2)
    rows, weight = given_mixture.rows, torch.rand(64) + 0.5
    normed = torch.nn.functional.rms_norm(rows, (64,), weight, 1e-5)
    if kind == "layer":
        normed = torch.nn.functional.layer_norm(rows, (64,), weight, None, 1e-5)
    made, _ = tables(kernels, given_mixture)
    wanted = mixed(kernels, made, Mixture(normed, given_mixture.logits, given_mixture.experts, 2))
    result = mixed(kernels, made, given_mixture, norm=RowNorm(kind, weight, None, 1e-5))
    assert_close(result, wanted.double())


@pytest.mark.parametrize("bits", [8, 4])
def test_a_row_is_the_same_in_any_company_bit_for_bit(kernels: CpuKernels, bits: int) -> None:
    crowd = make_mixture(64, 12, 3, hidden=128, width=64)
    made, _ = tables(kernels, crowd, bits)
    together = mixed(kernels, made, crowd)
    for row in (0, 17, 63):
        alone = Mixture(crowd.rows[row : row + 1].clone(), crowd.logits[row : row + 1].clone(), crowd.experts, 3)
        assert torch.equal(mixed(kernels, made, alone, room=64)[0], together[row])


def test_nobody_elses_row_is_touched_by_what_is_no_number(kernels: CpuKernels) -> None:
    crowd = make_mixture(8, 6, 2)
    made, _ = tables(kernels, crowd)
    whole = mixed(kernels, made, crowd)
    crowd.rows[3] = torch.nan
    crowd.logits[3] = torch.nan
    crowd.logits[5, 2] = torch.inf
    broken = mixed(kernels, made, crowd)
    others = [0, 1, 2, 4, 6, 7]
    assert torch.equal(broken[others], whole[others])
    assert broken[3].isnan().all()


def routed(kernels: CpuKernels, logits: torch.Tensor, per_token: int, *, sums_to_one: bool) -> MixtureMemory:
    """What there is after the first two jobs."""
    num_rows, num_experts = logits.shape
    given_mixture = make_mixture(num_rows, num_experts, per_token, hidden=32, width=32)
    made, _ = tables(kernels, given_mixture)
    made = made._replace(sums_to_one=sums_to_one)
    memory = MixtureMemory(num_rows, per_token, made.into, made.out)
    memory.logits[:] = logits
    rows = given_mixture.rows
    address = Rows(rows.data_ptr(), 32)
    jobs: list[Job] = [job for _, job in made.jobs(kernels, memory, address, num_rows, Mixed(address))][:2]
    Program(kernels.pool, jobs).run()
    return memory


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_pair_has_a_place_among_those_of_its_expert(kernels: CpuKernels, data: st.DataObject) -> None:
    num_experts = data.draw(st.integers(1, 40))
    per_token, num_rows = data.draw(st.integers(1, min(num_experts, 9))), data.draw(st.integers(1, 20))
    # Of few values, so that many are alike.
    values = st.lists(st.integers(-4, 4), min_size=num_experts, max_size=num_experts)
    logits = torch.tensor([data.draw(values) for _ in range(num_rows)], dtype=torch.float32)
    sums_to_one = data.draw(st.booleans())
    memory = routed(kernels, logits, per_token, sums_to_one=sums_to_one)
    experts, weights = exact_routes(logits, per_token, renormalised=sums_to_one)
    assert torch.equal(memory.experts.view(num_rows, per_token), experts)
    torch.testing.assert_close(memory.weights.view(num_rows, per_token).double(), weights, rtol=1e-5, atol=1e-7)
    by_torch = route_tokens(logits, per_token, renormalised=sums_to_one)
    torch.testing.assert_close(memory.weights.view(num_rows, per_token), by_torch.weights)
    places = memory.places.tolist()
    assert sorted(places) == list(range(num_rows * per_token))
    assert [int(memory.rows[place]) for place in places] == [pair // per_token for pair in range(len(places))]
    runs = [(expert, first, count) for expert, first, count in memory.runs.tolist() if count]
    assert [expert for expert, _, _ in runs] == sorted(set(experts.flatten().tolist()))
    assert all(count == 0 for _, _, count in memory.runs.tolist()[len(runs) :])
    for expert, first, count in runs:
        its_pairs = (memory.experts == expert).nonzero()[:, 0].tolist()
        assert [places[pair] for pair in its_pairs] == list(range(first, first + count))


def test_experts_of_several_forms_are_refused(kernels: CpuKernels) -> None:
    weights = [quantize(torch.randn(32, 64), bits, 32) for bits in (8, 4)]
    products = [Product(packed_weight(each, kernels.zero_of_8_bits), None) for each in weights]
    with pytest.raises(LookupError, match="not of one form"):
        ExpertTables(products)
    with pytest.raises(LookupError, match="not of one form"):
        ExpertTables([Product(torch.randn(32, 64), None)])
