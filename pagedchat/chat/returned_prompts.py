"""Prompts of a chat that were not answered and go back to be edited; and those that were answered all the same."""


class ReturnedPrompts:
    """Of one chat."""

    def __init__(self) -> None:
        self.text = ""
        """What `take` will give."""
        self._taken_up = ""

    def give_back(self, *prompts: str) -> None:
        """Unanswered prompts stand in the order in which they were asked, before those that are here."""
        asked_before = [prompt for prompt in (*prompts, self.text) if prompt]
        self.text = "\n\n".join(asked_before)

    def take(self) -> str:
        """All of them, once; empty if there are none."""
        text, self.text = self.text, ""
        return text

    def is_asked(self, prompt: str) -> None:
        """A program that was killed may have kept it as a draft too, just before it was sent."""
        self.text = without(self.text, prompt)
        self._taken_up = prompt

    def take_taken_up(self) -> str:
        """A prompt that was given back before it was known to be answered, once; empty if none was."""
        text, self._taken_up = self._taken_up, ""
        return text


def without(drafts: str, prompt: str) -> str:
    """What is to be edited, without this prompt at its beginning."""
    while drafts.startswith(f"{prompt}\n\n"):
        drafts = drafts.removeprefix(f"{prompt}\n\n")
    return "" if drafts.strip() == prompt.strip() else drafts
