"""Puts the torch side together, step by step: files, device, tokenizer, weights, cache, a trial, first graphs."""

import time
from typing import TYPE_CHECKING

import torch

from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import DeviceError
from pagedchat.events import LoadProgress
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.description import ModelDescription
from pagedchat.models.generation_config import eos_token_ids, read_generation_config, sampling_values
from pagedchat.models.hub import find_model, find_tokenizer
from pagedchat.models.loader import load_weights
from pagedchat.models.native_model import NativeModel
from pagedchat.models.tokenizer import LoadedTokenizer, load_tokenizer
from pagedchat.runtime.attention import interface
from pagedchat.runtime.attention.backend import AttentionBackend, CacheShape
from pagedchat.runtime.attention.choice import BackendChoice, BackendChooser, BackendFactory
from pagedchat.runtime.loading.build import LoadedModel, Progress, nothing_more
from pagedchat.runtime.loading.device import available_memory, choose_device, choose_dtype
from pagedchat.runtime.loading.first_graphs import capture_first
from pagedchat.runtime.loading.pool_size import PoolSize, measure_pool
from pagedchat.runtime.loading.ready_info import engine_limits, engine_ready
from pagedchat.runtime.loading.token_budget import default_token_budget
from pagedchat.runtime.loading.trial import check_against_model, peak_memory
from pagedchat.runtime.loading.wake_products import wake_products
from pagedchat.runtime.step.model_runner import TorchModelRunner
from pagedchat.runtime.step.native_runner import NativeModelRunner
from pagedchat.units import format_size

if TYPE_CHECKING:
    from pagedchat.jit.build_ahead import BuildAhead


def assemble(config: EngineConfig, progress: Progress, began: float, streams: bool) -> LoadedModel:
    """See `build.load_model`; `began` is when it was called, by `time.perf_counter`."""
    return _Assembly(config, progress, began, streams).run()


