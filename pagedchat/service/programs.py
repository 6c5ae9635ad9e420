"""Requests of programs, beside the sessions of screens: opened, run and closed, and told as they come.

A program wants its tokens when they are there, not when a screen draws. So they are told after the very step, all
that is new in one event, as far as telling takes no more than a twentieth of the time, and no more often than they
can be passed on; first tokens and ends are told in any case. Of many replies what is new is gathered after several
steps (`rounds`). Knows the engine core and prompts; no process, no socket.
"""

import logging
import time
from collections.abc import Callable, Iterable

from tokenizers import Tokenizer

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import InvalidValueError, PagedChatError, first_line, is_of_one_request
from pagedchat.events import Detokenized, RefusalKind, RequestOutputs, RequestRefused, StepReport, Tokenized
from pagedchat.outputs import RequestOutput
from pagedchat.requests.request import Request
from pagedchat.requests.requests import Requests
from pagedchat.requests.stages import Stages
from pagedchat.service.commands import AbortRequests, AddRequest, Detokenize, ProgramCommand, Tokenize
from pagedchat.service.prompts import Prepared, Preparer, PromptJob
from pagedchat.service.publisher import Publisher
from pagedchat.service.reply_feed import sendable
from pagedchat.service.rounds import Round

log = logging.getLogger("pagedchat.engine")

_SHARE = 1 / 20
"""Of the time, what telling what is not urgent may take."""
_APART = 1 / 4000
"""Seconds between two outputs that are not urgent: a server, which passes on each of them by itself, has to keep up
with many requests, and eyes see no difference."""
_LONGEST = 1 / 30
"""Seconds; but all is told as often as that."""
_OWN_ERROR_HINT = "Other requests go on. Ask again; the engine's log has the details."


