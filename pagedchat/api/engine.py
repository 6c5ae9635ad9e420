"""The engine as a library, step by step: requests are added and aborted at any time, and read as they come.

>>> from pagedchat import LLMEngine, SamplingParams
>>> from pagedchat.config import EngineConfig, ModelConfig
>>> engine = LLMEngine(EngineConfig(model=ModelConfig(model="facebook/opt-125m")))
>>> engine.add_request("sea", "The sea is", SamplingParams(max_tokens=8))
>>> engine.add_request("sky", "The sky is", SamplingParams(max_tokens=8))
>>> while engine.has_unfinished_requests():
...     for output in engine.step():
...         print(output.request_id, output.outputs[0].text, output.finished)

The names are those of vLLM's `LLMEngine`. Knows the engine, prompts and replies; neither models nor processes nor
the screen.
"""

import copy
import logging
import os
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from pagedchat.api.beams import BeamSearches
from pagedchat.api.ending import closed, free, integrity_error
from pagedchat.api.turns import Turns
from pagedchat.bounds import refused
from pagedchat.chat.template_process import TemplateProcess
from pagedchat.config import EngineConfig
from pagedchat.distributed.loading import load_model
from pagedchat.engine.core import EngineCore
from pagedchat.engine.dump import dump_of
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.engine.stats import EngineStats
from pagedchat.errors import IntegrityError, InvalidValueError
from pagedchat.events import EngineReady, LoadProgress, StepReport
from pagedchat.kv_events.publisher import BlockEventPublisher, publisher_of
from pagedchat.outputs import BeamSearchOutput, RequestOutput
from pagedchat.requests.prompts import Prompt, PromptEncoder, prompt_text
from pagedchat.requests.requests import Requests
from pagedchat.runtime.loading.loaded import LoadedModel

log = logging.getLogger("pagedchat.engine")


class EngineArguments(Protocol):
    """What an engine can be made of."""

    def create_engine_config(self) -> EngineConfig:
        """The engine that is asked for."""
        ...


