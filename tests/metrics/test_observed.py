from pagedchat.events import EngineEvent, RunState
from pagedchat.metrics.observed import ObservedLink, with_metrics
from pagedchat.service.commands import Pause
from tests.fakes_tui import READY, FakeEngineLink
from tests.test_import_hygiene import loaded_after


async def test_observer_hears_every_event_before_the_listener() -> None:
    link, heard = FakeEngineLink(), []
    observed = ObservedLink(link, heard.append)
    link.say(READY, RunState(False))
    await observed.close()
    got: list[EngineEvent] = []
    async for event in observed.events():
        assert heard[-1] is event
        got.append(event)
    assert got == heard == [READY, RunState(False)]


async def test_commands_go_through() -> None:
    link = FakeEngineLink()
    observed = ObservedLink(link, lambda event: None)
    await observed.start()
    observed.send(Pause())
    await observed.close()
    assert link.started
    assert link.sent == [Pause()]
    assert link.closed


def test_without_a_port_the_link_is_left_as_it_is() -> None:
    link = FakeEngineLink()
    assert with_metrics(link, None) == (link, "")


def test_with_a_port_the_events_are_served() -> None:
    observed, url = with_metrics(FakeEngineLink(), 0)
    assert isinstance(observed, ObservedLink)
    assert url.startswith("http://127.0.0.1:")
    observed._observer.__self__.close()


def test_what_the_first_frame_imports_loads_no_prometheus() -> None:
    statement = "import pagedchat.metrics.observed, pagedchat.metrics.stats_socket"
    assert loaded_after(statement, ("prometheus_client", "textual", "torch")) == []
