"""What comes over ZeroMQ: in order, numbered, repaired by replay; and nobody waits for who does not read."""

import socket
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.config import KVEventsConfig
from pagedchat.errors import PagedChatError
from pagedchat.kv_events import publisher as module
from pagedchat.kv_events.publisher import BlockEventPublisher, publisher_of
from tests.engine.test_core import make_engine
from tests.engine.walk import Walk
from tests.kv_events.subscriber import Subscriber
from tests.kv_events.test_translate import findable, reports_of

ANY_PORT = "tcp://127.0.0.1:0"


class Rig:
    """An engine whose reports are published."""

    def __init__(self, num_blocks: int = 6, **config) -> None:
        self.engine = make_engine(num_blocks=num_blocks, model_len=2000, max_num_batched_tokens=2000)
        self.publisher = BlockEventPublisher(
            KVEventsConfig(kv_events_endpoint=ANY_PORT, kv_events_replay_endpoint=ANY_PORT, **config)
        )
        self.encoding = config.get("kv_events_encoding", "map")
        self.topic = config.get("kv_events_topic", "")
        self.subscribers: list[Subscriber] = []
        self.next_token = 0

    def start(self) -> "Rig":
        self.publisher.start(self.engine)
        return self

    def subscriber(self, **options) -> Subscriber:
        """One that surely listens: it has been told of something."""
        publisher = self.publisher
        new = Subscriber(publisher.endpoint, publisher.replay_endpoint, self.encoding, self.topic, **options)
        self.subscribers.append(new)
        while not new.live.poll(20):
            self.prompt()
        new.receive()
        return new

    def prompt(self, length: int = 9) -> None:
        """One that no other begins like."""
        start = self.next_token = (self.next_token + length) % 5000
        for report in reports_of(self.engine, list(range(start, start + length))):
            self.publisher.add(report)

    def close(self) -> None:
        self.publisher.close()
        for subscriber in self.subscribers:
            subscriber.close()


@pytest.fixture
def rig() -> Iterator:
    rigs = []

    def make(**config) -> Rig:
        rigs.append(Rig(**config))
        return rigs[-1].start()

    yield make
    for each in rigs:
        each.close()


@pytest.mark.parametrize("encoding", ["map", "array"])
@pytest.mark.parametrize("topic", ["", "kv@pod@model"])
def test_a_subscriber_knows_the_tree_from_the_first_event_on(rig, encoding, topic):
    rig = rig(kv_events_encoding=encoding, kv_events_topic=topic)
    subscriber = rig.subscriber()
    for _ in range(20):
        rig.prompt()
    settle(rig, subscriber)
    assert subscriber.tree.num_clears == 1
    assert rig.engine.stats().evictions > 20


