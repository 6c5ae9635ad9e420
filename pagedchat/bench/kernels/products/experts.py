"""Both products of a mixture of experts, in bfloat16, its pairs grouped by expert beforehand: ours, with weights in
few bits too, torch's grouped product, and cuBLAS expert by expert, whose caller would have to know on the host who
has which.
"""

from collections.abc import Sequence
from functools import partial
from math import gcd

import torch
from torch.nn import functional

from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work, relative_error
from pagedchat.bench.kernels.products.beside_torch import measure_beside_torch
from pagedchat.bench.kernels.products.grouped_experts import grouped_experts
from pagedchat.bench.kernels.products.shapes import EXPERTS, ExpertsShape
from pagedchat.bench.kernels.random_cache import DEVICE, num_rotated_sets
from pagedchat.bench.kernels.timing import Call
from pagedchat.jit.driver import gpu
from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import ExpertPlan, plan_experts, plan_few_bits_experts
from pagedchat.ops.experts.expert_weight import ExpertWeight
from pagedchat.ops.experts.gate import SILU
from pagedchat.ops.experts.group_pairs import Groups, group_pairs
from pagedchat.ops.experts.stacked_weight import StackedWeight
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import stacked

GROUPED, ONE_BY_ONE = "torch grouped_mm", "cuBLAS by expert"
IN_FEW_BITS = {"int8": "ours, int8", "int4": "ours, int4"}
_GROUP = 128
"""Elements of a row that have a scale in common, in 4 bits; fewer where that does not divide rows."""
_MOST_SETS = 8
"""Of tokens. Fewer experts than exceed the L2 cache come up again in the next set by chance alone."""
_CHECKED_PAIRS = 32


