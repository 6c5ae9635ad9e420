"""What the next engine process is told after the old one died: what a user has set, requests that it had not begun
with, and nothing else.
"""

from pagedchat import events as ev
from pagedchat.service import commands as cmd
from pagedchat.service.next_engine import Settings, Unanswered
from tests.service.engine_rig import ask


def told(*commands: cmd.AnyCommand) -> list[cmd.AnyCommand]:
    settings = Settings()
    for command in commands:
        settings.take(command)
    return settings.commands()


def test_the_last_of_each_kind_is_told_and_the_pause_first():
    sent = (cmd.Focus(1), cmd.SetLimit(90), cmd.SetPace(0.5), cmd.SetLimit(40), cmd.Pause(), cmd.Focus(2))
    assert told(*sent) == [cmd.Pause(), cmd.SetPace(0.5), cmd.SetLimit(40), cmd.Focus(2)]


def test_what_a_new_engine_does_anyhow_is_not_told():
    assert (
        told(cmd.Pause(), cmd.Resume(), cmd.SetPace(0.5), cmd.SetPace(0.0), cmd.SetLimit(4), cmd.SetLimit(None))
        == []
    )


def test_commands_about_blocks_and_single_steps_are_no_settings():
    settings = Settings()
    assert not any(map(settings.take, (cmd.Pin(1), cmd.Evict(2), cmd.FlushCache(), cmd.StepOnce(3), cmd.Stop(1))))
    assert settings.commands() == []


# --- requests -----------------------------------------------------------------------------------------


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
