"""One prompt and its reply, kept as a chat: a new one, the last one, or that of a number.

Knows no screen and no engine. Whatever is wrong with the history, the reply is made.
"""

from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError

from pagedchat.cache_events import FinishReason
from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.history.keeper import ChatPlace, HistoryKeeper
from pagedchat.history.opened import OpenHistory
from pagedchat.history.records import LayoutRecord
from pagedchat.history.run import PATIENCE, Reopened, begin
from pagedchat.history.sessions import session_of
from pagedchat.history.thread import HistoryThread

MAX_NAME = 30
"""Characters of the name that a chat without a screen gets."""


class KeptReply:
    """A chat that gets one more prompt and reply.

    Args:
        thread: the history, at work.
        session: the chat, without the prompt.
        said: what there is to say about it.
    """

    def __init__(self, thread: HistoryThread, session: ChatSession, said: tuple[str, ...] = ()) -> None:
        self._thread = thread
        self._session = session
        self._said = said
        self._keeper = HistoryKeeper(thread)
        self._keeper.know([session])

    def ask(self, prompt: str, system: str | None, overrides: SamplingOverrides) -> list[Turn]:
        """All that the model is to be told. What is given with the prompt is the chat's from now on."""
        session = self._session
        session.name = session.name or _name_from(prompt)
        session.system = session.system if system is None else system
        session.overrides = SamplingOverrides(**(session.overrides.set_values() | overrides.set_values()))
        session.ask(prompt, 1)
        return session.turns

    @property
    def overrides(self) -> SamplingOverrides:
        """The chat's settings."""
        return self._session.overrides

    def write(self, text: str, model: str) -> None:
        """So much of the reply is there."""
        self._session.append(text[len(self._session.open_text) :], 0)
        self._look(model)

    def finish(self, reason: FinishReason, model: str) -> None:
        """The reply is done."""
        self._session.finish(reason)
        self._look(model)

    def close(self) -> Iterator[str]:
        """Let go of the history; what is to be said about it."""
        done = self._thread.close()
        yield from self._said
        yield from self._thread.take_news() if not done else ()

    def _look(self, model: str) -> None:
        self._keeper.look([ChatPlace(self._session, model)], {}, LayoutRecord())


def _name_from(prompt: str) -> str:
    """The beginning of a prompt."""
    line = one_line(prompt[: 2 * MAX_NAME])
    return line if len(line) <= MAX_NAME else line[: MAX_NAME - 1] + "…"


def keep_reply(*, go_on: bool, number: int | None) -> KeptReply:
    """The chat for one more prompt.

    Raises:
        PagedChatError: the chat to go on with cannot be had.
    """
    if number is not None:
        history = begin(number=number)
        return _of(history.thread, history.reopened)
    thread = begin().thread
    if not go_on:
        return KeptReply(thread, ChatSession(1))
    try:
        reopened = thread.ask(_last).result(PATIENCE)
    except FutureTimeoutError:
        thread.close(0)
        raise PagedChatError("The history does not answer.", "Leave out --continue.") from None
    except PagedChatError:
        thread.close()
        raise
    return _of(thread, reopened)


def _of(thread: HistoryThread, reopened: Reopened) -> KeptReply:
    if not reopened.sessions:
        thread.close()
        raise PagedChatError(*reopened.said or thread.take_news()[:1])
    return KeptReply(thread, reopened.sessions[0], reopened.said)


def _last(history: OpenHistory) -> Reopened:
    chat_id = history.store.last_chat()
    found = None if chat_id is None else history.chat(chat_id)
    if found is None:
        raise PagedChatError("There is no earlier chat to go on with.", "Leave out --continue.")
    record, about = found
    return Reopened(sessions=(session_of(record, 1),), said=(about,) if about else ())
