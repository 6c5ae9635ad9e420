"""The whole program on an engine that is the test."""

import pytest
from textual.notifications import Notifications

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.composer import Composer
from tests.fakes_tui import FakeEngineLink


@pytest.fixture(autouse=True)
def notices_are_kept(monkeypatch):
    """Notices leave the screen after 5 s, which a test takes on a busy machine: `toasts` reads those too."""
    add = Notifications.add

    def keep(notices, notice):
        notices.__dict__.setdefault("given", []).append(notice)
        return add(notices, notice)

    monkeypatch.setattr(Notifications, "add", keep)


@pytest.fixture
def link():
    return FakeEngineLink()


@pytest.fixture
def make_app(link):
    """An app of some chats in which nothing moves slowly."""

    def make(sessions=2, history=None, **options):
        app = PagedChatApp(link, UiOptions(sessions=sessions, **options), history or PromptHistory())
        app.animation_level = "none"
        return app

    return make


@pytest.fixture
def make_still_app(link, monkeypatch):
    """An app that looks the same at any time: for pictures."""
    monkeypatch.setattr(Composer, "cursor_blink", False)

    def make(sessions=2):
        return PagedChatApp(link, UiOptions(sessions=sessions), PromptHistory(), clock=lambda: 100.0)

    return make
