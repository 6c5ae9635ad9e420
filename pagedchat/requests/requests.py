"""The requests of programs on an engine core: each has sequences of its own, closed at its end, and outputs.

The one place where a prompt becomes replies that are told step by step, for the library and for the engine process
alike. Whoever runs the engine has them `follow` every report, and takes what is to be told. Knows the core and
replies; no prompts that are text, no threads, no process.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Generic

from tokenizers import Tokenizer

from pagedchat.cache_events import FinishReason, SequenceParked
from pagedchat.chat.replies import Reply, endings
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import is_of_one_request
from pagedchat.events import StepReport
from pagedchat.outputs import RequestOutput
from pagedchat.requests.logprobs import ToldLogprobs, token_texts
from pagedchat.requests.request import Answer, K, Request, asked_of_engine
from pagedchat.requests.stages import Stages

log = logging.getLogger("pagedchat.engine")


class Requests(Generic[K]):
    """Those that are under way.

    Args:
        core: runs them.
        tokenizer: tokens to text; None makes none.
        stages: notes their times.
    """

    def __init__(self, core: EngineCore, tokenizer: Tokenizer | None, stages: Stages[K] | None = None) -> None:
        self._core = core
        self._stages: Stages[K] = stages or Stages()
        self._tokenizer = tokenizer
        self._text_of = token_texts(tokenizer)
        self._requests: dict[K, Request[K]] = {}
        self._by_sequence: dict[int, Request[K]] = {}
        self._watched: dict[int, Reply] = {}
        """Replies that are looked at after every step, by sequence: a stop string may end them, or they have not
        begun."""
        self._streaming: dict[int, Answer] = {}
        """Those of which is told before their end, by sequence."""
        self._forking: list[Request[K]] = []
        """Requests of several answers whose prompt is not computed yet."""
        self._urgent: dict[K, Request[K]] = {}
        """Those that have begun to answer, or are finished, since that was told."""

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, key: object) -> bool:
        return key in self._requests

    def __iter__(self) -> Iterator[K]:
        return iter(self._requests)

    # --- what is asked ------------------------------------------------------------------------------

    def add(
        self,
        key: K,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        prompt: str | None = None,
        output_kind: RequestOutputKind | None = None,
    ) -> None:
        """Ask for replies to a prompt; the next steps begin with them.

        Args:
            key: names it; no other one under way has it.
            prompt_token_ids: not yet cut short, as `params` may want it.
            params: the tokens of bad words among them.
            prompt: its text, which outputs repeat.
            output_kind: what outputs hold, in the stead of what `params` say.

        Raises:
            InvalidValueError, RequestError: as for `EngineCore.extend`; nothing has changed then.
        """
        asked = asked_of_engine(params)
        if asked is not params:
            output_kind = asked.output_kind
        request = Request(
            key=key,
            prompt=prompt,
            prompt_token_ids=self._truncated(prompt_token_ids, params),
            output_kind=output_kind or params.output_kind,
            params=params,
        )
        first = self._ask(request.prompt_token_ids, asked)
        self._requests[key] = request
        self._enter(request, first)
        self._stages.queue(request)
        if asked.n > 1:
            self._forking.append(request)

    def abort(self, keys: Iterable[K]) -> None:
        """End some now, without another output; those that are unknown are passed over."""
        for key in keys:
            self._urgent.pop(key, None)
            request = self._requests.get(key)
            if request is not None:
                self._leave(request)

    def clear(self) -> None:
        """Forget all, with the engine."""
        for requests in (self._requests, self._by_sequence, self._watched, self._streaming, self._forking):
            requests.clear()
        self._urgent.clear()
        self._stages.clear()

    # --- what comes back ----------------------------------------------------------------------------

    def follow(self, report: StepReport) -> None:
        """Take in what a step or verbs brought; to be called before the next of either."""
        self._stages.follow(report)
        may_have_tokens = bool(report.batch)
        if self._forking:
            self._enter_forks()
            may_have_tokens = True
        if self._watched and may_have_tokens:  # where many ask at once verbs are told with each of them
            self._watch()
        for ending in endings(report):
            if ending.seq_id in self._by_sequence:
                self._finish(ending)

    def take_urgent(self) -> list[Request[K]]:
        """Those of which something is to be told at once: of those told while they run that they have begun, of all
        that they are finished, by which they have left."""
        urgent, self._urgent = self._urgent, {}
        return list(urgent.values())

    def take_news(self) -> list[Request[K]]:
        """All of which something is to be told now, with all of their text: those told while they run that have
        more tokens, and whoever is finished."""
        news = [request for request in self.streaming() if self.take(request)]
        return news + self.take_urgent()

    def streaming(self) -> list[Request[K]]:
        """Those told while they run."""
        return list(dict.fromkeys([self._by_sequence[seq_id] for seq_id in self._streaming]))

    def take(self, request: Request[K]) -> bool:
        """Have all text of one of those; returns whether it has more tokens than were told. Not where they are
        urgent, which are told as such."""
        has_tokens = False
        for answer in request.answers:
            seq_id = answer.reply.sequence.seq_id
            if answer.has_tokens and seq_id in self._streaming:
                self._look(seq_id, answer.reply)
                has_tokens = True
        return has_tokens and request.key not in self._urgent

    def output(self, request: Request[K], *, repeats_prompt: bool = True) -> RequestOutput:
        """What of one of those is to be told now; see `Request.output`."""
        return request.output(self._stages.clock(), repeats_prompt=repeats_prompt)

    @property
    def are_streaming(self) -> bool:
        """Whether any is told while it runs."""
        return bool(self._streaming)

    @property
    def are_urgent(self) -> bool:
        """Whether something is to be told at once."""
        return bool(self._urgent)

    # --- inside -------------------------------------------------------------------------------------

    def _truncated(self, prompt_token_ids: list[int], params: SamplingParams) -> list[int]:
        """The last tokens of a prompt, as many as are to be taken."""
        most = params.truncate_prompt_tokens
        if most is None:
            return prompt_token_ids
        return prompt_token_ids[-(self._core.limits.max_len - 1 if most < 0 else most) :]

    def _ask(self, prompt_token_ids: list[int], params: SamplingParams) -> Reply:
        """A sequence that waits for its reply; none where the prompt is refused."""
        seq_id = self._core.open()
        try:
            self._core.extend(seq_id, prompt_token_ids, params)
            return Reply(self._core.sequences[seq_id], self._tokenizer, params.stop)
        except BaseException:
            self._core.close(seq_id)
            raise

    def _enter_forks(self) -> None:
        """Those that have been forked from the first sequences of their requests."""
        for request in self._forking.copy():
            group = request.first.reply.sequence.group
            others = [] if group is None else group.seq_ids[1:]
            if others:
                self._forking.remove(request)
            for seq_id in others:
                self._enter(request, Reply(self._core.sequences[seq_id], self._tokenizer, request.params.stop))

    def _enter(self, request: Request[K], reply: Reply) -> None:
        """One more reply of a request."""
        seq_id = reply.sequence.seq_id
        answer = Answer(reply, ToldLogprobs(reply.sequence, self._text_of))
        request.answers.append(answer)
        self._by_sequence[seq_id] = request
        is_told = request.output_kind is not RequestOutputKind.FINAL_ONLY
        if is_told:
            self._streaming[seq_id] = answer
        if is_told or reply.has_stops:
            self._watched[seq_id] = reply

    def _watch(self) -> None:
        """Look at what cannot wait: first tokens, and those by which a stop string may be complete."""
        for seq_id, reply in list(self._watched.items()):
            if not reply.is_due():
                continue
            is_first = reply.num_taken == 0
            self._look(seq_id, reply)
            if is_first:
                self._note_begin(seq_id, reply)

    def _note_begin(self, seq_id: int, reply: Reply) -> None:
        """Its first token has come."""
        if not reply.has_stops:
            self._watched.pop(seq_id, None)
        if seq_id in self._streaming:
            request = self._by_sequence[seq_id]
            self._urgent[request.key] = request

    def _look(self, seq_id: int, reply: Reply) -> None:
        """Take what has come; it may end the reply."""
        try:
            reply.take()
        except BaseException as error:
            self._end_by_error(seq_id, error)
            return
        if reply.stopped:
            self._core.stop(seq_id, "stop")
            if reply.stopped_at is not None:
                self._core.rewind(seq_id, reply.stopped_at)
            self._end(seq_id, "stop")

    def _finish(self, ending: SequenceParked) -> None:
        """The engine has ended a reply."""
        failure = self._core.failures.get(ending.seq_id)
        if failure is not None:
            self._note(failure, ending.seq_id)
        try:
            self._end(ending.seq_id, ending.reason)
        except BaseException as error:
            self._end_by_error(ending.seq_id, error)

    def _end_by_error(self, seq_id: int, error: BaseException) -> None:
        self._note(error, seq_id)
        self._end(seq_id, "error")

    def _note(self, error: BaseException, seq_id: int) -> None:
        """Log what ends one request and no other; what is not one request's alone is raised."""
        if not is_of_one_request(error):
            raise error
        key = self._by_sequence[seq_id].key
        log.error("Request %r ended by an error of pagedchat's own.", key, exc_info=error)

    def _end(self, seq_id: int, reason: FinishReason) -> None:
        """One reply has ended, and with the last one its request."""
        request = self._by_sequence[seq_id]
        request.reply_of(seq_id).finish(reason)
        self._close(seq_id)
        if request.is_finished:
            self._leave(request)
            self._urgent[request.key] = request

    def _leave(self, request: Request[K]) -> None:
        del self._requests[request.key]
        self._stages.forget(request)
        if request in self._forking:
            self._forking.remove(request)
        for answer in request.answers:
            if answer.reply.sequence.seq_id in self._by_sequence:
                self._close(answer.reply.sequence.seq_id)

    def _close(self, seq_id: int) -> None:
        for replies in (self._by_sequence, self._watched, self._streaming):
            replies.pop(seq_id, None)
        self._core.close(seq_id)
