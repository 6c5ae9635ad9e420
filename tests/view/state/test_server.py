"""What is known of a server: speeds by the clock of this side, and its own count of everybody's tokens."""

import msgspec
import pytest

from pagedchat.events import (
    EngineFailed,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    ServerFigures,
    ServerInfo,
    ServerModels,
    TextDelta,
)
from pagedchat.view.engine_view import EngineView
from tests.fakes import FakeClock
from tests.fakes_tui import READY

INFO = ServerInfo("lab", "http://lab/v1", "vLLM", ("m",), True)


@pytest.fixture
def clock():
    return FakeClock(10.0)


@pytest.fixture
def view(clock):
    view = EngineView(clock)
    view.apply(msgspec.structs.replace(READY, server=INFO, num_blocks=0, block_size=0))
    return view


def test_a_server_is_no_engine_and_says_what_it_is(view):
    assert (view.live, view.mirror, view.info.server) == (None, None, INFO)
    assert view.tokens_per_second == 0
    assert view.lines == view.history


def test_speeds_are_of_the_last_two_seconds(view, clock):
    for tokens in range(1, 41):
        view.apply(TextDelta(1, 1, "x", tokens))
        clock.advance(0.1)
    assert view.sequence_rate(1) == pytest.approx(9.5, abs=0.6)
    clock.advance(10)
    assert view.sequence_rate(1) < 1
    view.apply(RequestFinished(1, 1, "stop", 10, 4, 40, 0.1, 4.0))
    view.apply(RequestFailed(2, 2, "no", ""))
    assert view.tokens_per_second == 0
    server = view.server
    assert (server.num_replies, server.num_tokens, server.num_failed) == (1, 40, 1)
    assert (server.num_prompt_tokens, server.num_cached_tokens) == (10, 4)


def test_everybodys_speed_is_the_growth_of_what_was_generated_or_what_is_told(view, clock):
    assert view.server.of_everybody is None
    view.apply(ServerFigures(generated_tokens=100.0))
    clock.advance(2)
    view.apply(ServerFigures(generated_tokens=300.0))
    assert view.server.of_everybody == 100
    view.apply(ServerFigures(generated_tokens=300.0, tokens_per_second=12.0))
    assert view.server.of_everybody == 12


def test_another_engine_in_its_place_is_one(view):
    view.apply(READY)
    assert view.server is None
    assert view.live is not None


def test_a_server_that_is_asked_again_is_not_away_meanwhile(view):
    view.apply(EngineFailed("lab is away.", ""))
    assert (view.server, view.failure.message) == (None, "lab is away.")
    view.apply(LoadProgress("weights", "Reading"))
    assert view.failure is not None
    view.apply(LoadProgress("connect", "Asking lab for its models"))
    assert view.failure is None
    view.apply(ServerModels("lab", ["a", "b"]))
    assert (view.loading, view.choice.names) == (None, ["a", "b"])
    view.apply(msgspec.structs.replace(READY, server=INFO))
    assert view.choice is None
