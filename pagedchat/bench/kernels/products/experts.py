"""Both products of a mixture of experts, in bfloat16, its pairs grouped by expert beforehand: ours, torch's grouped
product, and cuBLAS expert by expert, whose caller would have to know on the host who has which.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn import functional

from pagedchat.bench.kernels.figures import OURS, Bench, Figure, relative_error
from pagedchat.bench.kernels.products.beside_torch import measure_beside_torch
from pagedchat.bench.kernels.products.grouped_experts import grouped_experts
from pagedchat.bench.kernels.products.shapes import EXPERTS, ExpertsShape
from pagedchat.bench.kernels.random_cache import DEVICE, num_rotated_sets
from pagedchat.bench.kernels.timing import Call
from pagedchat.jit.driver import gpu
from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import ExpertPlan, plan_experts
from pagedchat.ops.experts.gate import SILU
from pagedchat.ops.experts.group_pairs import Groups, group_pairs

GROUPED, ONE_BY_ONE = "torch grouped_mm", "cuBLAS by expert"
_MOST_SETS = 8
"""Of tokens. Fewer experts than exceed the L2 cache come up again in the next set by chance alone."""
_CHECKED_PAIRS = 32


def measure_experts(bench: Bench, shapes: Sequence[ExpertsShape] = EXPERTS) -> list[Figure]:
    """`expert_linear` into the experts and out of them."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: ExpertsShape) -> list[Figure]:
    inputs = ExpertInputs(shape)
    ways = {OURS: inputs.calls, GROUPED: inputs.grouped_calls, ONE_BY_ONE: inputs.calls_by_expert}
    return measure_beside_torch(bench, "experts", shape, inputs.moved_bytes, inputs.check, ways)


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
        had = sum(len(experts.unique()) for experts in self.experts) / len(self.experts)
        return int(had * self.shape.expert_bytes) + self.shape.row_bytes

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
        middle = expert_linear(rows, self.gate_up, groups, self.plan, paired=True, after="groups")
        return expert_linear(middle, self.down, groups, self.plan, paired=False, after="rows")

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


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
