"""What went wrong with a server, as people read it: one sentence with the server's name, and what to do about it.

A server's own words are quoted in one line and cut short, and never with the key in them: some repeat it.
"""

import re
from typing import TYPE_CHECKING, Any

from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError, first_line
from pagedchat.remote.openai.http import CONNECT_SECONDS, TooMuchError
from pagedchat.remote.openai.plain import at, text_at
from pagedchat.remote.tls import tls_trouble

if TYPE_CHECKING:
    from pagedchat.remote.openai.address import ServerAddress

MOST_QUOTED = 300
_BUSY = frozenset({429, 502, 503, 504})
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_LIKE_A_KEY = re.compile(r"\b(?:sk|hf|gsk|xai)[-_][\w*-]{4,}")


class Told:
    """Tells errors of one server.

    Args:
        address: the server.
        key: what must not be seen.
    """

    def __init__(self, address: "ServerAddress", key: str = "") -> None:
        self._address = address
        self.name = one_line(address.name)
        self._key = key

    def error(self, error: Exception) -> PagedChatError:
        """The error for people; one that is for them already is left as it is."""
        if isinstance(error, PagedChatError):
            return error
        cause = _cause(error)
        if isinstance(cause, TooMuchError):
            return PagedChatError(f"{self.name} sent {cause}.", "That is no reply; look what runs there.")
        status = at(error, "status_code")
        if isinstance(status, int):
            return self._failed(status, error) if status >= 500 or status in _BUSY else self._refused(status, error)
        if type(error).__name__ in ("APITimeoutError", "APIConnectionError"):
            return self._no_connection(type(error).__name__, cause)
        if type(error).__name__ == "APIError":
            return PagedChatError(f"{self.name} ended the reply with an error{self._quoted(error)}.")
        return PagedChatError(
            f"{self.name} sent what is no reply ({self.quoted(first_line(error), 80)}).", self._check()
        )

    def cut(self) -> PagedChatError:
        """A stream that ended before its reply did."""
        return PagedChatError(f"{self.name} ended the stream in the middle of the reply.")

    def silent(self, seconds: float) -> PagedChatError:
        """Nothing came for so long."""
        return PagedChatError(
            f"{self.name} was silent for {seconds:.0f} s.", "timeout in [servers.NAME] sets how long to wait."
        )

    def quoted(self, words: str, most: int = MOST_QUOTED) -> str:
        """A server's words, fit to be read."""
        if self._key:
            words = words.replace(self._key, "…")
        words = one_line(_LIKE_A_KEY.sub("…", words[: 10 * most])).rstrip(". ")
        return words if len(words) <= most else words[: most - 1] + "…"

    # --- kinds of trouble ---------------------------------------------------------------------------

    def _no_connection(self, kind: str, cause: BaseException | None) -> PagedChatError:
        if kind == "APITimeoutError":
            return PagedChatError(
                f"{self.name} does not answer: no connection within {CONNECT_SECONDS:.0f} s.", self._check()
            )
        trouble = tls_trouble(cause) if cause is not None else None
        if trouble is not None:
            return PagedChatError(f"{self.name} cannot be reached: {self.quoted(trouble[0], 120)}.", trouble[1])
        reason = self.quoted(_ERRNO.sub("", first_line(cause)), 120) if cause is not None else "no reason given"
        if reason == "All connection attempts failed":
            reason = "nobody answers there"
        if type(cause).__name__ in ("ConnectError", "UnsupportedProtocol"):
            return PagedChatError(f"{self.name} cannot be reached: {reason}.", self._check())
        if "peer closed connection" in reason:  # and a technical reason that says no more
            return PagedChatError(f"{self.name} cut the connection in the middle of its answer.")
        tls = "" if self._address.url.startswith("https:") else "If it speaks TLS, its URL begins with https://."
        return PagedChatError(f"{self.name} cut the connection: {reason}.", tls)

    def _failed(self, status: int, error: Exception) -> PagedChatError:
        words = self._quoted(error)
        if status in _BUSY:
            return PagedChatError(f"{self.name} is busy ({status}{words}).", "Try again in a while.")
        return PagedChatError(f"{self.name} failed ({status}{words}).", "Its log says why.")

    def _refused(self, status: int, error: Exception) -> PagedChatError:
        words = self._quoted(error)
        if 300 <= status < 400:
            where = self.quoted(at(error, "response", "headers").get("location", ""), 120)
            return PagedChatError(
                f"{self.name} sends on to {where or 'another address'}, and that is not followed.",
                "Give that address, if it is the right one.",
            )
        if status in (401, 403):
            return PagedChatError(f"{self.name} does not take the key ({status}{words}).", self._about_key())
        if status == 404:
            return PagedChatError(f"{self.name} has no such model or page (404{words}).", self._check())
        parameter = self.quoted(text_at(error, "param") or text_at(at(error, "body"), "param"), 40)
        if parameter:
            return PagedChatError(
                f"{self.name} does not take {parameter} ({status}{words}).", "/show lists what is set."
            )
        return PagedChatError(f"{self.name} refused the request ({status}{words}).")

    def _quoted(self, error: Exception) -> str:
        """`: what the server said`, or nothing."""
        body: Any = at(error, "body")
        said = text_at(body, "message") or text_at(body, "error", "message") or text_at(body, "error")
        said = said or text_at(body, "detail") or (body if isinstance(body, str) else "")
        if not said and body is None and at(error, "status_code") is None:
            said = text_at(error, "message")
        words = self.quoted(said)
        return f": {words}" if words else ""

    def _about_key(self) -> str:
        if self._address.key_env:
            return f"It was sent what {self._address.key_env} has."
        return "Name the variable that has its key with --api-key-env, or as api_key_env in [servers.NAME]."

    def _check(self) -> str:
        return f"Is {one_line(self._address.url)} right, and does it run?"


def is_busy(error: Exception) -> bool:
    """Whether the same may be asked again before long."""
    return at(error, "status_code") in _BUSY


def retry_after(error: Exception) -> float | None:
    """Seconds that the server wants to be left alone; None where it does not say."""
    headers = at(error, "response", "headers")
    try:
        seconds = float(headers.get("retry-after", "")) if headers is not None else -1.0
    except (ValueError, AttributeError):
        return None
    return seconds if 0.0 <= seconds < 86_400.0 else None


def refuses_usage(error: Exception) -> bool:
    """Whether it is the counting of tokens in a stream that the server does not know."""
    return at(error, "status_code") in (400, 422) and "stream_options" in str(error)


def _cause(error: BaseException) -> BaseException | None:
    """The first cause that says something: libraries wrap each other's errors."""
    cause: BaseException | None = error.__cause__ or (error if isinstance(error, TooMuchError) else None)
    while cause is not None and not isinstance(cause, TooMuchError) and not str(cause) and cause.__cause__:
        cause = cause.__cause__
    return cause