class Programs:
    """All requests of programs on one engine.

    Args:
        core: the engine.
        publisher: hears what the requests get.
        preparer: prompts to tokens.
        tokenizer: tokens to text; None makes none.
        clock: seconds.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        core: EngineCore,
        publisher: Publisher,
        preparer: Preparer,
        tokenizer: Tokenizer | None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._publisher = publisher
        self._preparer = preparer
        self._clock = clock
        self._requests: Requests[int] = Requests(core, tokenizer, Stages(clock, wall_clock))
        self._awaited: dict[int, PromptJob] = {}
        """Requests whose prompts are being prepared."""
        self._next_time = float("-inf")
        """When what is not urgent is to be told."""
        self._round: Round[Request[int]] = Round(self._gather, clock)
        self._outputs: list[tuple[int, RequestOutput]] = []
        """Gathered in this round, in order, and not told yet."""
        self._num_gathered = 0
        """In this round, also those that were told meanwhile, before something urgent."""
        self.is_busy = False
        """Whether there may be anything to follow, or to tell. Of a step without programs this is all they cost."""

    def __len__(self) -> int:
        """Requests that wait or run."""
        return len(self._awaited) + len(self._requests)

    # --- what is asked ------------------------------------------------------------------------------

    @property
    def awaits_prompts(self) -> bool:
        """Whether a prompt is being prepared: a request is about to begin."""
        return bool(self._awaited)

    def handle(self, command: ProgramCommand | Prepared) -> None:
        """Carry out a command, or go on with one that is prepared now. What is wrong with it is told to whoever
        asked; what nobody expected ends it, and no other."""
        match command:
            case AbortRequests(request_ids):
                self._abort(request_ids)
            case AddRequest(request_id) | Tokenize(request_id) | Detokenize(request_id):
                self._answer_errors(request_id, lambda: self._submit(command))
            case Prepared(job):
                self._answer_errors(job.command.request_id, lambda: self._take(command))

    def fail_all(self, message: str, hint: str) -> None:
        """The engine cannot go on: every request ends here."""
        for request_id in [*self._requests, *self._awaited]:
            self._refuse(request_id, message, hint, "engine")
        self._awaited.clear()
        self._outputs.clear()

    def _submit(self, command: AddRequest | Tokenize | Detokenize) -> None:
        if command.request_id in self._awaited or command.request_id in self._requests:
            raise InvalidValueError(
                f"There is an unfinished request {command.request_id} already.",
                "Give every request a number of its own.",
            )
        job = PromptJob(command)
        prepared = self._preparer.submit(job)
        if prepared is None:
            self._awaited[command.request_id] = job
        else:
            self._begin(prepared)

    def _take(self, prepared: Prepared) -> None:
        request_id = prepared.job.command.request_id
        if self._awaited.get(request_id) is prepared.job:  # else it was aborted meanwhile
            del self._awaited[request_id]
            self._begin(prepared)

    def _begin(self, prepared: Prepared) -> None:
        if prepared.error is not None:
            raise prepared.error
        match prepared.job.command:
            case Tokenize(request_id):
                self._publisher.send_beside(Tokenized(request_id, prepared.token_ids))
            case Detokenize(request_id):
                self._publisher.send_beside(Detokenized(request_id, prepared.text))
            case AddRequest(request_id):
                params = prepared.params or SamplingParams()
                is_last_alone = params.output_kind is RequestOutputKind.FINAL_ONLY
                kind = RequestOutputKind.FINAL_ONLY if is_last_alone else RequestOutputKind.DELTA
                self._requests.add(request_id, prepared.token_ids, params, output_kind=kind)
                self.is_busy = True

    def _abort(self, request_ids: list[int]) -> None:
        for request_id in request_ids:
            job = self._awaited.pop(request_id, None)
            if job is not None:
                job.wanted = False
        self._outputs = [(key, output) for key, output in self._outputs if key not in request_ids]
        self._requests.abort(request_ids)

    def _answer_errors(self, request_id: int, action: Callable[[], None]) -> None:
        try:
            action()
        except InvalidValueError as error:
            self._refuse(request_id, error.message, error.hint, "value")
        except PagedChatError as error:
            self._refuse(request_id, error.message, error.hint, "request")
        except BaseException as error:
            if not is_of_one_request(error):
                raise
            log.error("Request %d ended by an error of pagedchat's own.", request_id, exc_info=error)
            message = f"This request ended by an error of pagedchat's own: {first_line(error)}."
            self._refuse(request_id, message, _OWN_ERROR_HINT, "request")

    def _refuse(self, request_id: int, message: str, hint: str, kind: RefusalKind) -> None:
        self._publisher.send_beside(RequestRefused(request_id, sendable(message), sendable(hint), kind))

    # --- what comes back ----------------------------------------------------------------------------

    def follow(self, report: StepReport) -> None:
        """Take in what a step or verbs brought; to be called before the next of either."""
        self._requests.follow(report)

    def tell_due(self, seconds: float) -> None:
        """Tell what cannot wait. Where it is time for it gather what else is new, as far as so much time allows,
        the rest after the next steps; then it is told."""
        if self._requests.are_urgent:
            num_told = self._tell(self._requests.take_urgent())
            self._next_time = max(self._next_time, self._clock() + _rest(num_told))
        if not self._round.is_on and self._requests.are_streaming and self._clock() >= self._next_time:
            self._round.begin(self._requests.streaming())
            self._num_gathered = 0
        if self._round.is_on and self._round.go_on(seconds):
            self._end_round()

    def tell_all(self) -> None:
        """Tell all that is new."""
        self._round.begin([])
        started = self._clock()
        num_told = self._tell(self._requests.take_news())
        ended = self._clock()
        self._next_time = ended + _rest(num_told, ended - started)

    def _gather(self, request: Request[int]) -> None:
        """What is new of one, to be told with the others of its round."""
        if self._requests.take(request):
            self._outputs.append((request.key, self._output(request)))
            self._num_gathered += 1

    def _end_round(self) -> None:
        """Tell what was gathered; a share of the time is one from the beginning of a round to that of the next."""
        started = self._clock()
        self._tell([])
        ended = self._clock()
        took = self._round.seconds + ended - started
        self._next_time = max(self._round.began + _rest(0, took), ended + _rest(self._num_gathered))

    def _tell(self, requests: Iterable[Request[int]]) -> int:
        """What was gathered, and behind it what is new of these; returns of how many of these."""
        told = [(request.key, self._output(request)) for request in requests]
        outputs, self._outputs = self._outputs + told, []
        if outputs:
            keys, each = zip(*outputs, strict=True)
            self._publisher.send_beside(RequestOutputs(list(keys), list(each)))
        self.is_busy = len(self._requests) > 0 or self._requests.are_urgent
        return len(told)

    def _output(self, request: Request[int]) -> RequestOutput:
        return self._requests.output(request, repeats_prompt=False)


def _rest(num_told: int, seconds: float = 0.0) -> float:
    """How long what is not urgent is not told, after so many outputs, the telling of which has taken so long."""
    return min(_LONGEST, max(seconds / _SHARE, num_told * _APART))