def measure_experts(bench: Bench, shapes: Sequence[ExpertsShape] = EXPERTS) -> list[Figure]:
    """`expert_linear` into the experts and out of them."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: ExpertsShape) -> list[Figure]:
    inputs = ExpertInputs(shape)
    ways = {OURS: inputs.calls, GROUPED: inputs.grouped_calls, ONE_BY_ONE: inputs.calls_by_expert}
    figures = measure_beside_torch(bench, "experts", shape, inputs.moved_bytes, inputs.check, ways)
    return figures + [figure for kind in IN_FEW_BITS for figure in _measure_few_bits(bench, shape, kind)]


def _measure_few_bits(bench: Bench, shape: ExpertsShape, kind: str) -> list[Figure]:
    inputs = FewBitsInputs(shape, kind)
    work = Work(
        section="experts",
        shape=str(shape),
        moved_bytes=inputs.moved_bytes,
        limit_gb_s=bench.limits.copy,
        flops=shape.flops,
    )
    return bench.run(work, [Contender(name=IN_FEW_BITS[kind], prepare=inputs.calls, check=inputs.check)])


class ExpertInputs:
    """The weights of a layer, and several sets of tokens with experts drawn at random.

    Args:
        shape: of the layer and the tokens.
        plan: by which our kernels go; None takes that of a step.
    """

    groups: list[Groups]

    def __init__(self, shape: ExpertsShape, plan: ExpertPlan | None = None) -> None:
        self.shape = shape
        self.gate_up = _random(shape.num_experts, 2 * shape.width, shape.hidden) / shape.hidden**0.5
        self.down = _random(shape.num_experts, shape.hidden, shape.width) / shape.width**0.5
        self.weights: tuple[ExpertWeight, ExpertWeight] = self.gate_up, self.down
        num_sets = min(_MOST_SETS, num_rotated_sets(shape.per_token * shape.expert_bytes))
        self.rows = _random(num_sets, shape.num_tokens, shape.hidden)
        likely = torch.rand(num_sets, shape.num_tokens, shape.num_experts, device=DEVICE)
        self.experts = likely.topk(shape.per_token, dim=-1).indices.int()
        self.group_by(self._plan() if plan is None else plan)

    def group_by(self, plan: ExpertPlan) -> None:
        """Have our kernels go by this plan from now on."""
        self.plan = plan
        self.groups = [group_pairs(experts, self.shape.num_experts, plan) for experts in self.experts]

    @property
    def moved_bytes(self) -> int:
        """Of a set on average: each expert that somebody has is read once."""
        return int(self._num_had * self.shape.expert_bytes) + self.shape.row_bytes

    @property
    def _num_had(self) -> float:
        """Experts that somebody has, of a set on average."""
        return sum(len(experts.unique()) for experts in self.experts) / len(self.experts)

    def calls(self) -> list[Call]:
        """By our kernels, or what takes their place on a CPU."""
        return [partial(self._ours, rows, groups) for rows, groups in zip(self.rows, self.groups, strict=True)]

    def grouped_calls(self) -> list[Call]:
        """By torch's grouped product, rows brought into order and back."""
        return [
            partial(grouped_experts, rows, self.gate_up, self.down, experts, groups.order)
            for rows, experts, groups in zip(self.rows, self.experts, self.groups, strict=True)
        ]

    def calls_by_expert(self) -> list[Call]:
        """By two products for each expert that somebody has."""
        return [
            partial(self._by_expert, rows, self._pairs_by_expert(experts))
            for rows, experts in zip(self.rows, self.experts, strict=True)
        ]

    def check(self, calls: Sequence[Call]) -> float:
        """Of the first pairs of the first set."""
        found = calls[0]()
        if not isinstance(found, torch.Tensor):
            return float("nan")
        experts = self.experts[0].flatten()[:_CHECKED_PAIRS].tolist()
        wanted = torch.stack([self._exact(pair, expert) for pair, expert in enumerate(experts)])
        return relative_error(found[: len(wanted)], wanted)

    def _plan(self) -> ExpertPlan:
        """That of a step."""
        shape = self.shape
        num_pairs = shape.num_tokens * shape.per_token
        if DEVICE == "cpu":
            return ExpertPlan("torch", num_pairs)
        return plan_experts(
            shape.hidden,
            shape.width,
            num_pairs,
            shape.num_experts,
            tensor_cores=True,
            shared_limit=gpu(0).shared_bytes,
            warpgroups=gpu(0).compute_capability == (9, 0),
        )

    def _ours(self, rows: torch.Tensor, groups: Groups) -> torch.Tensor:
        gate_up, down = self.weights
        middle = expert_linear(rows, gate_up, groups, self.plan, paired=True, after="groups")
        return expert_linear(middle, down, groups, self.plan, paired=False, after="rows")

    def _pairs_by_expert(self, experts: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        flat = experts.flatten()
        return [(expert, (flat == expert).nonzero()[:, 0]) for expert in sorted(set(flat.tolist()))]

    def _by_expert(self, rows: torch.Tensor, pairs: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        output = rows.new_empty(len(rows) * self.shape.per_token, self.shape.hidden)
        for expert, its_pairs in pairs:
            its_rows = rows.index_select(0, its_pairs // self.shape.per_token)
            middle = SILU(functional.linear(its_rows, self.gate_up[expert]))
            output.index_copy_(0, its_pairs, functional.linear(middle, self.down[expert]))
        return output

    def _exact(self, pair: int, expert: int) -> torch.Tensor:
        row = self.rows[0, pair // self.shape.per_token].double()
        gate, value = (self.gate_up[expert].double() @ row).chunk(2)
        middle = gate * gate.sigmoid() * value
        return torch.mv(self.down[expert].double(), middle)


class FewBitsInputs(ExpertInputs):
    """The same with weights in few bits; the floats are what they stand for.

    Args:
        shape: of the layer and the tokens.
        kind: int8, a scale a row; or int4 in groups.
        plan: as there.
    """

    def __init__(self, shape: ExpertsShape, kind: str, plan: ExpertPlan | None = None) -> None:
        few_plan = plan_few_bits_experts(shape.num_tokens * shape.per_token, shape.num_experts)
        super().__init__(shape, ExpertPlan("torch", few_plan.tile_rows) if DEVICE == "cpu" else plan or few_plan)
        into, out = (self._stacked(weight, kind) for weight in (self.gate_up, self.down))
        self.weights = into, out

    @property
    def moved_bytes(self) -> int:
        """Of a set on average: each expert that somebody has is read once."""
        of_all = sum(weight.rows_of_all.nbytes for weight in self.weights if isinstance(weight, StackedWeight))
        return int(self._num_had / self.shape.num_experts * of_all) + self.shape.row_bytes

    def _stacked(self, weight: torch.Tensor, kind: str) -> StackedWeight:
        """Digits and scales of random weights; they take the place of the floats."""
        num_experts, _, width = weight.shape
        bits, group = (4, gcd(_GROUP, width)) if kind == "int4" else (8, width)
        of_experts = [quantize(each.float(), bits, group) for each in weight]
        for floats, few in zip(weight, of_experts, strict=True):
            floats.copy_(few.dequantized(weight.dtype))
        return StackedWeight(num_experts, stacked(of_experts))


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
