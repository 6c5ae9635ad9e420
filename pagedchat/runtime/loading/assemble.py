"""Puts the torch side together, step by step: files, device, tokenizer, weights, cache, a trial, first graphs."""

import gc
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from pagedchat.config import EngineConfig
from pagedchat.engine.output import ModelRunner
from pagedchat.errors import DeviceError, InvalidValueError, ModelError, first_line, is_out_of_memory
from pagedchat.events import LoadProgress
from pagedchat.jit.driver import gpu
from pagedchat.layers.few_bits_linear import use_kernels
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.description import ModelDescription
from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.models.hub import find_model, find_tokenizer
from pagedchat.models.loader import load_weights
from pagedchat.models.native import count_parameters
from pagedchat.models.native_model import NativeModel
from pagedchat.models.parts.cutting import cut_for_rank
from pagedchat.models.tokenizer import LoadedTokenizer, load_tokenizer
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.cpu.kernels import CpuKernels, cpu_kernels, no_kernels_notice, prepare_in_background
from pagedchat.ops.ranks.company import ALONE, Company
from pagedchat.runtime.attention import transformers_attention
from pagedchat.runtime.attention.backend import AttentionBackend, CacheShape
from pagedchat.runtime.attention.choice import BackendChoice, BackendChooser, BackendFactory
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.loading.check_record import ON_A_CPU, keep_check, types_of
from pagedchat.runtime.loading.cpu_process import give_back_now
from pagedchat.runtime.loading.device import (
    available_memory,
    choose_device,
    default_token_budget,
)
from pagedchat.runtime.loading.draft_model import (
    ModelFacts,
    beside,
    draft_config,
    named,
    refuse_draft,
    with_draft,
)
from pagedchat.runtime.loading.first_batches import FirstBatches
from pagedchat.runtime.loading.invariance import make_invariant, refuse_attention, refuse_description
from pagedchat.runtime.loading.loaded import LoadedModel, Progress, nothing_more, nothing_wanted
from pagedchat.runtime.loading.model_wishes import model_wishes
from pagedchat.runtime.loading.pool_size import NOTHING_BESIDE, Beside, PoolSize, measure_pool, peak_memory
from pagedchat.runtime.loading.precision import Precision, choose_precision
from pagedchat.runtime.loading.ready_info import Findings, engine_limits, engine_ready
from pagedchat.runtime.loading.release import release
from pagedchat.runtime.loading.room import refuse_without_room, weight_bytes
from pagedchat.runtime.loading.self_check import SelfCheck, first_passes
from pagedchat.runtime.loading.wake_gpu import wake_products
from pagedchat.runtime.step.model_runner import NativeModelRunner, TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.units import format_size

if TYPE_CHECKING:
    from pagedchat.jit.build_ahead import BuildAhead


def assemble(
    config: EngineConfig, progress: Progress, began: float, streams: bool, company: Company | None = None
) -> LoadedModel:
    """See `build.load_model`; `began` is when it was called, by `time.perf_counter`; `company`, all ranks."""
    return _Assembly(config, progress, began, streams, company).run()


class _Preparing(NamedTuple):
    """See the fields of `LoadedModel` of these names."""

    more: Callable[[], bool] = nothing_more
    wanted: Callable[[], None] = nothing_wanted
    refusals: Sequence[str] = ()
    """What could not be captured of a model of transformers; a part of `notices`."""


