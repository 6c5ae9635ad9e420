"""The tensors of a model, read and arranged for whoever multiplies by them on this device."""

from dataclasses import dataclass

import torch

from pagedchat.config import EngineConfig
from pagedchat.layers.few_bits_linear import use_kernels
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.loader import load_weights
from pagedchat.ops.cpu.kernels import CpuKernels, cpu_kernels, no_kernels_notice
from pagedchat.ops.ranks.company import ALONE, Company
from pagedchat.runtime.attention import transformers_attention
from pagedchat.runtime.loading.cpu_process import give_back_now
from pagedchat.runtime.loading.device import available_memory
from pagedchat.runtime.loading.invariance import make_invariant
from pagedchat.runtime.loading.model_facts import ModelFacts
from pagedchat.runtime.loading.precision import Precision
from pagedchat.runtime.loading.reports import Reports


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that can run."""

    model: torch.nn.Module
    num_parameters: int
    """Of the whole model, where this is a part of one."""
    notices: tuple[str, ...] = ()
    """That there are no CPU kernels, where the model would have used them."""


def read_weights(
    config: EngineConfig, facts: ModelFacts, device: torch.device, company: Company | None, reports: Reports
) -> Weights:
    """Read them.

    Args:
        config: says how they are to be kept and multiplied.
        facts: of the model.
        device: where they go.
        company: all ranks, where this is a part of the model.
        reports: told of it.

    Raises:
        ModelError: they cannot be read, or are not those of such a model.
        InvalidValueError: what cannot be had with these.
    """
    description, precision, native = facts.description, facts.precision, facts.description.native
    if native is None:
        transformers_attention.register()
    reports.say("weights", "Reading the weights")
    model = load_weights(
        description,
        attention=transformers_attention.ATTENTION_NAME,
        dtype=precision.dtype,
        device=device,
        quantization=precision.quantization,
        kernels=_kernels_of_quantised(config, precision, device),
        keeps_bits=precision.keeps_bits,
        on_progress=reports.weights,
        ranks=company or ALONE,
    )
    # Quantised layers have no parameters.
    counted = facts.num_parameters if native else sum(each.numel() for each in model.parameters())
    _use_kernels(model, facts, device)
    if config.model.batch_invariant:
        make_invariant(description.name, model)
    elif device.type == "cpu":
        return Weights(model, counted, _arrange_on_cpu(model, is_native=native is not None))
    return Weights(model, counted)


def _kernels_of_quantised(config: EngineConfig, precision: Precision, device: torch.device) -> CpuKernels | None:
    """By which what is quantised while it is read will be multiplied; None: not by any, or on a GPU."""
    if precision.quantization is None or config.model.batch_invariant or device.type != "cpu":
        return None
    return cpu_kernels()


def _use_kernels(model: torch.nn.Module, facts: ModelFacts, device: torch.device) -> None:
    """On a GPU weights of few bits are multiplied where they are, if no chain of launches does that."""
    native = facts.description.native
    if native is None or device.type != "cuda":
        return
    from pagedchat.runtime.graphs.objections import objection_to  # noqa: PLC0415 - a GPU's business

    if objection_to(native):
        use_kernels(model)


def _arrange_on_cpu(model: torch.nn.Module, *, is_native: bool) -> tuple[str, ...]:
    """Notices of what lacks."""
    kernels = cpu_kernels()
    if kernels is not None:
        kernels.limit_threads(torch.get_num_threads())  # which whoever calls may have lowered
    use_cpu_linears(model, available_memory())
    give_back_now()  # what was rearranged
    return (no_kernels_notice(),) if kernels is None and is_native else ()
