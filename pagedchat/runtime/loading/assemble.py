"""Puts the torch side together, step by step: files, device, tokenizer, weights, cache, a trial, first graphs."""

import gc
import time
import weakref
from contextlib import nullcontext
from functools import partial
from typing import Literal

import torch

from pagedchat.config import EngineConfig
from pagedchat.errors import DeviceError
from pagedchat.models.description import ModelDescription
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.cpu.kernels import prepare_in_background
from pagedchat.ops.ranks.company import Company
from pagedchat.runtime.attention.backend import AttentionBackend, CacheShape
from pagedchat.runtime.attention.choice import BackendChoice, BackendChooser, BackendFactory
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.loading.captured_steps import CapturedSteps, Running
from pagedchat.runtime.loading.check_record import ON_A_CPU, keep_check
from pagedchat.runtime.loading.device import available_memory, choose_device, default_token_budget
from pagedchat.runtime.loading.draft_model import beside, draft_config, named, refuse_draft, with_draft
from pagedchat.runtime.loading.invariance import refuse_attention, refuse_description
from pagedchat.runtime.loading.loaded import LoadedModel, Progress
from pagedchat.runtime.loading.model_facts import ModelFacts, find_facts
from pagedchat.runtime.loading.model_wishes import model_wishes
from pagedchat.runtime.loading.pool_size import NOTHING_BESIDE, Beside, PoolSize, measure_pool, peak_memory
from pagedchat.runtime.loading.read_weights import read_weights
from pagedchat.runtime.loading.ready_info import Findings, engine_limits, engine_ready
from pagedchat.runtime.loading.release import release
from pagedchat.runtime.loading.reports import Reports
from pagedchat.runtime.loading.room import refuse_without_room, weight_bytes
from pagedchat.runtime.loading.self_check import SelfCheck, first_passes
from pagedchat.runtime.loading.wake_gpu import wake_products
from pagedchat.runtime.step.model_runner import NativeModelRunner, TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.units import format_size


def assemble(
    config: EngineConfig, progress: Progress, began: float, streams: bool, company: Company | None = None
) -> LoadedModel:
    """See `build.load_model`; `began` is when it was called, by `time.perf_counter`; `company`, all ranks."""
    return _Assembly(config, progress, began, streams, company).run()


