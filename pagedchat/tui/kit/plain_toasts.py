"""Sentences that go away by themselves, as they are: they quote names of files and what was typed."""

from typing import Any

from textual.app import App

from pagedchat.chat.sanitize import drawable


class PlainToasts(App[None]):
    """A program whose toasts are never markup, and nothing in them reaches the terminal as an escape."""

    def notify(self, message: str, *, title: str = "", markup: bool = False, **options: Any) -> None:
        """Say it, for some seconds. Whatever `markup` says, which is true where a widget calls this, it is none."""
        super().notify(drawable(message), title=drawable(title), markup=False, **options)
