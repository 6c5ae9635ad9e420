"""The example of a subscriber reads both encodings, and begins anew with a new engine."""

import subprocess
import sys
from collections.abc import Iterator
from queue import Queue
from threading import Thread

import pytest

from pagedchat.config import KVEventsConfig
from pagedchat.kv_events.publisher import BlockEventPublisher
from pagedchat.kv_events.schema import encode
from tests.engine.test_core import make_engine
from tests.kv_events.test_translate import Told, findable, reports_of
from tools.watch_kv_events import Tree


@pytest.mark.parametrize("encoding", ["map", "array"])
@pytest.mark.parametrize("hashes", ["int", "bytes"])
def test_its_tree_is_the_engines(encoding, hashes):
    engine, tree = make_engine(num_blocks=5), Tree()
    events, lines = Told(engine, encoding, hashes), []
    for prompt in (list(range(12)), [*range(4), *range(50, 62)], [7] * 9):
        lines += [tree.take(encode(1.0, events.of(report))) for report in reports_of(engine, prompt)]
    known = {name: (parent, tuple(tokens)) for name, (parent, tokens) in tree.blocks.items()}
    assert known == findable(engine, hashes)
    assert any(" behind " in line for line in lines)
    assert any(line.startswith("-") for line in lines)


@pytest.fixture
def watching() -> Iterator:
    publisher = BlockEventPublisher(
        KVEventsConfig(kv_events_endpoint="tcp://127.0.0.1:0", kv_events_replay_endpoint="tcp://127.0.0.1:0")
    )
    command = [sys.executable, "-m", "tools.watch_kv_events", publisher.endpoint]
    command += ["--replay", publisher.replay_endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield publisher, process
        process.kill()
    publisher.close()


def test_what_was_before_it_came_is_asked_for(watching):
    publisher, process = watching
    engine, token, lines = make_engine(), 0, Queue()
    Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()
    publisher.start(engine)
    while lines.qsize() < 2:  # it takes a while until it listens
        for report in reports_of(engine, list(range(token, token + 9))):
            publisher.add(report)
        token = (token + 9) % 5000
        publisher._thread.join(0.02)
    assert lines.get().split()[:4] == ["0", "0", "blocks", "cleared"]
    again = lines.get()
    assert again.split()[:4] == ["1", "2", "blocks", "+2"]
    assert "[again]" in again