def soon(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so in ten seconds."""
    deadline = time.monotonic() + 10
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def settle(rig: Rig, subscriber: Subscriber) -> None:
    """Until it knows what the engine has; what it missed at the end it asks for."""
    deadline = time.monotonic() + 20
    while subscriber.tree.blocks != findable(rig.engine):
        assert time.monotonic() < deadline
        if subscriber.live.poll(50):
            subscriber.receive()
        else:
            subscriber.catch_up()


def test_gaps_are_repaired_by_replay(rig):
    rig = rig()
    subscriber = rig.subscriber()
    for number in range(30):
        rig.prompt()
        assert subscriber.live.poll(5000)
        while subscriber.live.poll(0):
            if number % 3:
                subscriber.live.recv_multipart()
            else:
                subscriber.receive()
    settle(rig, subscriber)
    assert subscriber.num_replayed > 10


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["map", "array"]), st.floats(0, 1))
def test_random_workloads_are_known_whatever_is_lost(seed, encoding, share):
    walk = PublishedWalk(seed, encoding, share)
    try:
        walk.run(80)
        walk.settle()
    finally:
        walk.end()


class PublishedWalk(Walk):
    """A workload that is published, to a subscriber that loses a share of what comes."""

    def __init__(self, seed: int, encoding: str, share: float) -> None:
        super().__init__(seed)
        self.share = share
        config = {"kv_events_endpoint": ANY_PORT, "kv_events_replay_endpoint": ANY_PORT}
        self.publisher = BlockEventPublisher(KVEventsConfig(**config, kv_events_encoding=encoding))
        self.publisher.start(self.engine)
        self.subscriber = Subscriber(self.publisher.endpoint, self.publisher.replay_endpoint, encoding)

    def note(self, report) -> None:
        super().note(report)
        self.publisher.add(report)

    def check(self) -> None:
        super().check()
        while self.subscriber.live.poll(0):
            if self.random.random() < self.share:
                self.subscriber.live.recv_multipart()
            else:
                self.subscriber.receive()

    def settle(self) -> None:
        deadline = time.monotonic() + 20
        while self.subscriber.tree.blocks != findable(self.engine):
            assert time.monotonic() < deadline
            self.subscriber.catch_up()

    def end(self) -> None:
        self.publisher.close()
        self.subscriber.close()


def test_only_as_much_is_kept_as_was_asked_for(rig):
    rig = rig(kv_events_buffer=4)
    subscriber = rig.subscriber()
    last = -1
    while last < 10:
        rig.prompt()
        last = subscriber.receive()
    while subscriber.live.poll(100):
        last = subscriber.receive()
    assert replayed(subscriber, (0).to_bytes(8, "big")) == list(range(last - 3, last + 1))


def replayed(subscriber: Subscriber, request: bytes) -> list[int]:
    """Numbers of what comes back."""
    subscriber.replay.send_multipart([b"", request])
    numbers = []
    while True:
        assert subscriber.replay.poll(5000)
        seq = subscriber.replay.recv_multipart()[-2]
        if seq == b"\xff" * 8:
            return numbers
        numbers.append(int.from_bytes(seq, "big"))


def test_requests_that_are_none_are_passed_over(rig):
    rig = rig()
    subscriber = rig.subscriber()
    for wrong in ([b""], [b"what"], [b"", b"short"], [b"x", b"\0" * 8], [b"", b"\0" * 9], [b"", b"\0" * 8, b""]):
        subscriber.replay.send_multipart(wrong)
    assert replayed(subscriber, b"\0" * 8)[0] == 0
    hostile = subscriber.context.socket(zmq.DEALER)
    hostile.connect(rig.publisher.replay_endpoint)
    hostile.send_multipart([b"", bytes(1 << 20)])
    hostile.send_multipart([b"", b"\0" * 8])
    assert replayed(subscriber, b"\0" * 8)[0] == 0
    assert not hostile.poll(50)
    hostile.close(linger=0)
    assert replayed(subscriber, b"\xff" * 8) == []


def test_nothing_waits_for_a_subscriber_that_does_not_read(rig):
    """Many times as much as is held for it; then it reads, and asks for what it missed. How much the system holds
    besides nobody knows: until something was missed there is more and more."""
    rig = rig(num_blocks=400, kv_events_hwm=1)
    subscriber = rig.subscriber(buffer=4096)
    num_batches, num_missed = 50, 0
    while num_missed == 0:
        assert num_batches <= 1600
        first = rig.publisher.num_published
        for _ in range(num_batches):  # each on its way by itself, however seldom its thread has a turn
            before = rig.publisher.num_published
            for _ in range(5):
                rig.prompt(1200)
            assert soon(lambda before=before: rig.publisher.num_published > before)
        num_taken = subscriber.take_live()
        num_missed = rig.publisher.num_published - first - num_taken
        settle(rig, subscriber)
        num_batches *= 2
    assert subscriber.tree.num_clears == 1


def test_a_new_engine_begins_by_clearing_what_was_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = "ipc://events"
    config = KVEventsConfig(kv_events_endpoint=path, kv_events_replay_endpoint=f"{path}-replay")
    trees = []
    for _ in range(2):
        publisher = BlockEventPublisher(config)
        publisher.start(make_engine())
        subscriber = Subscriber(publisher.endpoint, publisher.replay_endpoint)
        subscriber.tree.blocks["known"] = (None, ())
        subscriber.catch_up()
        trees.append(subscriber.tree)
        publisher.close()
        subscriber.close()
    assert [(tree.num_clears, tree.blocks) for tree in trees] == [(1, {}), (1, {})]
    assert not list(tmp_path.iterdir())


def test_a_router_that_binds_is_connected_to():
    """As vLLM does with a host that is named."""
    name = socket.gethostname()
    context = zmq.Context()
    router = context.socket(zmq.SUB)
    router.setsockopt(zmq.SUBSCRIBE, b"")
    router.bind(f"tcp://{socket.gethostbyname(name)}:*")
    port = router.last_endpoint.decode().rstrip("\0").rpartition(":")[2]
    engine = make_engine()
    publisher = BlockEventPublisher(KVEventsConfig(kv_events_endpoint=f"tcp://{name}:{port}"))
    publisher.start(engine)
    try:
        token = 0
        while not router.poll(20):
            token += 9
            assert token < 5000
            for report in reports_of(engine, list(range(token, token + 9))):
                publisher.add(report)
    finally:
        publisher.close()
        context.destroy(linger=0)


# --- mistakes -----------------------------------------------------------------------------------------


def test_without_an_endpoint_nothing_is_told():
    assert publisher_of(KVEventsConfig()) is None


def test_an_endpoint_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PagedChatError) as told:
            BlockEventPublisher(KVEventsConfig(kv_events_endpoint=endpoint))
        assert told.value.message == f"--kv-events-endpoint {endpoint} cannot be had: address already in use."
        with pytest.raises(PagedChatError, match=r"--kv-events-replay-endpoint .* address already in use"):
            BlockEventPublisher(
                KVEventsConfig(kv_events_endpoint=ANY_PORT, kv_events_replay_endpoint=endpoint),
            )


def test_a_file_is_not_replaced_by_a_socket(tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    with pytest.raises(PagedChatError, match="there is a file of that name"):
        BlockEventPublisher(KVEventsConfig(kv_events_endpoint=f"ipc://{path}"))
    assert path.read_text() == "years of work"


def test_a_path_where_somebody_listens_is_in_use(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = KVEventsConfig(kv_events_endpoint="ipc://events")
    first = BlockEventPublisher(config)
    with pytest.raises(PagedChatError, match=r"ipc://events cannot be had: address already in use"):
        BlockEventPublisher(config)
    first.close()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind("events")
    BlockEventPublisher(config).close()


def test_addresses_of_the_newer_kind_are_bound():
    publisher = BlockEventPublisher(KVEventsConfig(kv_events_endpoint="tcp://[::1]:0"))
    assert publisher.endpoint.startswith("tcp://[::1]:")
    publisher.close()


def test_without_pyzmq_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(PagedChatError) as told:
        BlockEventPublisher(KVEventsConfig(kv_events_endpoint=ANY_PORT))
    assert told.value.message == "Block events are published through pyzmq, which is not installed."
    assert told.value.hint == "Install it: pip install 'pagedchat[serve]'."


def test_a_defect_ends_what_is_told_and_nothing_else(rig, monkeypatch, caplog):
    rig = rig()
    subscriber = rig.subscriber()
    monkeypatch.setattr(module, "encode", lambda *_: 1 / 0)
    rig.prompt()
    rig.publisher._thread.join(5)
    assert "Block events are published no longer" in caplog.text
    rig.prompt()
    rig.publisher.close()
    assert subscriber.tree.num_clears == 1


def test_an_engine_that_is_too_far_ahead_is_told_of_no_more(rig, monkeypatch, caplog):
    monkeypatch.setattr(module, "_MOST_WAITING", 0)
    rig = rig()
    rig.prompt()
    rig.publisher._thread.join(5)
    assert not rig.publisher._thread.is_alive()
    assert "faster than they could be told" in caplog.text
    rig.prompt()
    assert not rig.publisher._waiting


def test_closing_before_the_start_and_twice_does_no_harm():
    publisher = BlockEventPublisher(KVEventsConfig(kv_events_endpoint=ANY_PORT))
    publisher.close()
    publisher.close()
    assert publisher._thread is None
    again = BlockEventPublisher(KVEventsConfig(kv_events_endpoint=publisher.endpoint))  # which is free
    again.close()
