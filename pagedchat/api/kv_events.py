"""`kv_events_config` of `LLM`, named as vLLM's users know it, as our own config. Knows words, no sockets."""

from collections.abc import Mapping
from typing import Any

from pagedchat.bounds import shown
from pagedchat.config import KVEventsConfig
from pagedchat.errors import InvalidValueError

_FIELDS = {
    "endpoint": "kv_events_endpoint",
    "replay_endpoint": "kv_events_replay_endpoint",
    "topic": "kv_events_topic",
    "buffer_steps": "kv_events_buffer",
    "hwm": "kv_events_hwm",
    "encoding": "kv_events_encoding",
    "block_hashes": "kv_events_hashes",
}
_OTHERS = ("enable_kv_cache_events", "publisher", "max_queue_size")
_PUBLISHERS = ("zmq", "null", None)
DEFAULT_ENDPOINT = "tcp://127.0.0.1:5557"
"""Where vLLM's is `tcp://*:5557`: the events have all prompts in them, so the whole network is to be asked for."""


def kv_events_of(given: Mapping[str, Any] | KVEventsConfig | None) -> KVEventsConfig:
    """What was asked for; nothing is by `None`, without `enable_kv_cache_events`, or with the publisher "null".

    Raises:
        InvalidValueError: a key that there is none of, or a value outside what it may be.
    """
    if given is None:
        return KVEventsConfig()
    if isinstance(given, KVEventsConfig):
        return given
    example = '{"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:5557"}'
    if not isinstance(given, Mapping):
        raise InvalidValueError(f"kv_events_config is {shown(given)}.", f"Write: {example}.")
    unknown = [key for key in given if key not in (*_OTHERS, *_FIELDS)]
    if unknown:
        raise InvalidValueError(
            f"kv_events_config has {shown(unknown[0])}.", f"There are {', '.join([*_OTHERS, *_FIELDS])}."
        )
    enabled, publisher = given.get("enable_kv_cache_events", False), given.get("publisher")
    if not isinstance(enabled, bool):
        raise InvalidValueError(f"enable_kv_cache_events is {shown(enabled)}.", "It must be true or false.")
    if publisher not in _PUBLISHERS:
        raise InvalidValueError(
            f"kv_events_config has the publisher {shown(publisher)}.", 'There are "zmq" and "null".'
        )
    values = {_FIELDS[key]: value for key, value in given.items() if key in _FIELDS and value is not None}
    config = KVEventsConfig(**{"kv_events_endpoint": DEFAULT_ENDPOINT, **values})
    return config if enabled and publisher != "null" else KVEventsConfig()
