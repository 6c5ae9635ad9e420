"""What each step brings to the sessions: their replies, as events.

Knows the sessions' requests and the engine that runs them; no commands, no process, no socket.
"""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenizers import Tokenizer

from pagedchat.cache_events import FinishReason, SequenceExtended, SequenceForked
from pagedchat.chat.conversation import Conversation
from pagedchat.chat.replies import Reply, endings
from pagedchat.chat.token_texts import token_bytes
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import first_line, is_of_one_request
from pagedchat.events import RequestFailed, RequestFinished, RequestStarted, StepReport, TextDelta, TokenTexts
from pagedchat.service.publisher import Publisher
from pagedchat.service.rounds import Round
from pagedchat.step_batch import DecodeBatch

log = logging.getLogger("pagedchat.engine")

_MAX_MESSAGE = 2_000
"""Characters of what a session is told."""
_OWN_ERROR_HINT = "The other chats go on. Ask again; the engine's log has the details."


@dataclass(slots=True)
class Request:
    """A reply in the making, as events. Times are seconds of one clock."""

    session_id: int
    request_id: int
    reply: Reply
    asked: float
    """When the command came in."""
    first_token: float | None = None

    @property
    def is_watched(self) -> bool:
        """Whether any step may bring what cannot wait: the first token, or a stop string."""
        return self.first_token is None or self.reply.has_stops

    def started(self) -> RequestStarted:
        """The event that opens a request."""
        num_prompt, num_cached = self._prompt_counts()
        return RequestStarted(self.session_id, self.request_id, num_prompt, num_cached)

    def take_tokens(self, now: float) -> TextDelta | None:
        """Take in what was generated since the last call; `None` if that is nothing."""
        text = self.reply.take()
        if text is None:
            return None
        if self.first_token is None and self.reply.num_drawn:
            self.first_token = now
        return self._delta(text)

    def finish(self, reason: FinishReason) -> TextDelta | None:
        """No more tokens; the text that was not taken yet, if there is any."""
        text = self.reply.finish(reason)
        return self._delta(text) if text else None

    def all_text(self) -> TextDelta:
        """Everything released so far, for one who has heard nothing yet."""
        if self.reply.told is not None:
            self.reply.told.tell_again()
        return self._delta(self.reply.text)

    def figures(self, now: float) -> RequestFinished:
        """The event that closes a request."""
        num_prompt, num_cached = self._prompt_counts()
        num_found = min(num_cached, self.reply.sequence.num_found_tokens)
        return RequestFinished(
            self.session_id,
            self.request_id,
            self.reply.finish_reason or "abort",
            num_prompt,
            num_cached,
            self.reply.num_tokens,
            (now if self.first_token is None else self.first_token) - self.asked,
            now - self.asked,
            num_found,
        )

    def fork(self, session_id: int, request_id: int, sequence: Sequence) -> "Request":
        """The same reply, gone on with by another sequence."""
        twin = copy.copy(self)
        twin.session_id, twin.request_id, twin.reply = session_id, request_id, self.reply.fork(sequence)
        return twin

    def _prompt_counts(self) -> tuple[int, int]:
        """A fork made in the middle of a reply has more than its prompt computed already."""
        seq = self.reply.sequence
        return seq.num_prompt_tokens, min(seq.num_cached_tokens, seq.num_prompt_tokens)

    def _delta(self, text: str) -> TextDelta:
        told, num_told = ([], 0) if self.reply.told is None else self.reply.told.take()
        return TextDelta(self.session_id, self.request_id, text, self.reply.num_tokens, told, num_told)


@dataclass(slots=True)
class Chat:
    """What is kept of one session. Its sequence has the session's id."""

    conversation: Conversation
    raw: bool
    request: Request | None = None
    """The last request, running or finished."""

    @property
    def running(self) -> Request | None:
        """The request that is being generated."""
        return self.request if self.request is not None and self.request.reply.finish_reason is None else None

    def add_reply(self) -> None:
        """The last request is finished: what it generated belongs to the conversation."""
        if self.request is not None:
            seq = self.request.reply.sequence
            num_prompt = seq.num_prompt_tokens
            self.conversation.add_reply(seq.token_ids[:num_prompt], seq.token_ids[num_prompt:])