class _Assembly:
    """One loading; what one step finds out the next ones use."""

    def __init__(
        self, config: EngineConfig, progress: Progress, began: float, streams: bool, company: Company | None = None
    ) -> None:
        self._config = config
        self._reports = Reports(progress)
        self._began = began
        self._streams = streams
        self._company = company
        self._device = choose_device(config.model.device) if company is None else company.device
        if self._device.type == "cpu":
            prepare_in_background()

    def run(self) -> LoadedModel:
        facts = self._facts()
        description, shape = facts.description, facts.shape
        another = NOTHING_BESIDE if self._config.speculation.model is None else self._beside(facts)
        if self._config.stands_beside:
            self._refuse_without_room(facts)
        wanted, invariant = self._config.model, self._config.model.batch_invariant
        if invariant:
            refuse_description(description, shape, self._device)
        chooser = BackendChooser(
            wanted.attention_backend, shape, description.scores, self._device, batch_invariant=invariant
        )
        woken = wake_products(self._device, shape.dtype)
        weights = read_weights(self._config, facts, self._device, self._company, self._reports)
        sizes = self._sizes(description, weights.num_parameters)
        steps = CapturedSteps(self._config, sizes, self._device, self._company, self._reports)
        if chooser.if_built is not None:
            steps.build_ahead(weights.model, shape)
        if woken is not None:
            woken.join()
        attention = chooser.choose(self._reports.kernels)
        if invariant:
            refuse_attention(attention, self._device)
        with nullcontext() if description.native else first_passes(description.name):
            eager, pool = self._eager_runner(weights.model, shape, attention.factory, sizes, another)
            check = self._checked(description, eager)
        if description.native is None:
            # Transformers imports what keeps the frames of all who were calling then, and so what those had: ours.
            gc.collect()
        runs = steps.over(eager, check, attention, is_foreign=description.native is None)
        found = Findings(
            config=self._config,
            description=description,
            tokenizer=facts.tokenizer,
            num_parameters=weights.num_parameters,
            device=self._device,
            shape=shape,
            sizes=sizes,
            attention=attention,
            kernels=_kernels(attention, eager),
            pool=pool,
            precision=facts.precision,
            begins_ahead=runs.runner is not eager,
            left_out=tuple(check.left_out),
        )
        loaded = self._loaded(found, runs, weights.notices)
        if self._config.speculation.model is None:
            return loaded
        return with_draft(loaded, self._config, sizes, self._reports.progress, self._load_another)

    def _facts(self) -> ModelFacts:
        return find_facts(self._config, self._device, self._company, self._reports.download)

    # --- a draft model ------------------------------------------------------------------------------

    def _beside(self, facts: ModelFacts) -> Beside:
        """What the draft model will take, once nothing speaks against it."""
        draft = named(
            _Assembly(draft_config(self._config), self._reports.progress, self._began, self._streams)._facts
        )
        refuse_draft(draft, facts)
        return beside(draft, *self._free_memory())

    def _load_another(self, config: EngineConfig, progress: Progress) -> LoadedModel:
        return assemble(config, progress, time.perf_counter(), self._streams)

    # --- sizes --------------------------------------------------------------------------------------

    def _refuse_without_room(self, facts: ModelFacts) -> None:
        weights = weight_bytes(facts.description, facts.precision)
        refuse_without_room(facts.description.name, weights, facts.shape, *self._free_memory())

    def _free_memory(self) -> tuple[int, int]:
        """Bytes where the model is to run, and of all memory of that, if it is a GPU."""
        on_gpu = self._device.type == "cuda"
        return torch.cuda.mem_get_info(self._device) if on_gpu else (available_memory(), 0)

    def _sizes(self, description: ModelDescription, num_parameters: int) -> StepSizes:
        wanted = self._config.scheduler
        num_tokens = wanted.max_num_batched_tokens or default_token_budget(
            self._device, num_parameters, streams=self._streams
        )
        return StepSizes(num_tokens, wanted.max_num_seqs, description.max_model_len)

    def _eager_runner(
        self,
        model: torch.nn.Module,
        shape: CacheShape,
        make_backend: BackendFactory,
        sizes: StepSizes,
        beside: Beside,
    ) -> tuple[TorchModelRunner, PoolSize]:
        device = self._device
        runner_class: type[TorchModelRunner] = TorchModelRunner
        if isinstance(model, NativeModel):
            # Steps of one call know nobody to wait for.
            by_kernels = device.type == "cpu" and not self._config.model.batch_invariant and self._company is None
            runner_class = CpuModelRunner if by_kernels else NativeModelRunner
        runner = runner_class(model, make_backend(shape, 0, 0, device), device)

        def profile() -> int:
            self._reports.say("profile", "Measuring the largest batch")
            return peak_memory(runner, make_backend, sizes)

        pool = measure_pool(self._config, shape, sizes.model_len, device, profile, beside, self._company)
        total = format_size(pool.num_blocks * shape.block_bytes)
        self._reports.say("cache", f"Taking {total} for {pool.num_blocks} blocks")
        backend = _allocate(make_backend, shape, pool, device)
        if self._config.scheduler.preemption_mode == "swap":
            backend.prepare_swapping()
        return runner.with_backend(backend), pool

    def _checked(self, description: ModelDescription, runner: TorchModelRunner) -> SelfCheck:
        self._reports.say("warmup", "Trying the model on a short text")
        check = SelfCheck(
            description.name, runner, description.vocab_size, exact=self._config.model.batch_invariant
        )
        if not isinstance(runner, CpuModelRunner):
            check.refuse_if_wrong()
            return check
        runner.whole_steps = False
        check.refuse_if_wrong()
        runner.whole_steps = not check.left_out
        runner.whole_steps = runner.whole_steps and runner.step is not None and check.allows_whole_steps()
        keep_check(self._config.model.model, *ON_A_CPU, check.left_out)
        return check

    def _loaded(self, found: Findings, runs: Running, notices: tuple[str, ...]) -> LoadedModel:
        wishes, tokenizer = model_wishes(found.description.folder), found.tokenizer
        eos_token_ids = found.description.eos_token_ids | wishes.eos_token_ids
        text = tokenizer.tokenizer if tokenizer else None
        return LoadedModel(
            runner=runs.runner,
            limits=engine_limits(found, eos_token_ids),
            info=engine_ready(found, wishes.sampling, time.perf_counter() - self._began),
            tokenizer=text,
            chat_template=tokenizer.chat_template if tokenizer else None,
            special_tokens=tokenizer.special_tokens if tokenizer else {},
            sampling_defaults=wishes.sampling_params,
            grammars=Grammars(text, found.description.vocab_size, eos_token_ids),
            notices=(
                *wishes.notices,
                *notices,
                *(each.sentence for each in found.left_out),
                *runs.refusals,
            ),
            prepare_more=runs.more,
            prepare_wanted=runs.wanted,
            release=partial(release, self._device, weakref.ref(runs.runner)),
        )


def _kernels(attention: BackendChoice, runner: TorchModelRunner) -> Literal["cuda", "cpu", "torch"]:
    """What steps are made of, once they have been tried."""
    if attention.name == "cuda":
        return "cuda"
    has_steps = isinstance(runner, CpuModelRunner) and runner.whole_steps and runner.step is not None
    return "cpu" if has_steps else "torch"


def _allocate(
    make_backend: BackendFactory, shape: CacheShape, pool: PoolSize, device: torch.device
) -> AttentionBackend:
    try:
        return make_backend(shape, pool.num_blocks, pool.num_host_blocks, device)
    except RuntimeError as error:  # torch says "out of memory" with this on every device
        raise DeviceError(
            f"{pool.num_blocks} blocks of {format_size(shape.block_bytes)} cannot be allocated.",
            "Lower --num-blocks, --kv-cache-memory or --swap-space.",
        ) from error