class LLMEngine:
    """One model with its paged KV cache, and the requests on it.

    Each request has a sequence of its own, closed at its end; its full blocks stay in the prefix cache for the next
    ones. Several threads may call it: one waits for the call of another, in the order in which they came. It
    belongs to the process that made it. `close`, the end of a `with`, or letting go of it frees the model, the
    cache and whatever else was taken for them.

    Args:
        config: which model, on what device, with how much memory.
        progress: told how loading goes.
        streams: whether somebody reads replies as they come; if not, steps on a CPU hold more tokens by default.
        chats: whether conversations will be asked for at once: then the process in which their template runs is
            started beside the loading.

    Raises:
        ModelError: the model cannot be found, read or run.
        DeviceError: the device is missing or too small.
        InvalidValueError: a setting that this model does not allow.

    Any call may raise EngineStateError: the engine is closed, the thread is in the middle of another call, or the
    process was forked from the one whose engine it is; and IntegrityError, with a `dump`, where a defect of the
    engine was found out, so that its replies cannot be trusted any more. Then there is nothing left but `close`.
    """

    def __init__(
        self,
        config: EngineConfig,
        progress: Callable[[LoadProgress], None] = lambda _: None,
        *,
        streams: bool = True,
        chats: bool = False,
    ) -> None:
        block_events = publisher_of(config.kv_events)  # said at once, where that cannot be
        try:
            templates = TemplateProcess()
            if chats:
                templates.start()
            self._set_up(load_model(config, progress, streams=streams), templates=templates)
        except BaseException:
            if block_events is not None:
                block_events.close()
            raise
        if block_events is not None:
            self._publish_through(block_events)

    @classmethod
    def from_engine_args(cls, engine_args: "EngineArguments") -> "LLMEngine":
        """The same from the dataclass that vLLM's users know (`pagedchat.vllm.EngineArgs`).

        Raises:
            ModelError, DeviceError, InvalidValueError: as for `LLMEngine()`.
        """
        return cls(engine_args.create_engine_config())

    @classmethod
    def from_loaded(cls, loaded: LoadedModel, core: EngineCore | None = None) -> "LLMEngine":
        """The same on a model that is loaded already.

        Args:
            loaded: the model. It is freed with the engine where nobody else has it.
            core: an engine core on its runner that somebody watches; one of its own by default.
        """
        engine = cls.__new__(cls)
        engine._set_up(loaded, core)
        return engine

    def _set_up(
        self, loaded: LoadedModel, core: EngineCore | None = None, templates: TemplateProcess | None = None
    ) -> None:
        self.info: EngineReady = loaded.info
        """What was found out while loading: shapes, device, size of the pool."""
        self.tokenizer = loaded.tokenizer
        """None with `skip_tokenizer_init`."""
        self.sampling_defaults: SamplingParams = loaded.sampling_defaults
        """From the model's generation_config.json; used where no sampling parameters are given."""
        self.notices: tuple[str, ...] = loaded.notices
        """What was passed over while loading and should be known, in sentences for people."""
        self._templates = templates or TemplateProcess()
        template = self._templates.template(loaded.chat_template, loaded.special_tokens)
        self.encoder = PromptEncoder(loaded.tokenizer, template)
        """Prompts and conversations to tokens."""
        self._prepare = loaded.prepare_wanted
        self._core = core or EngineCore(loaded.limits, loaded.runner, grammars=loaded.grammars, draft=loaded.draft)
        self._turns = Turns("engine")
        self._free = weakref.finalize(self, free, self._core, weakref.ref(loaded), loaded.release, os.getpid())
        self._free.atexit = False  # the system frees all of a process that ends
        self._requests: Requests[str] = Requests(self._core, loaded.tokenizer)
        self._searches = BeamSearches(self._core, self.encoder, self.tokenizer)
        self.block_events: BlockEventPublisher | None = None
        """Where other programs are told what the cache has."""

    def _publish_through(self, block_events: BlockEventPublisher) -> None:
        block_events.start(self._core)
        weakref.finalize(self, block_events.close)
        self.block_events = block_events
        log.info("Block events are published at %s.", block_events.endpoint)

    # --- requests -----------------------------------------------------------------------------------

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        output_kind: RequestOutputKind | None = None,
    ) -> None:
        """Ask for a reply. It is begun with by the next steps.

        Args:
            request_id: names the request in its outputs; no other unfinished request has it.
            prompt: a string, `{"prompt": str}` or `{"prompt_token_ids": list[int]}`.
            params: the model's own by default. Its `output_kind` says what `step` returns of the request.
            output_kind: the same, in the stead of what `params` say.

        Raises:
            InvalidValueError: the id is taken or no string, or what was given is no prompt, or no parameters.
            RequestError: the prompt cannot be served: empty, too long for the model or the cache, text without a
                tokenizer, token ids outside the vocabulary. Nothing has changed then.
        """
        if not isinstance(output_kind, RequestOutputKind | None):
            raise refused("output_kind", output_kind, "a RequestOutputKind")
        with self._turns:
            self._add(request_id, prompt, self.params(params), output_kind)

    def add_beam_search(self, request_id: str, prompt: Prompt, params: BeamSearchParams) -> None:
        """Ask for the likeliest replies to a prompt. The next steps search; `step` tells nothing of it, and
        `take_beam_search` has what was found.

        Args:
            request_id: names the search; no other unfinished request has it.
            prompt: as for `add_request`.
            params: how wide, how long.

        Raises:
            InvalidValueError, RequestError: as for `add_request`; or beams, or tokens, for which model or cache
                have no room. Nothing has changed then.
        """
        with self._turns:
            self._check_new(request_id)
            self._searches.add(request_id, prompt, params)

    def take_beam_search(self, request_id: str) -> BeamSearchOutput | None:
        """What a search has found, by which it leaves the engine; None while it goes on."""
        with self._turns:
            return self._searches.take(request_id)

    def abort_request(self, request_id: str | Iterable[str]) -> None:
        """End one or several requests now, without another output. Ids that are unknown, or those of requests that
        are finished meanwhile, are passed over.

        In the middle of a call of the same thread (in a signal's handler, say) they end with that."""
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        self._turns.soon(partial(self._abort, ids))

    def has_unfinished_requests(self) -> bool:
        """Whether there is a reason for another step."""
        return bool(self._requests) or self._searches.are_running

    def get_num_unfinished_requests(self) -> int:
        """How many were added and are neither finished nor aborted."""
        return len(self._requests) + len(self._searches)

    # --- the step -----------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Run one batch: a token for whoever is that far, a piece of prompt for others.

        Returns:
            An output for every request with new tokens, and for every one that is finished, by which it has left
            the engine. Those with `RequestOutputKind.FINAL_ONLY` have only this last one.
        """
        with self._turns:
            self._requests.follow(self._step_checked())
            return [self._requests.output(request) for request in self._requests.take_news()]

    def params(self, given: SamplingParams | None) -> SamplingParams:
        """What a request goes by that was given these: a copy, or where it was given none, the model's own.

        Raises:
            InvalidValueError: they are none.
        """
        if given is None:
            return self.sampling_defaults
        if not isinstance(given, SamplingParams):
            raise refused("sampling_params", given, "SamplingParams")
        return copy.copy(given)

    def prepare(self) -> None:
        """Make ready what requests so far were served without, so that others like them run at full speed.

        On a GPU a batch of a new size or kind runs without the kernels that would be best for it until those are
        compiled beside. Whoever measures waits for that here. Steps of requests that are running go on afterwards.
        """
        with self._turns:
            self._prepare()

    def reset_prefix_cache(self) -> bool:
        """Forget what nobody is computing with.

        Returns:
            Whether nothing can be found any more: blocks of requests that are under way still can.
        """
        with self._turns:
            self._core.controls.flush()
            report = self._core.flush()
            if report is not None:
                self._requests.follow(report)
                self._tell_others(report)
            return not self._core.blocks.cache.block_ids

    def stats(self) -> EngineStats:
        """The engine's counters as they stand now."""
        with self._turns:
            return self._core.stats()

    # --- the end ------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all requests and free everything: weights, cache, captured steps, pinned memory. Every later call but
        this one is refused. In a process forked from the one whose engine it is, nothing happens.

        Raises:
            EngineStateError: the thread is in the middle of another call.
        """
        if self._turns.is_forked:
            return
        with self._turns.even_if_refused():
            self._turns.refuse(closed)
            self._requests.clear()
            self._searches.clear()
            self._templates.close()
            if self.block_events is not None:
                self.block_events.close()
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------

    def _add(
        self, request_id: str, prompt: Prompt, params: SamplingParams, output_kind: RequestOutputKind | None
    ) -> None:
        self._check_new(request_id)
        params = self.encoder.settled(params)
        token_ids, text = self.encoder.encode(prompt), prompt_text(prompt)
        self._requests.add(request_id, token_ids, params, prompt=text, output_kind=output_kind)

    def _check_new(self, request_id: str) -> None:
        if not isinstance(request_id, str):
            raise refused("request_id", request_id, "a string")
        if request_id in self._requests or request_id in self._searches:
            raise InvalidValueError(
                f"There is an unfinished request {request_id!r} already.", "Give every request an id of its own."
            )

    def _abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self._searches.abort(request_id)
        self._requests.abort(request_ids)

    def _step_checked(self) -> StepReport:
        """A step of the core; whoever takes it is told if the books disagree after it."""
        try:
            report = self._core.step()
        except BaseException:
            self._check_books()
            raise
        self._tell_others(report)
        violation = self._core.watch.violation
        if violation is not None:
            raise self._broken(violation, report)
        return report

    def _check_books(self) -> None:
        """After a step that was broken off: should the books disagree, all later calls are told."""
        try:
            self._core.check_integrity()
        except IntegrityError as error:
            self._broken(str(error), None)

    def _broken(self, violation: str, report: StepReport | None) -> IntegrityError:
        """From now on everybody is told this."""
        error = partial(integrity_error, violation, dump_of(self._core, violation, report))
        self._turns.refuse(error)
        return error()

    def _tell_others(self, report: StepReport) -> None:
        if self.block_events is not None:
            self.block_events.add(report)
