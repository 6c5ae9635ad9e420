"""`kv_events_config`: vLLM's words, and what a subscriber hears of an `LLM`."""

import gc
import threading

import pytest

from pagedchat import LLM
from pagedchat.api.kv_events import kv_events_of
from pagedchat.config import KVEventsConfig
from pagedchat.errors import InvalidValueError, PagedChatError
from tests.api.fakes_llm import use_fake_model
from tests.kv_events.subscriber import Subscriber
from tests.kv_events.test_translate import findable

ANY_PORT = "tcp://127.0.0.1:0"
CONFIG = {"enable_kv_cache_events": True, "endpoint": ANY_PORT, "replay_endpoint": ANY_PORT}


def test_vllms_words_are_ours():
    given = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:5557",
        "replay_endpoint": "tcp://*:5558",
        "buffer_steps": 10,
        "hwm": 20,
        "max_queue_size": 30,
        "topic": "kv@pod@model",
    }
    assert kv_events_of(given) == KVEventsConfig(
        kv_events_endpoint="tcp://*:5557",
        kv_events_replay_endpoint="tcp://*:5558",
        kv_events_buffer=10,
        kv_events_hwm=20,
        kv_events_topic="kv@pod@model",
    )
    assert kv_events_of({"enable_kv_cache_events": True}).kv_events_endpoint == "tcp://127.0.0.1:5557"
    ours = KVEventsConfig(kv_events_endpoint="tcp://*:1")
    assert kv_events_of(ours) is ours


@pytest.mark.parametrize("given", [None, {}, {"endpoint": "tcp://*:1"}, {**CONFIG, "publisher": "null"}])
def test_nothing_is_told_where_nothing_is_asked_for(given):
    assert kv_events_of(given) == KVEventsConfig()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("zmq", "kv_events_config is 'zmq'"),
        ({"port": 1}, "kv_events_config has 'port'"),
        ({"publisher": "nats"}, "the publisher 'nats'"),
        ({"enable_kv_cache_events": 1}, "enable_kv_cache_events is 1"),
        ({"endpoint": "here"}, "--kv-events-endpoint is 'here'"),
    ],
)
def test_what_cannot_be_is_named(given, words):
    with pytest.raises(InvalidValueError, match=words):
        kv_events_of(given)


@pytest.mark.parametrize("encoding", ["map", "array"])
def test_a_subscriber_of_an_llm_knows_its_cache(monkeypatch, encoding):
    use_fake_model(monkeypatch)
    with LLM(kv_events_config={**CONFIG, "encoding": encoding}) as llm:
        publisher = llm._engine.block_events
        subscriber = Subscriber(publisher.endpoint, publisher.replay_endpoint, encoding)
        try:
            llm.generate(["The sea is wide and", "The sea is deep and"], use_tqdm=False)
            wanted = findable(llm._engine._core)
            while subscriber.tree.blocks != wanted:
                subscriber.catch_up()
            assert len(wanted) >= 8
        finally:
            subscriber.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "kv-events"]


def test_an_llm_that_is_let_go_publishes_no_longer(monkeypatch):
    use_fake_model(monkeypatch)
    llm = LLM(kv_events_config=CONFIG)
    endpoint = llm._engine.block_events.endpoint
    del llm
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "kv-events"]
    LLM(kv_events_config={**CONFIG, "endpoint": endpoint}).close()


def test_an_endpoint_that_is_taken_is_told_before_a_model_is_loaded(monkeypatch):
    asked = use_fake_model(monkeypatch)
    with LLM(kv_events_config=CONFIG) as first:
        endpoint = first._engine.block_events.endpoint
        with pytest.raises(PagedChatError, match="address already in use"):
            LLM(kv_events_config={**CONFIG, "endpoint": endpoint})
    assert len(asked) == 1


def test_a_model_that_cannot_be_loaded_gives_the_endpoint_back(monkeypatch):
    use_fake_model(monkeypatch)
    with LLM(kv_events_config=CONFIG) as llm:
        endpoint = llm._engine.block_events.endpoint

    def refuse(*_args, **_options):
        raise PagedChatError("no such model")

    monkeypatch.setattr("pagedchat.api.engine.load_model", refuse)
    for _ in range(2):
        with pytest.raises(PagedChatError, match="no such model"):
            LLM(kv_events_config={**CONFIG, "endpoint": endpoint})
