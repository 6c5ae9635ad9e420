"""Beam searches that sessions wait for: begun with a prompt's tokens, told of while they run, taken when over.

Knows the engine's groups and sessions' numbers; not what becomes of what was found.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pagedchat.engine.core import EngineCore
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.beams import BeamGroup
from pagedchat.errors import RequestError
from pagedchat.events import RequestStarted, TextDelta
from pagedchat.service.publisher import Publisher
from pagedchat.service.rendering import RenderJob
from pagedchat.service.text_model import TextModel

MAX_TOKENS = 256
"""Of a reply that is searched, where nobody says how long it may be: a search goes on while a longer reply could
still be likelier for each of its tokens."""


@dataclass(slots=True)
class Search:
    """One of them."""

    job: RenderJob
    text: str
    """The prompt's."""
    group: BeamGroup
    told: list[int]
    """The tokens that were told last."""
    first_told: float | None = None
    """When the first of them were, which others may have replaced since."""

    @property
    def session_id(self) -> int:
        """Who waits."""
        return self.job.command.session_id

    @property
    def request_id(self) -> int:
        """For what."""
        return self.job.command.request_id

    @property
    def best(self) -> list[int]:
        """The likeliest reply so far."""
        found = self.group.hypotheses()
        return found[0].token_ids if found else []


class Searches:
    """Those that are not taken yet.

    Args:
        core: runs them.
        publisher: hears of them.
        text_model: tokens to text.
        clock: seconds.
    """

    def __init__(
        self, core: EngineCore, publisher: Publisher, text_model: TextModel, clock: Callable[[], float]
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._text_model = text_model
        self._clock = clock
        self.running: dict[int, Search] = {}
        """By session. A step without any costs no more than a look at it."""

    def begin(self, job: RenderJob, text: str, prompt_ids: list[int]) -> None:
        """Search for the reply to a prompt.

        Raises:
            RequestError: too many beams, or tokens, for model and pool.
            InvalidValueError: a number of beams that no search has.
        """
        command = job.command
        room = self._core.limits.max_len - 1 - len(prompt_ids)  # what is found must leave the chat a token
        if room < 1:
            raise RequestError(
                f"The prompt has {len(prompt_ids)} tokens, which leaves a search no room: the model's context and "
                f"the KV cache hold {self._core.limits.max_len}.",
                "Shorten the prompt, or give the cache more memory (--num-blocks or --kv-cache-memory).",
            )
        wanted = command.overrides.max_tokens or MAX_TOKENS
        params = BeamSearchParams(command.beam_width, min(room, wanted), ignore_eos=job.params.ignore_eos)
        group = self._core.groups.search(prompt_ids, params, for_seq_id=command.session_id)
        self.running[command.session_id] = Search(job, text, group, [])
        self._publisher.send_now(RequestStarted(command.session_id, command.request_id, len(prompt_ids), 0))

    def tell(self) -> None:
        """The likeliest reply of each, as it stands; another one may take its place."""
        for search in self.running.values():
            if search.best != search.told:
                search.told = search.best
                search.first_told = self._clock() if search.first_told is None else search.first_told
                self._publisher.add_text(self._delta(search))

    def take_over(self) -> list[Search]:
        """Those that are over; they are no more."""
        return [self.running.pop(session_id) for session_id in [*self.running] if self._is_over(session_id)]

    def end(self, session_id: int) -> Search | None:
        """Break a session's search off, if it has one."""
        search = self.running.pop(session_id, None)
        if search is not None:
            self._core.groups.end(search.group)
        return search

    def drop_all(self) -> list[Search]:
        """The engine cannot go on with any."""
        searches, self.running = list(self.running.values()), {}
        return searches

    def _is_over(self, session_id: int) -> bool:
        return self.running[session_id].group.is_over

    def _delta(self, search: Search) -> TextDelta:
        text = self._text_model.decode(search.best)
        stripped = text.lstrip() if self._text_model.strips_start(search.job.command) else text
        return TextDelta(search.session_id, search.request_id, stripped, len(search.best), anew=True)
