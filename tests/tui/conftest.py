"""The whole program on an engine that is the test."""

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.composer import Composer
from tests.fakes_tui import FakeEngineLink


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
