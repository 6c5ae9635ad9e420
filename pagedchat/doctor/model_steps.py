"""Which steps a model takes on a GPU, from its config.json alone: what `pagedchat doctor --model` prints.

Loads no weights, runs nothing on the GPU, and needs none: a relative of it that is named will do. Of this machine's
own GPU it knows what the last start of the model has found of the steps there.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pagedchat.config import CacheConfig, SchedulerConfig
from pagedchat.doctor.few_bits import forms_if_quantised
from pagedchat.doctor.step_kernels import decode_work, prefill_work
from pagedchat.doctor.step_work import Work
from pagedchat.errors import ModelError
from pagedchat.jit.architecture import architecture_of
from pagedchat.jit.driver import Gpu
from pagedchat.models.config import describe_model
from pagedchat.models.description import ModelDescription
from pagedchat.models.hub import find_config
from pagedchat.models.raw_config import NotNativeError
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.common.choices import has_tensor_cores
from pagedchat.ops.common.launch import element_name
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.kernel_support import OLDEST_GPU, missing_for_bytes, missing_shape
from pagedchat.runtime.graphs.decode.buckets import Bucket, bucket_of
from pagedchat.runtime.graphs.model_tensors import sizes_of
from pagedchat.runtime.graphs.objections import objection_to, objection_to_cache, objection_to_whole_steps
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buckets import bucket_of as prefill_bucket_of
from pagedchat.runtime.graphs.step_facts import DecodeFacts, PrefillFacts, Setting
from pagedchat.runtime.graphs.which_step import (
    CHAINS,
    SCREENED_HEAD,
    Chosen,
    which_decode,
    which_head,
    which_prefill,
)
from pagedchat.runtime.graphs.whole_steps import one_turn_len
from pagedchat.runtime.loading.check_record import ON_A_CPU, CheckRecord, last_check, types_of
from pagedchat.runtime.loading.device import choose_dtype
from pagedchat.runtime.loading.precision import dtype_beside_few_bits
from pagedchat.runtime.step.sizes import LEAST_GPU_TOKENS, StepSizes

CHATS = (1, 4, 8, 64, 256)
DECODED_TOKENS = 300
"""Of each chat, as in the tables of kernels/DECODE_STEPS.md."""
PROMPT_TOKENS = 1500
KNOWN_GPUS = {
    "sm_75": Gpu(0, "NVIDIA T4", (7, 5), 16 << 30, 40, 64 << 10),
    "sm_80": Gpu(0, "NVIDIA A100", (8, 0), 80 << 30, 108, 163 << 10),
    "sm_86": Gpu(0, "NVIDIA GeForce RTX 3090", (8, 6), 24 << 30, 82, 99 << 10),
    "sm_89": Gpu(0, "NVIDIA GeForce RTX 4090", (8, 9), 24 << 30, 128, 99 << 10),
    "sm_90": Gpu(0, "NVIDIA H200", (9, 0), 140 << 30, 132, 227 << 10),
    "sm_100": Gpu(0, "NVIDIA B200", (10, 0), 180 << 30, 148, 227 << 10),
    "sm_120": Gpu(0, "NVIDIA GeForce RTX 5090", (12, 0), 32 << 30, 170, 99 << 10),
}
"""One of each architecture, for machines without it; the numbers are those of NVIDIA's data sheets."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A batch and its step."""

    batch: str
    """For people: `"8 chats"`."""
    choice: str
    """How tokens are chosen, as `DecodeFacts` has it."""
    bucket: Bucket | PrefillBucket
    """The sizes that the step is captured for."""
    chosen: Chosen
    work: list[Work]
    """What the step is made of."""
    head: Chosen | None = None
    """How it ends, of a decode that is a chain of launches."""

    @property
    def name(self) -> str:
        """Of the step, and of its end where that makes no logits."""
        return f"{self.chosen.name}, {SCREENED_HEAD}" if self.is_screened else self.chosen.name

    @property
    def is_screened(self) -> bool:
        """Whether it ends without logits, as a chain of launches."""
        return self.head is not None and self.head.name == SCREENED_HEAD


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A model and all of its steps."""

    name: str
    architecture: str
    sizes: dict[str, int]
    element: str
    gpu: Gpu | None
    uncaptured: str
    """Why no step is captured, in words that go after "since"; empty if they are."""
    steps: list[StepReport]
    found: CheckRecord | None = None
    """What was wrong with steps when the model was started here; the tables are asked without those."""
    foreign: str = ""
    """Why transformers' modules run it, in words that go after "since", and no table is asked; empty if ours do."""


