"""A program beside the screens of a simulated UI process: it asks, leaves and hears, and knows what it must get."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from pagedchat import events as ev
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.outputs import CompletionOutput, RequestOutput
from pagedchat.service import commands as cmd
from tests.fakes import EOS
from tests.simulation.model import KernelLetters, expected_ids, expected_text, tokenizer

MAX_REQUESTS = 9
_PROMPTS = ("Tell me", "Tell me of the sea", "Tell me of the sea, please, and of boats", "é€", "a" * 70, "")
_STOPS: tuple[list[str], ...] = ([], [], ["ab"], ["a", "ba"], ["cab", "€"])


@dataclass
class Asked:
    """One request, and what has come."""

    prompt: list[int]
    params: SamplingParams
    text: dict[int, str] = field(default_factory=dict)
    """By answer."""
    token_ids: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)


class SimulatedProgram:
    """Requests of its own on the engine of a UI process.

    Args:
        send: to the engine.
        choose: what is done.
        limits: of the engine.
        letters: by which tokens are chosen; None: by symbols.
        seen: counts what happens.
    """

    def __init__(
        self,
        send: Callable[[cmd.AnyCommand], None],
        choose: Random,
        limits: EngineLimits,
        letters: KernelLetters | None,
        seen: Counter[str],
    ) -> None:
        self._send, self._random, self._limits, self._letters, self._seen = send, choose, limits, letters, seen
        self._last = 0
        self.asked: dict[int, Asked] = {}
        """Those that it waits for."""

    def ask(self) -> None:
        """One more request."""
        if len(self.asked) >= MAX_REQUESTS:
            return
        choose = self._random
        text = choose.choice(_PROMPTS)
        n = choose.choice((1, 1, 2, 3))
        best_of = n + 1 if choose.random() < 0.2 else None
        params = SamplingParams(
            n=n,
            best_of=best_of,
            temperature=0.0 if n == 1 and best_of is None else 1.0,
            max_tokens=choose.choice((1, 5, 30)),
            stop=choose.choice(_STOPS),
            output_kind=choose.choice(list(RequestOutputKind)) if best_of is None else RequestOutputKind.FINAL_ONLY,
        )
        self._seen["requests of programs for the best of several"] += best_of is not None
        ids = tokenizer().encode(text, add_special_tokens=False).ids
        self._last += 1
        self.asked[self._last] = Asked(ids, params)
        self._send(cmd.AddRequest(self._last, choose.choice((text, ids)), params))
        if choose.random() < 0.3:  # true or not: an engine waits for no more than a moment
            num_coming = choose.choice((0, 1, 40))
            self._seen["requests told of"] += num_coming > 0
            self._send(cmd.Coming(num_coming))

    def leave(self) -> None:
        """It waits for some of them no longer."""
        left = [number for number in self.asked if self._random.random() < 0.4]
        for number in left:
            del self.asked[number]
        self._seen["requests of programs left"] += len(left)
        gone = [number for number in range(1, self._last + 3) if number not in self.asked]
        self._send(cmd.AbortRequests([*left, self._random.choice(gone)]))

    def hear(self, event: ev.EngineEvent) -> None:
        """What the UI process is told."""
        match event:
            case ev.EngineDied():  # as AsyncLLM does it
                left, self.asked = list(self.asked), {}
                self._send(cmd.AbortRequests(left))
            case ev.RequestRefused(number, message):
                asked = self.asked.pop(number, None)
                assert asked is None or self._may_be_refused(asked, message), message
                self._seen["requests of programs refused"] += 1
            case ev.RequestOutputs(numbers, outputs):
                for number, output in zip(numbers, outputs, strict=True):
                    if number in self.asked:  # else it was left
                        self._take(number, self.asked[number], output)

    def _may_be_refused(self, asked: Asked, message: str) -> bool:
        """Empty, or too much for the model or the cache; or while there is no engine."""
        length, n = len(asked.prompt), asked.params.best_of or asked.params.n
        return not length or length >= self._limits.max_len or n > 1 or "not running" in message

    def _take(self, number: int, asked: Asked, output: RequestOutput) -> None:
        for one in output.outputs:
            assert one.index not in asked.reasons, f"answer {one.index} of request {number} has more after its end"
            self._add(asked, one)
        if output.finished:
            del self.asked[number]
            self._seen["requests of programs finished"] += 1
            assert len(asked.token_ids) == asked.params.n
            for index in asked.token_ids:
                self._check(asked, index)

    def _add(self, asked: Asked, one: CompletionOutput) -> None:
        asked.text[one.index] = asked.text.get(one.index, "") + one.text
        asked.token_ids.setdefault(one.index, []).extend(one.token_ids)
        if one.finish_reason is not None:
            asked.reasons[one.index] = one.finish_reason

    def _check(self, asked: Asked, index: int) -> None:
        """The tokens that the model makes of this prompt, as many as were to come, and their text."""
        room = min(asked.params.max_tokens or 0, self._limits.max_len - len(asked.prompt))
        wanted = expected_ids(asked.prompt, room, self._letters)
        ids, reason, end = asked.token_ids[index], asked.reasons[index], tokenizer().token_to_id(EOS)
        assert ids == wanted[: len(ids)], f"{ids} came, {wanted} were to come"
        if reason == "error":
            return
        said = ids[:-1] if ids[-1:] == [end] else ids
        stops = asked.params.stop
        assert asked.text[index] == expected_text(said, stops)
        by_stop_string = any(stop in expected_text(said, []) for stop in stops)
        assert (reason == "stop") == (by_stop_string or ids[-1:] == [end]), f"{ids} ended by {reason}"
        assert reason == "stop" or len(ids) == room
