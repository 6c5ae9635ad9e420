"""What a user has set is told to the next engine process, and nothing else is."""

from pagedchat.service import commands as cmd
from pagedchat.service.settings import Settings


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
