"""The program from its start to its exit status."""

import pytest

from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed
from pagedchat.tui.app import PagedChatApp, UiOptions, run_app
from tests.fakes_tui import FakeEngineLink


def test_a_failed_start_is_said_again_on_the_way_out(monkeypatch):
    failure = EngineFailed("There is no folder nowhere.", "Give an existing folder.")
    monkeypatch.setattr("pagedchat.tui.app.run_on_terminal", lambda _app: 1)
    monkeypatch.setattr(PagedChatApp, "failure", failure)
    with pytest.raises(PagedChatError) as caught:
        run_app(FakeEngineLink(), UiOptions())
    assert (caught.value.message, caught.value.hint) == ("There is no folder nowhere.", "Give an existing folder.")


def test_a_program_that_the_system_ended_has_nothing_more_to_say(monkeypatch):
    def end(app):
        app._exit_code = 143
        return 143

    monkeypatch.setattr("pagedchat.tui.app.run_on_terminal", end)
    monkeypatch.setattr(PagedChatApp, "failure", EngineFailed("There is no folder nowhere.", ""))
    assert run_app(FakeEngineLink(), UiOptions()) == 143
