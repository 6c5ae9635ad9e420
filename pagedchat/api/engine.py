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

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pagedchat.api.outputs import CompletionOutput, RequestOutput
from pagedchat.api.prompts import Prompt, PromptEncoder, prompt_text
from pagedchat.bounds import refused
from pagedchat.chat.replies import Reply, endings
from pagedchat.chat.template import ChatTemplate
from pagedchat.config import EngineConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.engine.stats import EngineStats
from pagedchat.errors import InvalidValueError
from pagedchat.events import EngineReady, LoadProgress, SequenceParked
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.loaded import LoadedModel


@dataclass(slots=True, kw_only=True)
class _Request:
    """What was asked, what has come back, and how much of that was told."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    output_kind: RequestOutputKind
    reply: Reply
    num_told: int = 0
    """Tokens that an output has had already."""
    num_told_characters: int = 0

    @property
    def has_news(self) -> bool:
        """Whether there are tokens that no output has had; a piece of a long prompt brings none."""
        return self.reply.num_tokens > self.num_told

    def output(self) -> RequestOutput:
        """What is to be told now; it counts as told from then on."""
        reply = self.reply
        token_ids, text = reply.token_ids, reply.text
        first_token, first_character = self.num_told, self.num_told_characters
        self.num_told, self.num_told_characters = len(token_ids), len(text)
        if self.output_kind is RequestOutputKind.DELTA:
            token_ids, text = token_ids[first_token:], text[first_character:]
        completion = CompletionOutput(index=0, text=text, token_ids=token_ids, finish_reason=reply.finish_reason)
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=[completion],
            num_cached_tokens=0 if reply.finish_reason is None else reply.sequence.num_cached_tokens,
        )


class LLMEngine:
    """One model with its paged KV cache, and the requests on it.

    Each request has a sequence of its own, closed at its end; its full blocks stay in the prefix cache for the next
    ones. Not to be used by several threads at a time.

    Args:
        config: which model, on what device, with how much memory.
        progress: told how loading goes.
        streams: whether somebody reads replies as they come; if not, steps on a CPU hold more tokens by default.

    Raises:
        ModelError: the model cannot be found, read or run.
        DeviceError: the device is missing or too small.
        InvalidValueError: a setting that this model does not allow.
    """

    def __init__(
        self,
        config: EngineConfig,
        progress: Callable[[LoadProgress], None] = lambda _: None,
        *,
        streams: bool = True,
    ) -> None:
        self._set_up(load_model(config, progress, streams=streams))

    @classmethod
    def from_loaded(cls, loaded: LoadedModel, core: EngineCore | None = None) -> "LLMEngine":
        """The same on a model that is loaded already.

        Args:
            loaded: the model.
            core: an engine core on its runner that somebody watches; one of its own by default.
        """
        engine = cls.__new__(cls)
        engine._set_up(loaded, core)
        return engine

    def _set_up(self, loaded: LoadedModel, core: EngineCore | None = None) -> None:
        self.info: EngineReady = loaded.info
        """What was found out while loading: shapes, device, size of the pool."""
        self.tokenizer = loaded.tokenizer
        """None with `skip_tokenizer_init`."""
        self.sampling_defaults: SamplingParams = loaded.sampling_defaults
        """From the model's generation_config.json; used where no sampling parameters are given."""
        self.notices: tuple[str, ...] = loaded.notices
        """What was passed over while loading and should be known, in sentences for people."""
        template = ChatTemplate(loaded.chat_template, loaded.special_tokens)
        self.encoder = PromptEncoder(loaded.tokenizer, template)
        """Prompts and conversations to tokens."""
        self._core = core or EngineCore(loaded.limits, loaded.runner)
        self._requests: dict[str, _Request] = {}
        self._by_sequence: dict[int, _Request] = {}
        self._reading: dict[int, Reply] = {}
        """Replies that become text, by sequence."""
        self._streaming: dict[int, _Request] = {}
        """Requests with outputs before their last one, by sequence."""

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
        if not isinstance(request_id, str):
            raise refused("request_id", request_id, "a string")
        if not isinstance(output_kind, RequestOutputKind | None):
            raise refused("output_kind", output_kind, "a RequestOutputKind")
        if request_id in self._requests:
            raise InvalidValueError(
                f"There is an unfinished request {request_id!r} already.", "Give every request an id of its own."
            )
        params = self.params(params)
        if params.stop:
            self.encoder.need_tokenizer()
        prompt_token_ids = self.encoder.encode(prompt)
        request = _Request(
            request_id=request_id,
            prompt=prompt_text(prompt),
            prompt_token_ids=prompt_token_ids,
            output_kind=output_kind or params.output_kind,
            reply=self._ask(prompt_token_ids, params),
        )
        self._enter(request)

    def abort_request(self, request_id: str | Iterable[str]) -> None:
        """End one or several requests now, without another output. Ids that are unknown, or those of requests that
        are finished meanwhile, are passed over."""
        for one in [request_id] if isinstance(request_id, str) else request_id:
            request = self._requests.get(one)
            if request is not None:
                self._leave(request)

    def has_unfinished_requests(self) -> bool:
        """Whether there is a reason for another step."""
        return bool(self._requests)

    def get_num_unfinished_requests(self) -> int:
        """How many were added and are neither finished nor aborted."""
        return len(self._requests)

    # --- the step -----------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Run one batch: a token for whoever is that far, a piece of prompt for others.

        Returns:
            An output for every request with new tokens, and for every one that is finished, by which it has left
            the engine. Those with `RequestOutputKind.FINAL_ONLY` have only this last one.
        """
        ended = endings(self._core.step())
        if self._reading:
            ended += self._read_along()
        if not ended and not self._streaming:
            return []
        finished = [self._finish(ending) for ending in ended if ending.seq_id in self._by_sequence]
        news = [request.output() for request in self._streaming.values() if request.has_news]
        return news + [request.output() for request in finished]

    def params(self, given: SamplingParams | None) -> SamplingParams:
        """What a request goes by that was given these: where it was given none, the model's own.

        Raises:
            InvalidValueError: they are none.
        """
        if given is None:
            return self.sampling_defaults
        if not isinstance(given, SamplingParams):
            raise refused("sampling_params", given, "SamplingParams")
        return given

    def stats(self) -> EngineStats:
        """The engine's counters as they stand now."""
        return self._core.stats()

    # --- inside -------------------------------------------------------------------------------------

    def _ask(self, prompt_token_ids: list[int], params: SamplingParams) -> Reply:
        """A sequence that waits for its reply; none where the prompt is refused."""
        seq_id = self._core.open()
        try:
            self._core.extend(seq_id, prompt_token_ids, params)
            return Reply(self._core.sequences[seq_id], self.tokenizer, params.stop)
        except BaseException:
            self._core.close(seq_id)
            raise

    def _enter(self, request: _Request) -> None:
        seq_id = request.reply.sequence.seq_id
        self._requests[request.request_id] = self._by_sequence[seq_id] = request
        if self.tokenizer is not None:
            self._reading[seq_id] = request.reply
        if request.output_kind is not RequestOutputKind.FINAL_ONLY:
            self._streaming[seq_id] = request

    def _leave(self, request: _Request) -> None:
        seq_id = request.reply.sequence.seq_id
        del self._requests[request.request_id], self._by_sequence[seq_id]
        self._reading.pop(seq_id, None)
        self._streaming.pop(seq_id, None)
        self._core.close(seq_id)

    def _read_along(self) -> list[SequenceParked]:
        """New tokens become text, and a stop string in it ends its sequence; who was ended so."""
        stopped = [seq_id for seq_id, reply in self._reading.items() if reply.take() is not None and reply.stopped]
        for seq_id in stopped:
            self._core.stop(seq_id, "stop")
        report = self._core.flush() if stopped else None
        return [] if report is None else endings(report)

    def _finish(self, ending: SequenceParked) -> _Request:
        request = self._by_sequence[ending.seq_id]
        request.reply.finish(ending.reason)
        self._leave(request)
        return request
