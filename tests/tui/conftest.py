"""The whole program on an engine that is the test."""

import gc

import pytest
from textual.notifications import Notifications

from pagedchat import garbage
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


class SearchesOfOneTest:
    """The module `gc` to `pagedchat.garbage`: what was there before a test is left out of its searches (see
    tests/conftest.py) and stays so, what the test makes never is."""

    def freeze(self):
        pass

    unfreeze = freeze

    def __getattr__(self, name):
        return getattr(gc, name)


@pytest.fixture(autouse=True)
def garbage_is_that_of_the_test(monkeypatch):
    """A screen that rests searches everything: among all tests and their modules that takes seconds."""
    monkeypatch.setattr(garbage, "gc", SearchesOfOneTest())


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