class TokenTeller:
    """Remembers which tokens the outside knows.

    Args:
        tokenizer: the model's; without one there is nothing to tell.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._bytes_of = None if tokenizer is None else token_bytes(tokenizer)
        self._told: set[int] = set()
        """Tokens that the outside knows."""

    def news(self, report: StepReport) -> Callable[[], TokenTexts] | None:
        """The tokens that occur in this report for the first time, told when they are asked for: the step that
        follows need not wait for texts that screens alone want. None if there are none."""
        if self._bytes_of is None:
            return None
        new_ids: dict[int, None] = {}
        for token_ids in _token_lists(report):
            if not self._told.issuperset(token_ids):
                new_ids.update(dict.fromkeys(i for i in token_ids if i not in self._told))
        if not new_ids:
            return None
        self._told.update(new_ids)
        return partial(self._texts_of, list(new_ids))

    def _texts_of(self, token_ids: list[int]) -> TokenTexts:
        return TokenTexts(token_ids, list(map(self._text_of, token_ids)))

    def _text_of(self, token_id: int) -> bytes:
        """Empty where the tokenizer fails: only the inspector asks, and no reply is to end by that."""
        try:
            return b"" if self._bytes_of is None else self._bytes_of(token_id)
        except BaseException as error:
            if not is_of_one_request(error):
                raise
            log.exception("Token %d cannot be told as text.", token_id)
            return b""


def _token_lists(report: StepReport) -> list[list[int]]:
    """Of steps that decode, whatever becomes of blocks in them, there is one."""
    lists = [
        event.token_ids
        for event in report.events
        if type(event) is SequenceExtended or type(event) is SequenceForked
    ]
    batch = report.batch
    if type(batch) is DecodeBatch:
        return [*lists, batch.token_ids]
    return lists + [entry.token_ids for entry in batch]


def request_failed(session_id: int, request_id: int, message: str, hint: str) -> RequestFailed:
    """The event that ends a request with an error, as it can be sent whatever the error quotes: templates and
    tokenizers say what they like, at any length, and not always in Unicode."""
    return RequestFailed(session_id, request_id, sendable(message), sendable(hint))


def sendable(text: str) -> str:
    """What an error says, as it can be sent."""
    short = text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"
    return short.encode(errors="replace").decode()


class ReplyFeed:
    """Passes on to each session what the engine has for it.

    After a step only the replies are looked at that it may have ended, or begun; text is taken when it is told, as
    often as a screen draws.

    Args:
        core: the engine.
        publisher: hears it.
        tokens: what each token stands for, told once.
        clock: seconds, the same as that of the requests.
    """

    def __init__(
        self, core: EngineCore, publisher: Publisher, tokens: TokenTeller, clock: Callable[[], float]
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._tokens = tokens
        self._clock = clock
        self.chats: dict[int, Chat] = {}
        """By session."""
        self._running: dict[int, Request] = {}
        """Those with a reply in the making."""
        self._watched: dict[int, Request] = {}
        """Of these, those that are looked at after every step."""
        self._round: Round[int] = Round(self.tell, clock)
        self.is_telling = False
        """Whether there is more to be passed on before it is published."""

    def begin(self, request: Request) -> None:
        """The last request of its session from now on."""
        self.chats[request.session_id].request = request
        if request.reply.finish_reason is None:
            self._running[request.session_id] = request
            if request.is_watched:
                self._watched[request.session_id] = request

    def follow(self, report: StepReport) -> None:
        """Pass on what cannot wait of what the step brought; to be called before the next step or verb.

        What cannot be passed on ends its own request.
        """
        token_texts = self._tokens.news(report)
        if token_texts is not None:
            self._publisher.add_token_texts(token_texts)
        for session_id, request in list(self._watched.items()):
            try:
                if request.reply.is_due():
                    self._look(request)
            except BaseException as error:
                self.fail(session_id, request.request_id, error)
        for ending in endings(report):
            if ending.seq_id not in self.chats:
                continue
            if ending.seq_id in self._core.failures:
                self.tell(ending.seq_id)
                self.fail(ending.seq_id, self.running_id(ending.seq_id), self._core.failures[ending.seq_id])
            elif self._is_parked(ending.seq_id):
                self.finish(ending.seq_id, ending.reason)

    def tell_all(self) -> None:
        """Pass on all text that has come; to be called before it is published."""
        self.is_telling = False
        for session_id in list(self._running):
            self.tell(session_id)

    def tell_some(self, seconds: float) -> bool:
        """The same after several steps, as far as so much time allows in each.

        Returns:
            Whether that was all.
        """
        if not self.is_telling:
            self._round.begin(list(self._running))
        self.is_telling = not self._round.go_on(seconds)
        return not self.is_telling

    def tell(self, session_id: int) -> None:
        """Pass on the text of a session's reply in the making, if there is one."""
        request = self._running.get(session_id)
        if request is None:
            return
        try:
            self._take_tokens(request)
        except BaseException as error:
            self.fail(session_id, request.request_id, error)

    def finish(self, session_id: int, reason: FinishReason) -> None:
        """A request ended; calling it again for the same request does nothing."""
        chat = self.chats.get(session_id)
        request = chat and chat.running
        if not chat or not request:
            return
        try:
            self._take_tokens(request)
            delta = request.finish(reason)
            chat.add_reply()
        except BaseException as error:
            self.fail(session_id, request.request_id, error)
            return
        self._forget(session_id)
        if delta is not None:
            self._publisher.add_text(delta)
        self._publisher.send_now(request.figures(self._clock()))

    def running_id(self, session_id: int) -> int | None:
        """The session's request that is being generated."""
        chat = self.chats.get(session_id)
        return None if chat is None or chat.running is None else chat.running.request_id

    def fail(self, session_id: int, request_id: int | None, error: BaseException) -> None:
        """An error that nobody expected ended a session's request, if there is one.

        How far its sequence and its text got is not known any more, so both are dropped, and the session's next
        request begins with nothing; what was computed is found in the prefix cache.

        Raises:
            BaseException: `error`, if it is not the request's alone.
        """
        if not is_of_one_request(error):
            raise error
        log.error("A request of session %d ended by an error of pagedchat's own.", session_id, exc_info=error)
        self.chats.pop(session_id, None)
        self._forget(session_id)
        if session_id in self._core.sequences:
            self._core.close(session_id)
        if request_id is not None:
            message = f"This reply ended by an error of pagedchat's own: {first_line(error)}."
            self._publisher.send_now(request_failed(session_id, request_id, message, _OWN_ERROR_HINT))

    def _forget(self, session_id: int) -> None:
        """No reply is in the making there any more."""
        self._running.pop(session_id, None)
        self._watched.pop(session_id, None)

    def _is_parked(self, session_id: int) -> bool:
        """Still: a sequence may have been asked for the next reply since it was parked, or be gone."""
        seq = self._core.sequences.get(session_id)
        return seq is not None and seq.status == "parked"

    def _look(self, request: Request) -> None:
        """Some of its tokens cannot wait."""
        is_first = request.first_token is None
        self._take_tokens(request)
        if is_first:
            self._publisher.flush()
            if not request.is_watched:
                del self._watched[request.session_id]
        if request.reply.stopped:
            self._core.stop(request.session_id, "stop")
            if request.reply.stopped_at is not None:
                self._core.rewind(request.session_id, request.reply.stopped_at)

    def _take_tokens(self, request: Request) -> None:
        delta = request.take_tokens(self._clock())
        if delta is not None:
            self._publisher.add_text(delta)
