"""From how many pairs of an expert on which way of its products is the quickest: `python -m tools.measure_experts
[LAYER ...]`.

Layers of Qwen3-30B-A3B, OLMoE, Qwen1.5-MoE, gpt-oss and Mixtral in bfloat16, in every way there is on a GPU, for a
few tokens and for as many as give each expert so many pairs on average; and the same with weights in few bits. What
`pagedchat/ops/experts/expert_plan.py` and `few_bits_tiles.py` choose by; changes nothing.
"""

import sys

import torch

from pagedchat.bench.kernels.products.experts import IN_FEW_BITS, ExpertInputs, FewBitsInputs
from pagedchat.bench.kernels.products.shapes import ExpertsShape
from pagedchat.bench.kernels.timing import time_in_graph
from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.few_bits_tiles import TILE_ROWS

_LAYERS = {
    "Qwen3-30B-A3B": (2048, 768, 128, 8),
    "OLMoE": (2048, 1024, 64, 8),
    "Qwen1.5-MoE-A2.7B": (2048, 1408, 60, 4),
    "gpt-oss-20b": (2880, 2880, 32, 4),
    "Mixtral-8x7B": (4096, 14336, 8, 2),
}
_FEW_TOKENS = (1, 2, 4, 8)
_AVERAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_REGISTERS = 16
"""Pairs on average, up to which weights in registers are measured, and beyond which warpgroups are."""


def main(names: list[str]) -> int:
    """Print a line for each number of pairs; returns the exit code."""
    layers = {name: layer for name, layer in _LAYERS.items() if name in (names or _LAYERS)}
    with torch.inference_mode():
        for name, layer in layers.items():
            _, _, num_experts, per_token = layer
            enough = [average * num_experts // per_token for average in _AVERAGES]
            for num_tokens in [*(few for few in _FEW_TOKENS if few < enough[0]), *enough]:
                average = num_tokens * per_token / num_experts
                shape = ExpertsShape(num_tokens, *layer)
                for kind in ("16 bits", *IN_FEW_BITS):
                    times = _times(shape, average) if kind == "16 bits" else _few_bits_times(shape, kind)
                    best = min(times, key=times.__getitem__)
                    shown = ", ".join(f"{way} {us:.1f}" for way, us in times.items())
                    print(
                        f"{name}, {kind}, {num_tokens} tokens, {average:g} pairs of an expert, us: {shown}; {best}",
                        flush=True,
                    )
                    torch.cuda.empty_cache()
    return 0


def _times(shape: ExpertsShape, average: float) -> dict[str, float]:
    """Microseconds by way."""
    plans = [ExpertPlan("tiles", rows) for rows in (32, 64, 128)]
    if average <= _REGISTERS:
        plans.insert(0, ExpertPlan("registers", 8))
    else:
        plans.append(ExpertPlan("warpgroups", 128))
    return _times_of(ExpertInputs(shape, plans[0]), plans)


def _few_bits_times(shape: ExpertsShape, kind: str) -> dict[str, float]:
    plans = [ExpertPlan("few bits", rows) for rows in TILE_ROWS]
    return _times_of(FewBitsInputs(shape, kind, plans[0]), plans)


def _times_of(inputs: ExpertInputs, plans: list[ExpertPlan]) -> dict[str, float]:
    times = {}
    for plan in plans:
        inputs.group_by(plan)
        times[f"{plan.way} {plan.tile_rows}"] = time_in_graph(inputs.calls()).us
    return times


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
