"""An engine with a fake model behind a hub, and clients that fold what they hear."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pagedchat import events as ev
from pagedchat.cache_events import ANOTHERS, REDACTED, PrefixMissed, SequenceExtended, SequenceForked
from pagedchat.chat.turns import Turn
from pagedchat.engine import keyframe
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.server.hub import EngineHub
from pagedchat.server.hub_client import HubClient
from pagedchat.service.commands import AnyCommand, Generate, TellCache, TellSequences
from tests.fakes import FakeModelRunner, byte_tokenizer
from tests.service.engine_rig import EngineRig
from tests.service.fake_engine import ready_info

SECRETS = "ABCDEFGH"
"""A letter for each client that only its own texts have."""
TOKENIZER = byte_tokenizer()
SECRET_IDS = {letter: TOKENIZER.encode(letter, add_special_tokens=False).ids[0] for letter in SECRETS}
BLOCK_SIZE = 4


def echo_secret(token_ids: list[int]) -> int:
    """A model that goes on with the last secret letter it was told, over and over."""
    known = set(SECRET_IDS.values())
    return next((token_id for token_id in reversed(token_ids) if token_id in known), 100)


class RigLink:
    """A hub's engine, driven by the test: commands are carried out at once, events are handed over by `pump`."""

    def __init__(self, num_blocks: int = 60, **limits: Any) -> None:
        bounds = EngineLimits(
            num_blocks=num_blocks, block_size=BLOCK_SIZE, model_len=400, eos_token_ids=frozenset({1}), **limits
        )
        runner = FakeModelRunner(echo_secret, BLOCK_SIZE)
        self.rig = EngineRig(runner, limits=bounds)
        self.info = ready_info(num_blocks=num_blocks, num_host_blocks=bounds.num_host_blocks, max_model_len=400)
        self.hub = EngineHub(self)  # type: ignore[arg-type]
        self._num_told = 0
        self.answers_by_itself = False
        """Whether what a server asks is answered without a `pump`, on the loop that runs."""
        self.num_unseen = 0
        """Reports before the one from which on somebody watched."""
        self.hub.hear(self.info)

    def send(self, command: AnyCommand) -> None:
        self.rig.send(command)
        if self.answers_by_itself and isinstance(command, TellCache | TellSequences):
            asyncio.get_running_loop().call_soon(self.pump)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            if self.rig.loop.may_step:
                self.rig.step()
        self.pump()

    def pump(self) -> None:
        """What the engine has said so far reaches the hub."""
        self.rig.loop._publish()
        new, self._num_told = self.rig.events[self._num_told :], len(self.rig.events)
        for event in new:
            if isinstance(event, ev.CacheKeyframe) and self.hub._cache.mirror is None:
                self.num_unseen = keyframe.decode(event.state).num_reports
            self.hub.hear(event)

    def truth(self) -> CacheMirror:
        return self.rig.mirror()


