"""How replies are to be read: as Markdown or as they were written, thoughts folded or whole. Draws nothing."""

from typing import NamedTuple

import msgspec

from pagedchat.events import EngineReady
from pagedchat.view.options import MarkdownChoice, ThoughtsChoice, UiOptions


class Reading(NamedTuple):
    """What is drawn."""

    markdown: bool = False
    """Whether a reply is drawn as the Markdown that it is, not as it was written."""
    thoughts_open: bool = False
    """Whether thoughts are drawn whole."""


class ReadingSettings(msgspec.Struct):
    """What the user wants of all chats; may change at any time."""

    markdown: MarkdownChoice = "auto"
    """auto: as Markdown what a model with a chat template writes; a model that only goes on with text is shown as
    it writes, for there a line of dashes is a line of dashes."""
    thoughts: ThoughtsChoice = "fold"
    raw: bool = False
    """Whether prompts go to the model without a template."""

    def reading(self, info: EngineReady | None) -> Reading:
        """What holds for this model; until it is known, for one with a template."""
        chats = not self.raw and (info is None or info.chat_template != "plain")
        markdown = chats if self.markdown == "auto" else self.markdown == "on"
        return Reading(markdown, self.thoughts == "open")


def reading_settings(options: UiOptions) -> ReadingSettings:
    """As the command line has them."""
    return ReadingSettings(options.markdown, options.thoughts, options.raw)
