"""Mixtures of experts with weights of few bits, for CPU kernels."""

import torch

from pagedchat.jit.cpu.pool import Program
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.mixture import CpuMixture, ExpertTables, Mixed, MixtureMemory
from pagedchat.ops.cpu.packing import packed_weight
from pagedchat.ops.cpu.product import Product, RowNorm, Rows
from pagedchat.ops.quantized.quantize import quantize
from tests.ops.experts.mixture_case import Mixture


def table(
    kernels: CpuKernels, weights: torch.Tensor, bits: int, group: int, biases: torch.Tensor | None
) -> tuple[ExpertTables, torch.Tensor]:
    """For kernels, and what the few bits mean."""
    few = [quantize(weight, bits, group) for weight in weights]
    products = [Product(packed_weight(each, kernels.zero_of_8_bits), None) for each in few]
    return ExpertTables(products, biases), torch.stack([each.dequantized() for each in few])


def tables(kernels: CpuKernels, mixture: Mixture, bits: int = 8, group: int = 32) -> tuple[CpuMixture, Mixture]:
    gate_up, down, gate_up_bias, down_bias = mixture.experts
    assert isinstance(gate_up, torch.Tensor)
    assert isinstance(down, torch.Tensor)
    into, meant_into = table(kernels, gate_up, bits, group, gate_up_bias)
    out, meant_out = table(kernels, down, bits, group, down_bias)
    meant = mixture.experts._replace(gate_up=meant_into, down=meant_out)
    made = CpuMixture(into, out, mixture.per_token, sums_to_one=True, gate=mixture.gate)
    return made, Mixture(mixture.rows, mixture.logits, meant, mixture.per_token, mixture.gate)


def mixed(
    kernels: CpuKernels,
    made: CpuMixture,
    mixture: Mixture,
    *,
    norm: RowNorm | None = None,
    added_to: torch.Tensor | None = None,
    shared: torch.Tensor | None = None,
    shared_logits: torch.Tensor | None = None,
    room: int = 0,
) -> torch.Tensor:
    rows, num_rows = mixture.rows, len(mixture.rows)
    memory = MixtureMemory(max(num_rows, room), made.per_token, made.into, made.out)
    memory.logits[:num_rows] = mixture.logits
    output = torch.full_like(rows, float("nan")) if added_to is None else added_to.clone()
    to = Mixed(
        Rows(output.data_ptr(), rows.shape[1]), added_to is not None, 0 if shared is None else shared.data_ptr(),
        0 if shared_logits is None else shared_logits.data_ptr(),
    )  # fmt: skip
    jobs = made.jobs(kernels, memory, Rows(rows.data_ptr(), rows.shape[1]), num_rows, to, norm=norm)
    Program(kernels.pool, [job for _, job in jobs]).run()
    return output