def look_at_model(
    name: str,
    gpu: Gpu | None,
    *,
    is_here: bool = False,
    batch_invariant: bool = False,
    quantization: str = "",
    cache_kind: CacheKind | None = None,
) -> ModelReport:
    """Read a model's config and ask the tables.

    Args:
        name: a hub id or a folder, which needs no weights.
        gpu: where it would run; None for a CPU.
        is_here: whether that is a GPU of this machine, of which something may be known.
        batch_invariant: whether replies are to be the same in any company.
        quantization: of the weights, while they would be read; empty: none.
        cache_kind: of a cache of one byte an element.

    Raises:
        ModelError: there is no such model, or none that the engine can run.
        InvalidValueError: a quantisation that cannot be had.
    """
    description, foreign = _describe(name, find_config(name))
    device = torch.device("cpu" if gpu is None else "cuda")
    dtype = choose_dtype("auto", device, description.dtype)
    if quantization and gpu is not None:
        dtype = dtype_beside_few_bits(dtype)
    element = types_of(str(dtype).removeprefix("torch."), quantization if gpu is not None else "", cache_kind)
    found = None
    if gpu is not None and is_here:
        found = last_check(name, gpu.name, element, batch_invariant=batch_invariant)
    elif is_here and not batch_invariant:
        found = last_check(name, *ON_A_CPU)
    uncaptured = _missing_kernels(description, dtype, gpu, cache_kind)
    if "" in _left_out(found, "Steps"):
        uncaptured = uncaptured or "none that was captured at the last start gave the model's results"
    native, forms = description.native, {}
    if quantization:
        forms = forms_if_quantised(description, quantization, dtype, gpu, invariant=batch_invariant)
    if batch_invariant and not uncaptured:
        uncaptured = _not_the_same_in_any_company(dtype, gpu)
    steps: list[StepReport] = []
    if native is not None and not uncaptured:
        setting = Setting(
            sizes=sizes_of(native),
            objection=objection_to(native),
            whole_objection=objection_to_whole_steps(native) or objection_to_cache(cache_kind or ""),
            element=element_name(dtype),
            block_size=CacheConfig().block_size,
            gpu=gpu,
            cache_kind=cache_kind or "",
            batch_invariant=batch_invariant,
            forms=forms,
        )
        steps = _decodes(setting, description.max_model_len, _left_out(found, "Steps"))
        if "" not in (without := _left_out(found, "Prefills")):
            steps.append(_prompt(setting, description.max_model_len, without))
    return ModelReport(
        name=name,
        architecture=description.architecture,
        sizes={
            "layers": description.num_layers,
            "heads": description.num_heads,
            "kv_heads": description.num_kv_heads,
            "head_dim": description.head_dim,
            "vocab_size": description.vocab_size,
            "max_model_len": description.max_model_len,
        },
        element=element,
        gpu=gpu,
        uncaptured=uncaptured,
        steps=steps,
        found=found,
        foreign=foreign,
    )


def _left_out(found: CheckRecord | None, what: str) -> frozenset[str]:
    return frozenset(each.kind for each in found.left_out if each.what == what) if found else frozenset()


def _describe(name: str, folder: Path) -> tuple[ModelDescription, str]:
    """And why transformers runs it, if it does."""
    try:
        return describe_model(name, folder, "native"), ""
    except ModelError as error:
        if not isinstance(error.__cause__, NotNativeError):
            raise
        why = str(error.__cause__)
    return describe_model(name, folder), why


def _missing_kernels(
    description: ModelDescription, dtype: torch.dtype, gpu: Gpu | None, cache_kind: CacheKind | None
) -> str:
    if gpu is None:
        return "there is no GPU"
    if gpu.compute_capability < OLDEST_GPU:
        return f"the kernels need a GPU from {architecture_of(*OLDEST_GPU)} on"
    heads = description.num_heads, description.num_kv_heads, description.head_dim
    shape = CacheShape(description.num_layers, CacheConfig().block_size, *heads, dtype, cache_kind)
    return missing_shape(shape) or missing_for_bytes(shape, gpu.compute_capability)


def _not_the_same_in_any_company(dtype: torch.dtype, gpu: Gpu | None) -> str:
    if gpu is None or has_tensor_cores(element_name(dtype), gpu.compute_capability):
        return ""
    return f"--batch-invariant takes tensor cores that multiply {element_name(dtype)}"


def _decodes(setting: Setting, model_len: int, without_trust: frozenset[str]) -> list[StepReport]:
    """One for each number of chats and choice of tokens."""
    reports = []
    for chats in CHATS:
        one_turn = one_turn_len(setting, chats)
        bucket = bucket_of(
            chats, min(DECODED_TOKENS, model_len), SchedulerConfig().max_num_seqs, model_len, one_turn
        )
        if bucket is not None:
            batch = f"{chats} {'chat' if chats == 1 else 'chats'}"
            greedy = DecodeFacts(
                setting=setting,
                rows=bucket.num_seqs,
                context_len=bucket.context_len,
                choice="greedy",
                without_trust=without_trust,
            )
            others = replace(greedy, choice="shortlist"), replace(greedy, choice="drawn")
            steps = [_decode(facts, batch, bucket) for facts in (greedy, *others)]
            # Where no head is screened, whoever draws from few is served like all who draw.
            reports += [step for step in steps if step.choice != "shortlist" or step.is_screened]
    return reports


def _decode(facts: DecodeFacts, batch: str, bucket: Bucket) -> StepReport:
    chosen = which_decode(facts)
    work = decode_work(chosen.name, facts, chosen.refused)
    head = which_head(facts) if chosen.name in CHAINS else None
    return StepReport(batch, facts.choice, bucket, chosen, work, head)


def _prompt(setting: Setting, model_len: int, without_trust: frozenset[str]) -> StepReport:
    num_tokens = min(PROMPT_TOKENS, model_len)
    sizes = StepSizes(LEAST_GPU_TOKENS, SchedulerConfig().max_num_seqs, model_len)
    bucket = prefill_bucket_of(sizes, num_tokens, 1, num_tokens)
    if bucket is None:
        raise ValueError(f"no bucket for a prompt of {num_tokens} tokens")
    num_blocks = bucket.num_blocks(setting.block_size)
    facts = PrefillFacts(
        setting=setting, num_tokens=bucket.num_tokens, num_blocks=num_blocks, without_trust=without_trust
    )
    chosen = which_prefill(facts)
    work = prefill_work(chosen.name, facts, chosen.refused)
    return StepReport(f"a prompt of {num_tokens:,} tokens", "greedy", bucket, chosen, work)
