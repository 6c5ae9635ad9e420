"""One engine behind a hub: whatever clients do, each sees the engine's cache, its own texts, and nobody else's."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import events as ev
from pagedchat.cache_events import ANOTHERS, CHILDREN
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.service.commands import (
    AddRequest,
    Close,
    Coming,
    Evict,
    FlushCache,
    Fork,
    Generate,
    Pin,
    Resume,
    SetLimit,
    Stop,
    TellCache,
    TellSequences,
    Unpin,
)
from pagedchat.view.owners import unlabelled
from tests.server import hub_walk
from tests.server.hub_walk import SECRETS, Listener, RigLink
from tests.service.likely_runner import LikelyRunner

COMMON = ("The boat left before dawn and nobody looked up ", "Once upon a time there was a block ", "x")


class Walk:
    """Clients that come and go, ask, fork, stop and read when they like."""

    def __init__(self, seed: int) -> None:
        self.random = choose = random.Random(seed)
        self.link = RigLink(
            choose.choice([14, 30, 80]),
            num_host_blocks=choose.choice([0, 8]),
            preemption_mode=choose.choice(["recompute", "swap"]),
            max_num_batched_tokens=choose.choice([8, 64]),
        )
        self.secrets = list(SECRETS)
        self.listeners: list[Listener] = []
        self.wanted: list[tuple[Listener, int]] = []
        self.program = self.link.hub.client("program", follows_steps=False)
        self.num_requests = 0
        self.join()
        self.link.pump()

    def run(self, num: int) -> None:
        verbs = {
            "join": 1.5, "leave": 1, "request": 3,
            "ask": 8, "fork": 2, "stop": 1, "close": 2, "pool": 1.5, "step": 14, "read": 8,
            "stall": 1,
        }  # fmt: skip
        for verb in self.random.choices(list(verbs), list(verbs.values()), k=num):
            if self.listeners or verb in ("join", "request", "step", "stall"):
                getattr(self, verb)()
                self.link.pump()
        self.link.send(SetLimit(None))
        self.link.send(Unpin())
        self.link.send(Resume())
        for _ in range(3000):
            if not self.link.rig.loop.may_step:
                break
            self.link.step()
        self.link.pump()
        for listener in self.listeners:
            listener.read()
            listener.check(self.link)
        for listener, request_id in self.wanted:
            if listener in self.listeners:
                assert request_id in listener.ended
                said = listener.texts.get(request_id, "")
                assert set(said) <= {listener.secret}, "a text of its own, and nothing else"
                ended = listener.ended[request_id]
                if isinstance(ended, ev.RequestFinished) and ended.num_prompt_tokens:  # else a fork at rest
                    assert len(said) == ended.num_tokens
        assert not self.link.hub.numbers.asked

    def some(self) -> Listener:
        return self.random.choice(self.listeners)

    def join(self) -> None:
        if len(self.listeners) < 4 and self.secrets:
            secret = self.secrets.pop() if self.random.random() < 0.8 else ""
            role = "terminal" if secret else "onlooker"
            limit = self.random.choice([40, 100_000])
            self.listeners.append(Listener(self.link.hub.client(role, max_waiting=limit), secret))

    def leave(self) -> None:
        """The last one too: then nobody watches what the program does."""
        gone = self.some()
        gone.read()
        gone.check_secrets()
        self.listeners.remove(gone)
        self.link.hub.leave(gone.client)
        assert (self.link.hub._cache.mirror is None) == (not self.listeners)

    def request(self) -> None:
        self.num_requests += 1
        prompt = self.random.choice(COMMON)[: self.random.randint(1, 60)] + "z"
        self.program.send(AddRequest(self.num_requests, prompt, SamplingParams(temperature=0, max_tokens=9)))

    def ask(self) -> None:
        who = self.some()
        prompt = self.random.choice(COMMON)[: self.random.randint(1, 60)] + (who.secret or "z")
        request = who.ask(self.random.randint(1, 3), prompt, max_tokens=self.random.choice([1, 5, 30]))
        if who.secret:
            self.wanted.append((who, request))

    def fork(self) -> None:
        who = self.some()
        who.last_request += 1
        new = 100 + who.last_request
        who.client.send(Fork(self.random.randint(1, 3), new, who.last_request))
        if who.secret:
            self.wanted.append((who, who.last_request))

    def stop(self) -> None:
        self.some().client.send(Stop(self.random.randint(1, 3)))

    def close(self) -> None:
        self.some().client.send(Close(self.random.randint(1, 3)))

    def pool(self) -> None:
        block = self.random.randrange(14)
        command = self.random.choice(
            [Pin(block), Unpin(), Evict(block), FlushCache(), SetLimit(12), SetLimit(None)]
        )
        self.some().client.send(command)

    def step(self) -> None:
        self.link.step(self.random.choice([1, 1, 5]))

    def read(self) -> None:
        who = self.some()
        who.read()
        who.check(self.link)

    def stall(self) -> None:
        """Somebody who does not read, while a lot happens."""
        self.link.step(20)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_clients_see_the_engine_their_own_texts_and_nobody_elses(seed: int) -> None:
    Walk(seed).run(60)


def test_while_nobody_watches_no_step_is_folded_and_who_comes_then_sees_all_of_the_cache():
    link = RigLink(60)
    program = link.hub.client("program", follows_steps=False)
    program.send(AddRequest(1, "Once upon a time", SamplingParams(temperature=0, max_tokens=30)))
    link.step(5)
    assert link.hub._cache.mirror is None
    watcher = Listener(link.hub.client("onlooker"), "")
    watcher.read()
    assert watcher.mirror is None
    link.pump()
    watcher.read()
    watcher.check(link)
    assert watcher.num_keyframes == 1
    link.step(3)
    watcher.read()
    watcher.check(link)
    assert watcher.num_keyframes == 1
    link.hub.leave(watcher.client)
    link.step(3)
    assert link.hub._cache.mirror is None


def test_what_the_engine_tells_twice_is_taken_in_once():
    link = RigLink(60)
    first = Listener(link.hub.client("onlooker"), "")
    link.hub.leave(first.client)
    second = Listener(link.hub.client("onlooker"), "")  # before the engine has answered for the first
    link.pump()
    link.send(TellCache())
    link.step()
    second.read()
    assert second.num_keyframes == 1
    second.check(link)


def test_a_cache_that_contradicts_itself_ends_nobodys_replies():
    link = RigLink(60)
    watcher = Listener(link.hub.client("terminal"), "A")
    watcher.ask(1, "A tale: A", max_tokens=3)
    link.hub.hear(ev.CacheKeyframe(b"nonsense"))
    assert link.hub._cache.mirror is None
    for _ in range(6):
        link.step()
    watcher.read()
    assert isinstance(watcher.ended[1], ev.RequestFinished)


def test_no_client_asks_the_engine_for_the_whole_cache():
    link = RigLink(60)
    for role in ("terminal", "program", "onlooker"):
        client = link.hub.client(role)
        link.pump()
        before = len(link.rig.events)
        client.send(TellCache())
        client.send(TellSequences(10))
        link.pump()
        assert len(link.rig.events) == before


def test_no_client_says_that_others_come():
    link = RigLink(60)
    for role in ("terminal", "program", "onlooker"):
        client = link.hub.client(role)
        client.send(Coming(1_000))
        link.pump()
        assert link.rig.loop._gathering.seconds(1) == 0.0


def test_beams_of_a_terminal_are_its_own_and_nobody_elses(monkeypatch):
    monkeypatch.setattr(hub_walk, "FakeModelRunner", lambda _, block_size: LikelyRunner(block_size=block_size))
    link = RigLink(500)
    one, other = (Listener(link.hub.client("terminal"), "") for _ in range(2))
    link.pump()
    one.client.send(Generate(1, 1, [Turn("user", "Hello!")], SamplingOverrides(max_tokens=4), beam_width=3))
    link.step(3)
    for listener in (one, other):
        listener.read()
    assert one.mirror is not None
    assert other.mirror is not None
    beams = [seq_id for seq_id in one.mirror.sequences if seq_id != 1]
    assert len(beams) == 3
    assert all(CHILDREN <= seq_id < ANOTHERS for seq_id in beams)
    assert unlabelled(beams[0], is_beam=True) == "beam 10"
    assert all(seq_id >= ANOTHERS for seq_id in other.mirror.sequences)
    link.step(10)
    for listener in (one, other):
        listener.read()
    assert isinstance(one.ended[1], ev.RequestFinished)
    assert set(link.hub.numbers.owners) == {1}
