"""Which requests a new engine process gets after the old one died."""

from pagedchat import events as ev
from pagedchat.service import commands as cmd
from pagedchat.service.unanswered import Unanswered
from tests.service.engine_rig import ask


def unanswered(*commands: cmd.AnyCommand) -> Unanswered:
    requests = Unanswered()
    for command in commands:
        requests.sent(command)
    return requests


def test_requests_not_begun_with_are_taken_once_in_order():
    requests = unanswered(ask(1, 10, "a"), cmd.Pause(), cmd.Fork(1, 2, 20), ask(3, 30, "c"))
    requests.heard(ev.RequestStarted(1, 10, 5, 0))
    requests.heard(ev.RunState(True))
    assert requests.take() == [cmd.Fork(1, 2, 20), ask(3, 30, "c")]
    assert requests.take() == []


def test_refused_requests_are_answered():
    requests = unanswered(ask(1, 10, "a"))
    requests.heard(ev.RequestFailed(1, 10, "No.", ""))
    assert requests.take() == []


def test_stopped_and_closed_sessions_wait_for_nothing():
    requests = unanswered(ask(1, 10, "a"), cmd.Fork(1, 2, 20), ask(3, 30, "c"), cmd.Stop(2), cmd.Close(3))
    assert requests.take() == [ask(1, 10, "a")]