@dataclass
class Listener:
    """A client, and all that it makes of what it hears."""

    client: HubClient
    secret: str
    mirror: CacheMirror | None = None
    texts: dict[int, str] = field(default_factory=dict)
    """By request."""
    ended: dict[int, ev.EngineEvent] = field(default_factory=dict)
    token_texts: dict[int, bytes] = field(default_factory=dict)
    tokens: set[int] = field(default_factory=set)
    """All that it was ever told."""
    notices: list[ev.EngineNotice] = field(default_factory=list)
    heard: list[ev.EngineEvent | None] = field(default_factory=list)
    num_keyframes: int = 0
    last_request: int = 0

    def ask(self, session_id: int, prompt: str, **overrides: Any) -> int:
        self.last_request += 1
        turns = [Turn("user", prompt)]
        self.client.send(Generate(session_id, self.last_request, turns, SamplingOverrides(**overrides)))
        return self.last_request

    def read(self) -> None:
        """All that waits."""
        for event in self.client.queue.take():
            self.heard.append(event)
            self._fold(event)

    def _fold(self, event: ev.EngineEvent | None) -> None:
        match event:
            case ev.CacheKeyframe(state):
                self.num_keyframes += 1
                self.mirror = keyframe.restore(keyframe.decode(state))
                self._note_keyframe(self.mirror)
            case ev.Steps(reports):
                for report in reports:
                    assert self.mirror is not None
                    self.mirror.apply(report)
                    self._note_report(report)
            case ev.TokenTexts(token_ids, texts):
                self.token_texts.update(zip(token_ids, texts, strict=True))
                self.tokens.update(token_ids)
            case ev.TextDelta():
                self.texts[event.request_id] = self.texts.get(event.request_id, "") + event.text
            case ev.RequestFinished() | ev.RequestFailed():
                assert event.request_id not in self.ended
                self.ended[event.request_id] = event
            case ev.EngineNotice():
                self.notices.append(event)

    def _note_keyframe(self, mirror: CacheMirror) -> None:
        for seq in mirror.sequences.values():
            self.tokens.update(seq.token_ids)
        for block in mirror.block_tokens:
            self.tokens.update(block)

    def _note_report(self, report: ev.StepReport) -> None:
        for entry in report.batch:
            self.tokens.update(entry.token_ids)
        for event in report.events:
            match event:
                case SequenceExtended(token_ids=token_ids) | SequenceForked(token_ids=token_ids):
                    self.tokens.update(token_ids)
                case PrefixMissed():
                    self.tokens.update((event.token_id, event.cached_token_id))

    # --- what must hold -----------------------------------------------------------------------------

    def check(self, link: RigLink) -> None:
        """After `read`: the mirror is the engine's but for redaction, and nothing of another's came across."""
        self.check_secrets()
        assert self.mirror is not None
        truth, seen = link.truth(), self.mirror
        number = self.client.watcher.eyes.number
        own = link.hub.numbers.own[self.client.key]
        for name in ("ref_counts", "free_blocks", "cached_blocks", "withheld", "pinned", "host_ref_counts",
                     "num_reports"):  # fmt: skip
            assert getattr(seen, name) == getattr(truth, name), name
        assert seen.touched == {block: at for block, at in truth.touched.items() if at > link.num_unseen}
        assert list(map(sorted, seen.holders)) == [sorted(map(number, ids)) for ids in truth.holders]
        assert len(seen.sequences) == len(truth.sequences)
        for seq_id, real in truth.sequences.items():
            mine = seen.sequences[number(seq_id)]
            assert (number(seq_id) < ANOTHERS) == (seq_id in own)
            same = msgspec.structs.replace(
                real,
                seq_id=number(seq_id),
                token_ids=real.token_ids if seq_id in own else [REDACTED] * len(real.token_ids),
                held=real.held and msgspec.structs.replace(real.held, seq_id=number(real.held.seq_id)),
            )
            assert mine == same
        self._check_findable(link, truth, seen)

    def _check_findable(self, link: RigLink, truth: CacheMirror, seen: CacheMirror) -> None:
        opaque = link.hub._opaque
        for block_id, real in enumerate(truth.block_tokens):
            block_hash = truth.block_hashes[block_id]
            assert seen.block_hashes[block_id] == (None if block_hash is None else opaque(block_hash))
            assert seen.block_parents[block_id] == opaque(truth.block_parents[block_id])
            known = seen.block_tokens[block_id]
            assert known in (real, (REDACTED,) * len(real))
            if real and link.hub._cache.knows(self.client.watcher, block_id):
                assert known == real

    def check_secrets(self) -> None:
        others = {SECRET_IDS[letter] for letter in SECRETS if letter != self.secret}
        assert not self.tokens & others
        assert not set(self.token_texts) & others
        assert not any(
            letter in text for text in self.texts.values() for letter in SECRETS if letter != self.secret
        )
        if not self.secret:
            assert self.tokens <= {REDACTED}
        told = [word for word in _words(msgspec.to_builtins(self.heard, builtin_types=(bytes,))) if len(word) > 1]
        assert not any(2 * letter in word for word in told for letter in SECRETS if letter != self.secret)


def _words(value: Any) -> Iterator[str]:
    """Every text anywhere in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from _words(list(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)
