"""Every chat's side of the engine: a session's commands become verbs. What comes of them is the reply feed's.

Knows the engine core and conversations; no process, no socket, no pausing.
"""

import time
from collections.abc import Callable

import msgspec

from pagedchat.cache_events import FinishReason
from pagedchat.chat.conversation import Conversation
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import PagedChatError
from pagedchat.events import RequestFinished, TextDelta
from pagedchat.service.commands import AnyCommand, Close, Focus, Fork, Generate, Stop
from pagedchat.service.publisher import Publisher
from pagedchat.service.rendering import RenderAtOnce, Rendered, Renderer, RenderJob
from pagedchat.service.reply_feed import Chat, ReplyFeed, Request, TokenTeller, request_failed
from pagedchat.service.searches import Search, Searches
from pagedchat.service.text_model import TextModel


class Chats:
    """All sessions on one engine.

    Args:
        core: the engine; this is the only one who uses its verbs.
        publisher: hears what the sessions get.
        text_model: prompts to tokens and back.
        clock: seconds, the same as that of the times given to `handle`.
        renderer: makes text of the sessions' turns; at once by default.
    """

    def __init__(
        self,
        core: EngineCore,
        publisher: Publisher,
        text_model: TextModel,
        clock: Callable[[], float] = time.monotonic,
        renderer: Renderer | None = None,
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._text_model = text_model
        self._clock = clock
        self._renderer = renderer or RenderAtOnce(text_model)
        self.searches = Searches(core, publisher, text_model, clock)
        """Replies that are being searched."""
        self._awaited: dict[int, RenderJob] = {}
        """Prompts on their way to text, by session: a session has one at most, and no other request meanwhile."""
        self.feed = ReplyFeed(core, publisher, TokenTeller(text_model.tokenizer), clock)
        """Passes on what each step brings."""
        self._chats = self.feed.chats
        self._focused: int | None = None

    # --- commands -----------------------------------------------------------------------------------

    @property
    def awaits_text(self) -> bool:
        """Whether a prompt is on its way to text: a request is about to begin."""
        return bool(self._awaited)

    def handle(self, command: AnyCommand | Rendered, asked: float) -> None:
        """Carry out a session's command that came in at `asked`, or go on with one that has its text now.

        What a user got wrong is told to the session.
        """
        match command:
            case Rendered(job):
                session_id, request_id = job.command.session_id, job.command.request_id
                self._answer_errors(session_id, request_id, lambda: self._take_text(command))
            case Generate(session_id, request_id):
                self._answer_errors(session_id, request_id, lambda: self._generate(command, asked))
            case Fork(_, session_id, request_id):
                self._answer_errors(session_id, request_id, lambda: self._fork(command))
            case Stop(session_id):
                self._guard(session_id, lambda: self._stop(session_id))
            case Close(session_id):
                self._guard(session_id, lambda: self._close(session_id))
            case Focus(session_id):
                self._guard(session_id, lambda: self._focus(session_id))

    def fail_all(self, message: str, hint: str) -> None:
        """The engine cannot go on: every running request ends here, with the text that it has."""
        self.feed.tell_all()
        for search in self.searches.drop_all():
            self._publisher.send_now(request_failed(search.session_id, search.request_id, message, hint))
        for session_id, chat in list(self._chats.items()):
            if chat.running:
                failed = request_failed(session_id, chat.running.request_id, message, hint)
                chat.running.reply.finish("error")
                self._publisher.send_now(failed)

    def _answer_errors(self, session_id: int, request_id: int, action: Callable[[], None]) -> None:
        """Begin with a request. What is wrong with it is told to the session; what nobody expected ends it, and no
        other."""
        try:
            action()
        except PagedChatError as error:
            self._publisher.send_now(request_failed(session_id, request_id, error.message, error.hint))
        except BaseException as error:
            self.feed.fail(session_id, request_id, error)

    def _guard(self, session_id: int, action: Callable[[], None]) -> None:
        """Do what cannot be refused. Should it fail, it ends the session's request, and no other."""
        request_id = self.feed.running_id(session_id)
        try:
            action()
        except BaseException as error:
            self.feed.fail(session_id, request_id, error)

    def _generate(self, command: Generate, asked: float) -> None:
        """What the session does meanwhile is done to a request without text: its stop, its end, another prompt in
        its stead, a fork."""
        self._forget_request(command.session_id)
        job = RenderJob(command, self._text_model.params(command), asked)
        text = self._renderer.submit(job)
        if text is None:
            self._awaited[command.session_id] = job
        else:
            self._begin(job, text)

    def _take_text(self, rendered: Rendered) -> None:
        job = rendered.job
        if self._awaited.get(job.command.session_id) is not job:
            return  # it was stopped meanwhile
        del self._awaited[job.command.session_id]
        if rendered.error is not None:
            raise rendered.error
        self._begin(job, rendered.text)

    def _begin(self, job: RenderJob, text: str) -> None:
        if job.command.beam_width:
            self._search(job, text)
            return
        self._text_model.check_begun(job.command)
        request = self._extended(job, text)
        self._publisher.send_now(request.started())
        if (reason := ended_by_itself(request.reply.sequence)) is not None:
            self._core.stop(request.session_id, reason)

    def _extended(self, job: RenderJob, text: str) -> Request:
        """The session's sequence is brought to the prompt, and asked for the reply."""
        command = job.command
        chat = self._chat(command.session_id, command.raw)
        self._extend(command, chat.conversation, text, job.params)
        sequence = self._core.sequences[command.session_id]
        request = self._text_model.request(command, job.params, sequence, job.asked)
        self.feed.begin(request)
        return request

    # --- searches -----------------------------------------------------------------------------------

    def _search(self, job: RenderJob, text: str) -> None:
        """Beams are sequences of their own, which find what the session's has in the prefix cache."""
        command = job.command
        conversation = self._chat(command.session_id, command.raw).conversation
        held_ids = self._core.sequences[command.session_id].token_ids
        prompt = conversation.plan(text, held_ids)
        self.searches.begin(job, text, [*held_ids[: prompt.num_kept], *prompt.token_ids])

    def take_searches(self) -> None:
        """Searches that are over have found replies; to be called after every report while there are any."""
        for search in self.searches.take_over():
            if search.group.error is not None:
                self.feed.fail(search.session_id, search.request_id, search.group.error)
            else:
                self._answer_errors(search.session_id, search.request_id, lambda: self._adopt(search, "length"))  # noqa: B023 - called at once

    def _adopt(self, search: Search, reason: FinishReason) -> None:
        """What a search has found is the session's reply, as if its sequence had generated it."""
        job, best = search.job, search.best
        if not best:
            self._tell_nothing(search.session_id, search.request_id, reason, self._clock() - job.asked)
            return
        command = msgspec.structs.replace(job.command, begun=best, beam_width=0)
        params = msgspec.structs.replace(job.params, max_tokens=len(best), min_tokens=0, logprobs=None)
        request = self._extended(RenderJob(command, params, job.asked), search.text)
        request.first_token = search.first_told
        self._publisher.add_text(TextDelta(request.session_id, request.request_id, "", len(best), anew=True))
        ended = ended_by_itself(request.reply.sequence) or reason
        self._core.stop(request.session_id, ended if ended == "stop" else reason)

    def _forget_request(self, session_id: int) -> None:
        """Whatever becomes of the next request, the last one is over and is not to be forked."""
        self._stop(session_id)
        if session_id in self._chats:
            self._chats[session_id].request = None

    def _extend(self, command: Generate, conversation: Conversation, text: str, params: SamplingParams) -> None:
        seq_id = command.session_id
        held_ids = self._core.sequences[seq_id].token_ids
        prompt = conversation.plan(text, held_ids, command.begun)
        if prompt.num_kept < len(held_ids):
            self._core.rewind(seq_id, prompt.num_kept)
            conversation.rewind(prompt.num_kept)
        self._core.extend(seq_id, prompt.token_ids, params, num_begun=prompt.num_begun)
        conversation.set_prompt(prompt)

    def _fork(self, command: Fork) -> None:
        source, awaited = self._chats.get(command.session_id), self._awaited.get(command.session_id)
        if source is not None:
            self._fork_chat(command, source)
        if awaited is not None:
            self._generate(_asked_too(awaited.command, command), awaited.asked)
        elif source is None or source.request is None:
            self._tell_nothing(command.new_session_id, command.request_id, "stop", 0.0)

    def _fork_chat(self, command: Fork, source: Chat) -> None:
        self._core.fork(command.session_id, command.new_session_id)
        self._core.set_priority(command.new_session_id, self._priority(command.new_session_id))
        self._chats[command.new_session_id] = Chat(source.conversation.fork(), source.raw)
        if source.request is not None:
            seq = self._core.sequences[command.new_session_id]
            request = source.request.fork(command.new_session_id, command.request_id, seq)
            self.feed.begin(request)
            self._introduce(request)

    def _introduce(self, request: Request) -> None:
        """A forked request tells all that it has from its source."""
        self._publisher.send_now(request.started())
        self._publisher.send_now(request.all_text())
        if request.reply.finish_reason is not None:
            self._publisher.send_now(request.figures(self._clock()))

    def _tell_nothing(self, session_id: int, request_id: int, reason: FinishReason, seconds: float) -> None:
        """A request ends that never began."""
        self._publisher.send_now(RequestFinished(session_id, request_id, reason, 0, 0, 0, seconds, seconds))

    def _stop(self, session_id: int) -> None:
        awaited = self._awaited.pop(session_id, None)
        if awaited is not None:
            awaited.wanted = False
            self._tell_nothing(session_id, awaited.command.request_id, "abort", self._clock() - awaited.asked)
        search = self.searches.end(session_id)
        if search is not None:
            self._adopt(search, "abort")
        if session_id in self._chats:
            self._core.stop(session_id)
            self.feed.finish(session_id, "abort")

    def _close(self, session_id: int) -> None:
        self._stop(session_id)
        if session_id in self._chats:  # its last text may have ended it
            self._core.close(session_id)
            del self._chats[session_id]

    def _focus(self, session_id: int) -> None:
        before = session_id if self._focused is None else self._focused
        self._focused = session_id
        for changed in (before, session_id):
            if changed in self._chats:
                self._core.set_priority(changed, self._priority(changed))

    def _priority(self, session_id: int) -> int:
        return int(session_id == self._focused)

    def _chat(self, session_id: int, raw: bool) -> Chat:
        """The session's chat; a change between raw and not may change its first tokens, so it starts over."""
        chat = self._chats.get(session_id)
        if chat is None:
            conversation = self._text_model.conversation(raw)
            self._core.open(session_id, self._priority(session_id))
            chat = self._chats[session_id] = Chat(conversation, raw)
        elif chat.raw != raw:
            chat.conversation, chat.raw = self._text_model.conversation(raw), raw
        return chat


def _asked_too(asked: Generate, fork: Fork) -> Generate:
    """What the fork of a session is asked whose prompt is not text yet: the same, with a seed of its own."""
    overrides = msgspec.structs.replace(asked.overrides, seed=None)
    return Generate(fork.new_session_id, fork.request_id, asked.turns, overrides, asked.raw, asked.begun)


def ended_by_itself(sequence: Sequence) -> FinishReason | None:
    """How a reply has ended with the tokens with which it was to begin; None where it goes on."""
    if not sequence.num_begun_tokens:
        return None
    if sequence.token_ids[-1] in sequence.stop_token_ids:
        return "stop"
    return "length" if len(sequence.token_ids) >= sequence.stop_length else None
