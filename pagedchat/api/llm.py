"""The offline API: a model, an engine and a tokenizer in this process, no screen and no second process.

>>> from pagedchat import LLM, SamplingParams
>>> llm = LLM("facebook/opt-125m")
>>> [output] = llm.generate("The sea is", SamplingParams(temperature=0, max_tokens=8))
>>> output.outputs[0].text
"""

import copy
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack

from tokenizers import Tokenizer
from tqdm import tqdm

from pagedchat.api.ending import closed
from pagedchat.api.engine import LLMEngine
from pagedchat.api.interrupts import HeldInterrupts
from pagedchat.api.keywords import EngineKeywords, engine_config
from pagedchat.api.turns import Turns
from pagedchat.bounds import as_list, refused
from pagedchat.chat.template import ChatPrompt
from pagedchat.config import DEFAULT_MODEL, EngineConfig
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.engine.stats import EngineStats
from pagedchat.errors import InvalidValueError
from pagedchat.events import EngineReady, LoadProgress
from pagedchat.garbage import rare_collections
from pagedchat.outputs import BeamSearchOutput, RequestOutput
from pagedchat.requests.conversations import Message, chat_prompt, conversations_of
from pagedchat.requests.prompts import Prompt, TokensPrompt, list_of_prompts
from pagedchat.vllm_keywords import CALL_KEYWORDS, LLM_METHODS, check_keywords

log = logging.getLogger(__name__)


