"""What every request must get, known from its prompt alone: another token, one twice or none is found."""

from collections import Counter
from dataclasses import dataclass, field

from pagedchat import events as ev
from pagedchat.chat.session import ChatSession
from pagedchat.engine.core import EngineCore
from tests.fakes import EOS
from tests.simulation.model import KernelLetters, expected_ids, expected_search, expected_text, tokenizer


@dataclass
class Promise:
    """One request."""

    prompt: list[int]
    num_tokens: int
    """That it may get."""
    stops: list[str]
    engine: int
    """Which one of this UI process's engines has begun with it."""
    found: list[int] | None = None
    """Of a search what it is to find, and of the fork of its reply what it has found; None: the reply is drawn."""
    text: str = ""
    """What the UI has heard."""
    ended: bool = False
    is_at_rest: bool = False
    """A fork of a chat that generates nothing: all that it is told is there already."""


@dataclass
class Oracle:
    """All requests of one UI process."""

    seen: Counter[str]
    letters: KernelLetters | None
    """By which tokens are chosen; None: by symbols."""
    promises: dict[int, Promise] = field(default_factory=dict)
    """Those that the engine has begun with."""
    num_engines: int = 0
    """Started by this UI process."""
    num_deaths: int = 0
    """Of engines, heard of."""
    _last_search: dict[int, int] = field(default_factory=dict)
    """Of the engine, by its `id`, the number of the group that began last."""

    def told(self, event: ev.EngineEvent, core: EngineCore) -> None:
        """The engine says that it has begun with a request."""
        if isinstance(event, ev.RequestStarted) and self._begins_search(event, core):
            return
        if isinstance(event, ev.RequestStarted):
            seq = core.sequences[event.session_id]
            prompt = seq.token_ids[: seq.num_prompt_tokens]
            if seq.status == "parked":  # a fork of one at rest: what it has is all that is to come
                reply = seq.token_ids[len(prompt) :]
                promise = Promise(prompt, len(reply), [], self.num_engines, reply, is_at_rest=True)
                self.promises[event.request_id] = promise
                return
            room = seq.stop_length - seq.num_prompt_tokens
            self.promises[event.request_id] = Promise(
                prompt, room, list(seq.sampling_params.stop), self.num_engines
            )
            begun = seq.token_ids[len(prompt) : len(prompt) + seq.num_begun_tokens]
            self.promises[event.request_id].found = begun or None

    def _begins_search(self, event: ev.RequestStarted, core: EngineCore) -> bool:
        """It is told in the moment in which it has its group."""
        last = self._last_search.get(id(core), -1)
        group = max(core.groups.searches.values(), default=None, key=lambda each: each.group_id)
        if group is None or group.group_id <= last:
            return False
        self._last_search = {id(core): group.group_id}
        self.seen["searches"] += 1
        prompt, params = group.prompt_token_ids, group.params
        found = expected_search(prompt, params.beam_width, params.max_tokens)
        self.promises[event.request_id] = Promise(prompt, len(found), [], self.num_engines, found)
        return True

    def hear(self, event: ev.EngineEvent) -> None:
        """What the UI is told."""
        match event:
            case ev.EngineDied():  # what it had begun with is over
                self.num_deaths += 1
                for promise in self.promises.values():
                    promise.ended |= promise.engine <= self.num_deaths
            case ev.TextDelta(request_id=request_id, text=text):
                promise = self.promises[request_id]
                assert not promise.ended, f"request {request_id} has more text after its end"
                promise.text = text if event.anew else promise.text + text
            case ev.RequestFinished(request_id=request_id):
                if event.num_prompt_tokens:
                    self._check(self.promises[request_id], event)
            case ev.RequestFailed(request_id=request_id) if request_id in self.promises:
                self.promises[request_id].ended = True
                self.seen["requests failed"] += 1

    def _check(self, promise: Promise, event: ev.RequestFinished) -> None:
        assert not promise.ended, f"request {event.request_id} ends twice"
        promise.ended = True
        self.seen[f"requests ended: {event.reason}"] += 1
        if promise.found is not None and event.reason == "abort":
            return  # the best so far
        wanted = promise.found
        if wanted is None:
            wanted = expected_ids(promise.prompt, promise.num_tokens, self.letters)
        ids = wanted[: event.num_tokens]
        assert len(ids) == event.num_tokens, f"{event.num_tokens} tokens, where {len(wanted)} were to come"
        end = tokenizer().token_to_id(EOS)
        if ids and ids[-1] == end:
            ids.pop()
        text = expected_text(ids, promise.stops)
        if promise.is_at_rest:  # what ended its source may have cut the text
            assert len(ids) + (wanted[-1:] == [end]) == promise.num_tokens == event.num_tokens
            assert text.startswith(promise.text), f"{promise.text!r} was heard, {text!r} was said"
            return
        assert promise.text == text, f"{promise.text!r} was heard, {text!r} was said"
        by_stop_string = any(stop in expected_text(ids, []) for stop in promise.stops)
        match event.reason:
            case "length":
                assert event.num_tokens == promise.num_tokens
            case "stop":
                assert by_stop_string or wanted[event.num_tokens - 1] == end

    def check_turn(self, event: ev.EngineEvent, chat: ChatSession | None) -> None:
        """The chat shows what was heard; the next prompt, if one was queued, may stand below it."""
        if chat is None or not isinstance(event, ev.RequestFinished) or not event.num_prompt_tokens:
            return
        if event.reason in ("stop", "length"):
            shown = [entry.turn.text for entry in chat.entries[-2:] if entry.turn.role == "assistant"]
            assert shown[-1:] == [self.promises[event.request_id].text], f"{chat.label} shows {shown}"
