"""Textual messages that several widgets share, named in the past."""

from textual.message import Message


class EngineStateChanged(Message):
    """The engine loads, is ready, failed, died, pauses or runs: the engine view has the new state."""


class PromptSubmitted(Message):
    """A prompt was sent from a chat's composer."""

    def __init__(self, session_id: int, prompt: str) -> None:
        super().__init__()
        self.session_id = session_id
        self.prompt = prompt


class ChatFocused(Message):
    """The composer of this chat has the keyboard now."""

    def __init__(self, session_id: int) -> None:
        super().__init__()
        self.session_id = session_id