class LLM:
    """One model with its paged KV cache.

    Several threads may call it: a call waits until those before it are done, in the order in which they came. A
    stream that is read takes a turn for each output. It belongs to the process that made it. `close`, the end of a
    `with`, or letting go of it frees the model, the cache and whatever else was taken for them.

    Args:
        model: a hub id (`facebook/opt-125m`, or `OWNER/NAME:Q4_K_M` of a GGUF model), a folder with a checkpoint or
            a GGUF file; the toy model in the box by default.
        device: "auto", "cpu" or "cuda".
        dtype: "auto" (on a GPU the checkpoint's own type; on a CPU bfloat16 for a large model of 16 bits where the
            processor multiplies that, else float32), "float32", "float16" or "bfloat16".
        quantization: "int8" or "int4", or on a GPU "fp8": weights are brought into so many bits while they are
            read; "none": they stay as they are; "auto": whatever suits the machine.
        attention_backend: "cuda" (kernels of our own), "torch", or "auto": "cuda" wherever it can serve the model.
        model_implementation: "native" (modules of our own), "transformers", or "auto": "native" where there is one.
        tensor_parallel_size: GPUs of this machine over which the model is cut, one process for each; with
            device="cpu" so many processes on the CPU. For models that our own modules run.
        batch_invariant: whether a reply is the same, bit for bit, alone and in any company, of requests that draw
            with a seed of their own too. Slower; for models that our own modules run.
        block_size: token slots in a block.
        num_blocks: fixes the pool; otherwise it comes from measured memory.
        kv_cache_memory: bytes for the pool, as a number or like "2GiB".
        gpu_memory_utilization: share of the GPU's memory for weights, activations and cache together.
        swap_space: bytes of host memory for blocks swapped out, as a number or like "4GiB".
        max_num_seqs: sequences in one step.
        max_num_batched_tokens: tokens in one step; by default 2,048 on a CPU, 8,192 on a GPU, or 32,768 where the
            model is small and the GPU's memory is not.
        enable_prefix_caching: whether a prompt's beginning is looked for in the cache.
        kv_cache_dtype: "fp8" or "int8": keys and values are kept in one byte an element, with a scale for each
            token and head, which makes about twice the blocks of 16 bits; "auto": in the type of the model's rows.
        preemption_mode: "recompute" or "swap", for when blocks run out.
        max_model_len: tokens of a sequence, prompt and reply together; by default what the model allows.
        enforce_eager: no steps are captured as CUDA graphs: slower, and easier to look into.
        speculative_config: `{"method": "ngram"}` has tokens guessed by what came after the last ones earlier in
            prompt and reply, `{"model": NAME}` by what a small model of the same vocabulary says, and several
            verified in one step, which changes no token of any reply. Beside it `num_speculative_tokens` (of a
            draft, at most: 31, and 15 by a model), `prompt_lookup_max` (4) and `prompt_lookup_min` (2).
        kv_events_config: `{"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:5557"}` tells other
            programs which blocks can be found in the cache, as vLLM does (docs/kv-events.md). Beside them
            `replay_endpoint`, `topic`, `buffer_steps`, `hwm`; of our own `encoding` ("map" or "array") and
            `block_hashes` ("int" or "bytes").
        seed: seeds every request that has no seed of its own.
        tokenizer: hub id or folder of the tokenizer, or a GGUF file that has it; the model's own by default.
        skip_tokenizer_init: token ids in and out only.

    Keywords of vLLM's that have no meaning here are taken where nothing is asked for by them; see `vllm_keywords`.

    Raises:
        InvalidValueError: an argument outside what it may be, or one that has no meaning here and is not neutral.
        ModelError: the model cannot be found, read or run.
        DeviceError: the device is missing or too small.

    Any call may raise EngineStateError: it is closed, the thread is in the middle of another call, or the process
    was forked from the one whose `LLM` it is; and IntegrityError, with a `dump`, where a defect of the engine was
    found out, so that its replies cannot be trusted any more. Then there is nothing left but `close`.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        **keywords: Unpack[EngineKeywords],
    ) -> None:
        self._set_up(LLMEngine(engine_config("LLM()", model, keywords), streams=False))
        for notice in self.notices:
            log.warning(notice)

    @classmethod
    def from_config(
        cls,
        config: EngineConfig,
        progress: Callable[[LoadProgress], None] = lambda _: None,
        *,
        chats: bool = False,
    ) -> "LLM":
        """The same from a config; `progress` is told how loading goes, `chats` says that the first call is `chat`.

        Raises:
            ModelError, DeviceError, InvalidValueError: as for `LLM()`.
        """
        llm = cls.__new__(cls)
        llm._set_up(LLMEngine(config, progress, chats=chats))
        return llm

    def _set_up(self, engine: LLMEngine) -> None:
        self._engine = engine
        self._turns = Turns("LLM")
        self.info: EngineReady = engine.info
        """What was found out while loading: shapes, device, size of the pool."""
        self.tokenizer = engine.tokenizer
        self.sampling_defaults: SamplingParams = engine.sampling_defaults
        """From the model's generation_config.json; used where no sampling parameters are given."""
        self.notices: tuple[str, ...] = engine.notices
        """What was passed over while loading and should be known; `LLM()` logs it, `from_config` does not."""
        self._request_ids = map(str, itertools.count())
        self._asked: set[str] = set()
        """Requests that somebody waits for."""
        self._unread: dict[str, RequestOutput] = {}
        """The newest output of streams that others have run on meanwhile."""

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams | None] | None = None,
        *,
        use_tqdm: bool = True,
        **others: object,
    ) -> list[RequestOutput]:
        """Complete all prompts, many at a time.

        Args:
            prompts: one or many; each a string, `{"prompt": str}` or `{"prompt_token_ids": list[int]}`.
            sampling_params: for all prompts, or one for each; the model's own by default.
            use_tqdm: show a progress bar on standard error where there is more than one prompt.
            others: keywords of vLLM's that have no meaning here; see `vllm_keywords`.

        Nobody sees a token before the others: what this call had to be served without, kernels for a batch of this
        size say, is made ready at its end.

        Returns:
            One output for each prompt, in order.

        Raises:
            RequestError: a prompt that cannot be served (empty, too long for the model or the cache); nothing was
                run then.
            InvalidValueError: what is no prompt, or neither one nor as many sampling parameters as prompts.
        """
        check_keywords("generate()", others, CALL_KEYWORDS)
        many = list_of_prompts(prompts)
        params = self._params_for(len(many), sampling_params)
        with self._turn() as interrupts:
            return self._run(many, params, interrupts, show_progress=use_tqdm and len(many) > 1)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams | None] | None = None,
        *,
        use_tqdm: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **others: object,
    ) -> list[RequestOutput]:
        """Answer a conversation, or several of them, written as the model's chat template wants it.

        Args:
            messages: of one conversation, or a list of conversations.
            sampling_params, use_tqdm, others: as for `generate`.
            tools: functions that the model may ask for, as the template tells it of them, each
                `{"type": "function", "function": {"name": ..., "parameters": JSON schema}}`.
            chat_template: takes the place of the model's own.
            chat_template_kwargs: what else the template may name, as `{"enable_thinking": False}`.
            add_generation_prompt: whether the next reply is begun; without, the model goes on after the last turn.
            continue_final_message: whether the last message, an assistant's, is to be gone on with.

        A base model without a template gets a plain `User:`/`Assistant:` transcript, and its reply ends where it
        would begin the user's next turn. A template that came with the model runs in a process of its own, which
        may take 2 s and 512 MiB.

        Returns:
            One output for each conversation, in order: a list of one for one.

        Raises:
            RequestError: a conversation cannot be served, or the template refuses it or does not end; nothing was
                run then.
            InvalidValueError: what is no conversation, or neither one nor as many sampling parameters as there are.
        """
        check_keywords("chat()", others, CALL_KEYWORDS)
        with self._turn() as interrupts:
            conversations = [
                chat_prompt(
                    each,
                    tools=tools,
                    chat_template=chat_template,
                    chat_template_kwargs=chat_template_kwargs,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                )
                for each in conversations_of(messages)
            ]
            given = self._params_for(len(conversations), sampling_params)
            encoded = [self._encode_chat(each, one) for each, one in zip(conversations, given, strict=True)]
            prompts, params = [prompt for prompt, _ in encoded], [one for _, one in encoded]
            return self._run(prompts, params, interrupts, show_progress=use_tqdm and len(prompts) > 1)

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer, of the `tokenizers` library.

        Raises:
            RequestError: none was loaded.
        """
        return self._engine.encoder.need_tokenizer()

    def get_default_sampling_params(self) -> SamplingParams:
        """What requests go by that are given none: a copy of `sampling_defaults`, to be changed at will."""
        return copy.copy(self.sampling_defaults)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        use_tqdm: bool = False,
        **others: object,
    ) -> list[BeamSearchOutput]:
        """The likeliest replies to all prompts that a beam search finds, many prompts at a time.

        The beams of a prompt share the blocks of what they have in common and take one batch a step. A search goes
        on until nothing that it could still find is better than what it has.

        Args:
            prompts: as for `generate`.
            params: for all prompts.
            use_tqdm: show a progress bar on standard error where there is more than one prompt.
            others: of vLLM's, taken where nothing is asked for by them.

        Returns:
            One output for each prompt, in order, with `beam_width` sequences, the best first: by the sum of their
            log-probabilities divided by the number of tokens found to the power of `length_penalty`.

        Raises:
            RequestError: a prompt that cannot be served, or beams, or tokens, for which model or cache have no
                room; nothing was run then.
            InvalidValueError: what is no prompt, or no parameters.
        """
        check_keywords("beam_search()", others, CALL_KEYWORDS)
        many = list_of_prompts(prompts)
        with self._turn() as interrupts:
            ids = list(itertools.islice(self._request_ids, len(many)))
            found: dict[str, BeamSearchOutput] = {}
            with _progress(len(ids), shown=use_tqdm and len(ids) > 1) as advance, self._unless_finished(ids):
                for request_id, prompt in zip(ids, many, strict=True):
                    self._engine.add_beam_search(request_id, prompt, params)
                    interrupts.let_through()
                while len(found) < len(ids):
                    self._step()
                    interrupts.let_through()
                    for request_id in [each for each in ids if each not in found]:
                        output = self._engine.take_beam_search(request_id)
                        if output is not None:
                            found[request_id] = output
                            advance(1)
            self._engine.prepare()
            return [found[request_id] for request_id in ids]

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Complete one prompt and yield the output so far with every new token; the last one is finished.

        Several streams may be read in turns. One that is not asked for a while yields its newest output next.

        Raises:
            RequestError: the prompt cannot be served.
        """
        with self._turns:
            return self._stream(self._engine.encoder.encoded(prompt), sampling_params)

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Iterator[RequestOutput]:
        """`chat`, as it comes.

        Raises:
            RequestError: as for `chat`.
        """
        with self._turns:
            return self._stream(*self._encode_chat(chat_prompt(messages), sampling_params))

    def prepare(self) -> None:
        """Make ready what streams so far were served without; see `LLMEngine.prepare`."""
        with self._turns:
            self._engine.prepare()

    def reset_prefix_cache(self) -> bool:
        """Forget what nobody is computing with: prompts are computed anew.

        Returns:
            Whether nothing can be found any more: blocks of streams that are under way still can.
        """
        with self._turns:
            return self._engine.reset_prefix_cache()

    def stats(self) -> EngineStats:
        """The engine's counters as they stand now."""
        return self._engine.stats()

    def close(self) -> None:
        """Free everything: weights, cache, captured steps, pinned memory; streams that are left end with an error.
        Every later call but this one is refused. In a process forked from the one whose `LLM` it is, nothing
        happens.

        Raises:
            EngineStateError: the thread is in the middle of another call.
        """
        if self._turns.is_forked:
            return
        with self._turns.even_if_refused():
            self._turns.refuse(closed)
            self._engine.close()
            self._unread.clear()

    def __getattr__(self, name: str) -> Any:
        what = f"LLM has no {name}."
        raise AttributeError(f"{what} {LLM_METHODS[name]}" if name in LLM_METHODS else what)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _params_for(
        self, count: int, given: SamplingParams | Sequence[SamplingParams | None] | None
    ) -> list[SamplingParams | None]:
        if given is None or isinstance(given, SamplingParams):
            return [given] * count
        several = as_list(given)
        if several is None:
            raise refused("sampling_params", given, "SamplingParams, or a list of them")
        if len(several) != count:
            raise InvalidValueError(
                f"There are {count} prompts, but {len(several)} sampling parameters.",
                "Give one for all prompts, or one for each.",
            )
        return several

    def _encode_chat(self, chat: ChatPrompt, params: SamplingParams | None) -> tuple[TokensPrompt, SamplingParams]:
        encoder, params = self._engine.encoder, self._engine.params(params)
        return TokensPrompt(prompt_token_ids=encoder.encode_chat(chat)), encoder.settled_for_chat(chat, params)

    # --- the loops over the engine ------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[HeldInterrupts]:
        """No other thread comes between, and an interrupt between two steps only."""
        with HeldInterrupts() as interrupts, self._turns:
            yield interrupts

    def _run(
        self,
        prompts: Sequence[Prompt],
        params: Sequence[SamplingParams | None],
        interrupts: HeldInterrupts,
        *,
        show_progress: bool = False,
    ) -> list[RequestOutput]:
        ids = list(itertools.islice(self._request_ids, len(prompts)))
        finished: dict[str, RequestOutput | None] = dict.fromkeys(ids)
        num_left = len(ids)
        with _progress(num_left, shown=show_progress) as advance, self._unless_finished(ids):
            for request_id, prompt, one in zip(ids, prompts, params, strict=True):
                self._engine.add_request(request_id, prompt, one, output_kind=RequestOutputKind.FINAL_ONLY)
                interrupts.let_through()
            while num_left:
                self._step()
                interrupts.let_through()
                if self._unread:
                    done = [request_id for request_id in list(self._unread) if request_id in finished]
                    finished.update({request_id: self._unread.pop(request_id) for request_id in done})
                    num_left -= len(done)
                    advance(len(done))
        self._engine.prepare()
        return [output for output in finished.values() if output is not None]

    def _stream(self, prompt: Prompt, params: SamplingParams | None) -> Iterator[RequestOutput]:
        request_id = next(self._request_ids)
        with self._unless_finished([request_id]):
            with self._turn():
                self._engine.add_request(request_id, prompt, params, output_kind=RequestOutputKind.CUMULATIVE)
            output = None
            while output is None or not output.finished:
                output = self._newest(request_id)
                yield output

    def _newest(self, request_id: str) -> RequestOutput:
        with self._turn() as interrupts:
            while request_id not in self._unread:
                self._step()
                interrupts.let_through()
            return self._unread.pop(request_id)

    @contextmanager
    def _unless_finished(self, ids: Sequence[str]) -> Iterator[None]:
        """Whatever happens inside, none of these requests stays in the engine."""
        try:
            with rare_collections():
                self._asked.update(ids)
                yield
        finally:
            self._asked.difference_update(ids)
            self._engine.abort_request(ids)
            for request_id in ids:
                self._unread.pop(request_id, None)

    def _step(self) -> None:
        """A step of the engine, for whoever has a request there."""
        for output in self._engine.step():
            self._unread[output.request_id] = output
            if output.request_id not in self._asked:  # left meanwhile
                self._unread.pop(output.request_id, None)


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """A bar over so many prompts, to be told of each number that is done; making one that is not shown would take
    as long as scheduling a prompt."""
    if not shown:
        yield int
        return
    with tqdm(total=total, desc="Prompts", unit="prompt") as bar:
        yield bar.update