class _Assembly:
    """One loading; what one step finds out the next ones use."""

    def __init__(
        self, config: EngineConfig, progress: Progress, began: float, streams: bool, company: Company | None = None
    ) -> None:
        self._config = config
        self._progress = progress
        self._began = began
        self._streams = streams
        self._lacking: tuple[str, ...] = ()
        """That there are no CPU kernels, where the model would have used them."""
        self._company = company
        self._num_parameters = 0
        """Of the whole model, where this is a part of one."""
        self._device = choose_device(config.model.device) if company is None else company.device
        if self._device.type == "cpu":
            prepare_in_background()

    def run(self) -> LoadedModel:
        facts = self._facts()
        description, tokenizer, precision, shape = facts.description, facts.tokenizer, facts.precision, facts.shape
        another = NOTHING_BESIDE if self._config.speculation.model is None else self._beside(facts)
        if self._config.stands_beside:
            self._refuse_without_room(description, precision, shape)
        wanted, invariant = self._config.model, self._config.model.batch_invariant
        if invariant:
            refuse_description(description, shape, self._device)
        chooser = BackendChooser(
            wanted.attention_backend, shape, description.scores, self._device, batch_invariant=invariant
        )
        woken = wake_products(self._device, shape.dtype)
        model, counted = self._weights(description, precision)
        sizes = self._sizes(description, counted)
        builds = self._build_ahead(chooser.if_built, model, shape, sizes)
        if woken is not None:
            woken.join()
        attention = chooser.choose(self._report_kernels)
        if invariant:
            refuse_attention(attention, self._device)
        with nullcontext() if description.native else first_passes(description.name):
            eager, pool = self._eager_runner(model, shape, attention.factory, sizes, another)
            check = self._checked(description, eager)
        if description.native is None:
            # Transformers imports what keeps the frames of all who were calling then, and so what those had: ours.
            gc.collect()
        try:
            runner, prepare = self._captured_runner(eager, check, attention, sizes, builds)
        except Exception as error:  # of many kinds, from modules that are strangers; eagerly they run
            if description.native or is_out_of_memory(error):
                raise
            runner, prepare = eager, _Preparing(refusals=[_uncaptured(first_line(error))])
        found = Findings(
            config=self._config,
            description=description,
            tokenizer=tokenizer,
            num_parameters=counted,
            device=self._device,
            shape=shape,
            sizes=sizes,
            attention=attention,
            pool=pool,
            precision=precision,
            begins_ahead=runner is not eager,
            left_out=tuple(check.left_out),
        )
        loaded = self._loaded(found, runner, prepare)
        if self._config.speculation.model is None:
            return loaded
        return with_draft(loaded, self._config, sizes, self._progress, self._load_another)

    # --- files --------------------------------------------------------------------------------------

    def _facts(self) -> ModelFacts:
        description = self._describe()
        tokenizer = self._tokenizer(description)
        precision = choose_precision(self._config.model, self._device, description)
        return ModelFacts(description, tokenizer, precision, self._shape(description, precision.dtype))

    def _describe(self) -> ModelDescription:
        wanted = self._config.model
        folder = find_model(wanted.model, self._report_download)
        described = _of_length(describe_model(wanted.model, folder, wanted.implementation), wanted.max_model_len)
        if self._company is None:
            return described
        part = cut_for_rank(described, self._company.rank, self._company.size)
        self._num_parameters = count_parameters(described.native) if described.native else 0
        return part

    def _tokenizer(self, description: ModelDescription) -> LoadedTokenizer | None:
        wanted = self._config.model
        if wanted.skip_tokenizer_init:
            return None
        folder = find_tokenizer(wanted.tokenizer, self._report_download) if wanted.tokenizer else description.folder
        name = wanted.tokenizer or description.name
        in_file = folder.is_file()
        tokenizer = (
            load_gguf_tokenizer(name, folder) if in_file else load_tokenizer(name, folder, description.model_type)
        )
        tokenizer.check_fits(name, description.name, description.vocab_size)
        return tokenizer

    # --- a draft model ------------------------------------------------------------------------------

    def _beside(self, facts: ModelFacts) -> Beside:
        """What the draft model will take, once nothing speaks against it."""
        draft = named(_Assembly(draft_config(self._config), self._progress, self._began, self._streams)._facts)
        refuse_draft(draft, facts)
        return beside(draft, *self._free_memory())

    def _load_another(self, config: EngineConfig, progress: Progress) -> LoadedModel:
        return assemble(config, progress, time.perf_counter(), self._streams)

    # --- sizes --------------------------------------------------------------------------------------

    def _shape(self, description: ModelDescription, dtype: torch.dtype) -> CacheShape:
        kind = self._config.cache.kv_cache_dtype
        return CacheShape(
            num_layers=description.num_layers,
            block_size=self._config.cache.block_size,
            num_heads=description.num_heads,
            num_kv_heads=description.num_kv_heads,
            head_dim=description.head_dim,
            dtype=dtype,
            kind=None if kind == "auto" else kind,
        )

    def _refuse_without_room(self, description: ModelDescription, precision: Precision, shape: CacheShape) -> None:
        refuse_without_room(description.name, weight_bytes(description, precision), shape, *self._free_memory())

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

    # --- tensors ------------------------------------------------------------------------------------

    def _cpu_kernels(self, precision: Precision) -> CpuKernels | None:
        """By which what is quantised while it is read will be multiplied; None: not by any, or on a GPU."""
        if precision.quantization is None or self._config.model.batch_invariant or self._device.type != "cpu":
            return None
        return cpu_kernels()

    def _weights(self, description: ModelDescription, precision: Precision) -> tuple[torch.nn.Module, int]:
        if description.native is None:
            transformers_attention.register()
        self._say("weights", "Reading the weights")
        model = load_weights(
            description,
            attention=transformers_attention.ATTENTION_NAME,
            dtype=precision.dtype,
            device=self._device,
            quantization=precision.quantization,
            kernels=self._cpu_kernels(precision),
            keeps_bits=precision.keeps_bits,
            on_progress=lambda done, total: self._say("weights", "Reading the weights", done, total, "tensors"),
            ranks=self._company or ALONE,
        )
        native = description.native  # of which quantised layers have no parameters
        counted = (
            self._num_parameters or count_parameters(native)
            if native
            else sum(each.numel() for each in model.parameters())
        )
        if native is not None and self._device.type == "cuda":
            from pagedchat.runtime.graphs.objections import objection_to  # noqa: PLC0415 - a GPU's business

            if objection_to(native):
                use_kernels(model)
        if self._config.model.batch_invariant:
            make_invariant(description.name, model)
        elif self._device.type == "cpu":
            kernels = cpu_kernels()
            if kernels is None and native:
                self._lacking = (no_kernels_notice(),)
            elif kernels is not None:
                kernels.limit_threads(torch.get_num_threads())  # which whoever calls may have lowered
            use_cpu_linears(model, available_memory())
            give_back_now()  # what was rearranged
        return model, counted

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
            self._say("profile", "Measuring the largest batch")
            return peak_memory(runner, make_backend, sizes)

        pool = measure_pool(self._config, shape, sizes.model_len, device, profile, beside, self._company)
        total = format_size(pool.num_blocks * shape.block_bytes)
        self._say("cache", f"Taking {total} for {pool.num_blocks} blocks")
        backend = _allocate(make_backend, shape, pool, device)
        if self._config.scheduler.preemption_mode == "swap":
            backend.prepare_swapping()
        return runner.with_backend(backend), pool

    # --- trials and graphs --------------------------------------------------------------------------

    def _checked(self, description: ModelDescription, runner: TorchModelRunner) -> SelfCheck:
        self._say("warmup", "Trying the model on a short text")
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

    def _build_ahead(
        self, attention: BackendChoice | None, model: torch.nn.Module, shape: CacheShape, sizes: StepSizes
    ) -> "list[BuildAhead]":
        """Kernels of the first captured steps, which take the compiler the longest, beside those of attention."""
        if attention is None or not isinstance(model, NativeModel) or self._device.type != "cuda":
            return []
        if self._config.model.enforce_eager:
            return []
        from pagedchat.runtime.loading.first_graphs import build_first_kernels  # noqa: PLC0415 - a GPU's business

        return build_first_kernels(
            model, shape, sizes, self._device, batch_invariant=self._config.model.batch_invariant
        )

    def _captured_runner(
        self,
        eager: TorchModelRunner,
        check: SelfCheck,
        attention: BackendChoice,
        sizes: StepSizes,
        builds: "list[BuildAhead]",
    ) -> tuple[ModelRunner, _Preparing]:
        """Who runs batches, and what prepares more for that; the eager one and nothing where none is captured."""
        if attention.name != "cuda" or self._device.type != "cuda" or self._config.model.enforce_eager:
            return eager, _Preparing()
        from pagedchat.runtime.loading.first_graphs import (  # noqa: PLC0415
            FirstGraphs,
            capture_others,
            make_wanted,
        )

        try:
            first = FirstGraphs(eager, sizes, at_first_use=self._company is not None)
        except ModelError as error:
            return eager, _Preparing(refusals=[_uncaptured(first_line(error))])
        batches = FirstBatches(eager, eager.backend, sizes, check.vocab_size)
        if self._company is None:
            self._wait_for(builds, lambda: first.build_likely() or batches.run_one())
            batches.run_some()
        else:  # ranks run the same batches, and none for as long as there is time
            self._wait_for(builds, lambda: False)
        captured = first.capture(check)
        shape = eager.backend.shape
        asked = self._config.model.quantization  # a GPU quantises nothing unasked
        quantization = None if asked in ("auto", "none") else asked
        element = types_of(element_name(shape.dtype), quantization, shape.kind)
        keep_check(
            self._config.model.model,
            gpu(self._device.index).name,
            element,
            check.left_out,
            batch_invariant=self._config.model.batch_invariant,
        )
        if captured is None:
            return eager, _Preparing(refusals=first.refusals)
        of_one_chat = FirstBatches(captured, eager.backend, sizes, check.vocab_size)
        for _ in ("its prompt", "a decode"):
            of_one_chat.run_one()
        if self._company is not None:
            return captured, _Preparing(refusals=first.refusals)
        speculates = self._config.speculation.method != "off"
        more = capture_others(captured, sizes, self._device, speculates=speculates)
        return captured, _Preparing(more, partial(make_wanted, weakref.ref(captured)), first.refusals)

    def _wait_for(self, builds: "list[BuildAhead]", meanwhile: Callable[[], bool]) -> None:
        """Until they are there; as long as there is something to do meanwhile, that is done."""
        for build in builds:
            if not build.wait(0):
                self._say("kernels", "Compiling the kernels of whole steps")
                while not build.wait(0) and meanwhile():
                    pass
                build.wait()

    # --- what is told -------------------------------------------------------------------------------

    def _loaded(self, found: Findings, runner: ModelRunner, prepare: "_Preparing") -> LoadedModel:
        wishes, tokenizer = model_wishes(found.description.folder), found.tokenizer
        eos_token_ids = found.description.eos_token_ids | wishes.eos_token_ids
        text = tokenizer.tokenizer if tokenizer else None
        return LoadedModel(
            runner=runner,
            limits=engine_limits(found, eos_token_ids),
            info=engine_ready(found, wishes.sampling, time.perf_counter() - self._began),
            tokenizer=text,
            chat_template=tokenizer.chat_template if tokenizer else None,
            special_tokens=tokenizer.special_tokens if tokenizer else {},
            sampling_defaults=wishes.sampling_params,
            grammars=Grammars(text, found.description.vocab_size, eos_token_ids),
            notices=(
                *wishes.notices,
                *self._lacking,
                *(each.sentence for each in found.left_out),
                *prepare.refusals,
            ),
            prepare_more=prepare.more,
            prepare_wanted=prepare.wanted,
            release=partial(release, self._device, weakref.ref(runner)),
        )

    def _report_download(self, file: str, done: int, total: int) -> None:
        self._say("download", f"Downloading {file}", done, total, "B")

    def _report_kernels(self, message: str, done: int, total: int) -> None:
        self._say("kernels", message, done, total, "kernels")

    def _say(self, stage: str, message: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        self._progress(LoadProgress(stage, message, done, total, unit))  # type: ignore[arg-type]


def _of_length(description: ModelDescription, wanted: int | None) -> ModelDescription:
    """The model with sequences of at most so many tokens.

    Raises:
        InvalidValueError: its positions do not allow so many.
    """
    if wanted is None:
        return description
    most = description.max_model_len
    if wanted > most:
        raise InvalidValueError(
            f"max_model_len is {wanted}, but {description.name} has {most} positions.", "Leave it out, or lower it."
        )
    return replace(description, max_model_len=wanted)


def _uncaptured(reason: str) -> str:
    """What is said of a model of transformers whose steps stay eager."""
    return f"Steps of this model are not captured in CUDA graphs, and take longer: {reason:.200}."


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
