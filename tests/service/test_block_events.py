"""The engine process tells other programs what its cache has."""

import socket

from pagedchat.config import EngineConfig, KVEventsConfig
from pagedchat.events import EngineFailed
from pagedchat.service.commands import Shutdown
from pagedchat.service.wire import Configure
from tests.kv_events.subscriber import Subscriber
from tests.service.engine_rig import EngineRig, ask
from tests.service.test_child import start  # noqa: F401 - a fixture


class Listener:
    """In the place of a publisher."""

    def __init__(self) -> None:
        self.reports = []
        self.is_closed = False

    def add(self, report) -> None:
        assert not self.is_closed
        self.reports.append(report)

    def close(self) -> None:
        self.is_closed = True


def test_every_report_is_handed_on_and_the_end_is_told():
    rig = EngineRig()
    listener = rig.loop._block_events = Listener()
    rig.send(ask(1, 1, "The sea"))
    rig.run_dry()
    published = [report for steps in rig.events if hasattr(steps, "reports") for report in steps.reports]
    assert listener.reports == published
    assert published


def test_an_engine_process_publishes_until_it_ends(start, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)  # the names of sockets may not be long
    path = "ipc://events"
    config = KVEventsConfig(kv_events_endpoint=path, kv_events_replay_endpoint=f"{path}-replay")
    child = start("load")
    subscriber = Subscriber(path, f"{path}-replay")
    try:
        child.send(Configure(EngineConfig(kv_events=config)), ask(1, 1, "The sea is wide and deep"))
        while not subscriber.tree.blocks:
            subscriber.catch_up()
        child.send(Shutdown())
        assert not [event for event in child.events() if isinstance(event, EngineFailed)]
        assert child.exit_code == 0
    finally:
        subscriber.close()
    assert not [each for each in tmp_path.iterdir() if each.is_socket()]


def test_an_endpoint_in_use_ends_the_start_in_one_sentence(start):  # noqa: F811
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        child = start("load")
        child.send(Configure(EngineConfig(kv_events=KVEventsConfig(kv_events_endpoint=endpoint))))
        (failed,) = [event for event in child.events() if isinstance(event, EngineFailed)]
    assert failed.message == f"--kv-events-endpoint {endpoint} cannot be had: address already in use."
    assert failed.hint == "Give another one, or end what has it."