class _Assembly:
    """One loading; what one step finds out the next ones use."""

    def __init__(self, config: EngineConfig, progress: Progress, began: float, streams: bool) -> None:
        self._config = config
        self._progress = progress
        self._began = began
        self._streams = streams

    def run(self) -> LoadedModel:
        device = choose_device(self._config.model.device)
        description = self._describe()
        tokenizer = self._tokenizer(description)
        shape = self._shape(description, choose_dtype(self._config.model.dtype, device, description.dtype))
        chooser = BackendChooser(self._config.model.attention_backend, shape, description.caps_scores, device)
        woken = wake_products(device, shape.dtype)
        model, num_parameters = self._weights(description, shape.dtype, device)
        num_tokens = self._config.scheduler.max_num_batched_tokens or default_token_budget(
            device, num_parameters, streams=self._streams
        )
        step_sizes = self._config.scheduler.max_num_seqs, description.max_model_len, num_tokens
        builds = self._build_ahead(chooser.hoped_for, model, shape, step_sizes, device)
        if woken is not None:
            woken.join()
        attention = chooser.choose(self._report_kernels)
        runner, pool = self._runner(description, model, shape, attention.factory, num_tokens, device)
        self._say("warmup", "Trying the model on a short text")
        check_against_model(description.name, runner, description.vocab_size)
        prepare_more = nothing_more
        if isinstance(runner, NativeModelRunner):
            self._wait_for(builds)
            prepare_more = capture_first(runner, description.vocab_size, *step_sizes)
        generation_config = read_generation_config(description.folder)
        sampling = sampling_values(generation_config)
        eos = description.eos_token_ids | eos_token_ids(generation_config)
        return LoadedModel(
            runner=runner,
            limits=engine_limits(self._config, description, pool, runner, num_tokens, eos),
            info=engine_ready(
                description,
                runner,
                pool,
                attention,
                tokenizer,
                num_parameters,
                sampling,
                time.perf_counter() - self._began,
            ),
            tokenizer=tokenizer.tokenizer if tokenizer else None,
            chat_template=tokenizer.chat_template if tokenizer else None,
            special_tokens=tokenizer.special_tokens if tokenizer else {},
            sampling_defaults=SamplingParams(**{"max_tokens": None, **sampling}),
            prepare_more=prepare_more,
        )

    # --- files --------------------------------------------------------------------------------------

    def _describe(self) -> ModelDescription:
        wanted = self._config.model
        return describe_model(wanted.model, find_model(wanted.model, self._report_download), wanted.implementation)

    def _tokenizer(self, description: ModelDescription) -> LoadedTokenizer | None:
        wanted = self._config.model
        if wanted.skip_tokenizer_init:
            return None
        folder = find_tokenizer(wanted.tokenizer, self._report_download) if wanted.tokenizer else description.folder
        return load_tokenizer(wanted.tokenizer or description.name, folder, description.model_type)

    # --- tensors ------------------------------------------------------------------------------------

    def _weights(
        self, description: ModelDescription, dtype: torch.dtype, device: torch.device
    ) -> tuple[torch.nn.Module, int]:
        if description.native is None:
            interface.register()
        self._say("weights", "Reading the weights")
        model = load_weights(
            description,
            attention=interface.ATTENTION_NAME,
            dtype=dtype,
            device=device,
            on_progress=lambda done, total: self._say("weights", "Reading the weights", done, total, "tensors"),
        )
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        if device.type == "cpu" and dtype == torch.float32:
            use_cpu_linears(model, available_memory())
        return model, num_parameters

    def _shape(self, description: ModelDescription, dtype: torch.dtype) -> CacheShape:
        return CacheShape(
            num_layers=description.num_layers,
            block_size=self._config.cache.block_size,
            num_heads=description.num_heads,
            num_kv_heads=description.num_kv_heads,
            head_dim=description.head_dim,
            dtype=dtype,
        )

    def _runner(
        self,
        description: ModelDescription,
        model: torch.nn.Module,
        shape: CacheShape,
        make_backend: BackendFactory,
        num_tokens: int,
        device: torch.device,
    ) -> tuple[TorchModelRunner, PoolSize]:
        runner_class = TorchModelRunner if description.native is None else NativeModelRunner
        runner = runner_class(model, make_backend(shape, 0, 0, device), shape.block_size, device)

        def profile() -> int:
            self._say("profile", "Measuring the largest batch")
            return peak_memory(
                runner,
                make_backend,
                shape,
                num_tokens,
                self._config.scheduler.max_num_seqs,
                description.max_model_len,
            )

        pool = measure_pool(self._config, shape, description.max_model_len, device, profile)
        total = format_size(pool.num_blocks * shape.block_bytes)
        self._say("cache", f"Taking {total} for {pool.num_blocks} blocks")
        runner.backend = _allocate(make_backend, shape, pool, device)
        if self._config.scheduler.preemption_mode == "swap":
            runner.backend.prepare_swapping()
        return runner, pool

    def _build_ahead(
        self,
        hoped_for: BackendChoice | None,
        model: torch.nn.Module,
        shape: CacheShape,
        step_sizes: tuple[int, int, int],
        device: torch.device,
    ) -> "list[BuildAhead]":
        """Kernels of the first captured steps, which take the compiler the longest, beside those of attention."""
        if hoped_for is None or not isinstance(model, NativeModel):
            return []
        runner = NativeModelRunner(model, hoped_for.factory(shape, 1, 0, device), shape.block_size, device)
        runner.capture_decodes(*step_sizes)
        return runner.build_ahead()

    def _wait_for(self, builds: "list[BuildAhead]") -> None:
        for build in builds:
            if not build.wait(0):
                self._say("kernels", "Compiling the kernels of whole steps")
                build.wait()

    # --- what is told -------------------------------------------------------------------------------

    def _report_download(self, file: str, done: int, total: int) -> None:
        self._say("download", f"Downloading {file}", done, total, "B")

    def _report_kernels(self, message: str, done: int, total: int) -> None:
        self._say("kernels", message, done, total, "kernels")

    def _say(self, stage: str, message: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        self._progress(LoadProgress(stage, message, done, total, unit))  # type: ignore[arg-type]


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
