"""Textual messages that several widgets share, named in the past.

What is asked of the engine, of a block or of time means the same wherever it was asked. So widgets that do not know
each other post the same message, and whoever hears it need not know them.
"""

from textual.message import Message


class EngineStateChanged(Message):
    """The engine loads, is ready, failed, died, pauses or runs: the engine view has the new state."""


# --- chats --------------------------------------------------------------------------------------------


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


# --- blocks and steps ---------------------------------------------------------------------------------


class BlockChosen(Message):
    """A cursor was moved to this block, by key or mouse."""

    def __init__(self, block_id: int) -> None:
        super().__init__()
        self.block_id = block_id


class BlockOpened(Message):
    """The detail of a block was asked for."""

    def __init__(self, block_id: int) -> None:
        super().__init__()
        self.block_id = block_id


class StepChosen(Message):
    """The engine shall be shown as it was after a step; None: as it is."""

    def __init__(self, step: int | None) -> None:
        super().__init__()
        self.step = step


class StepOpened(Message):
    """The detail of a step was asked for."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


# --- the scheduler ------------------------------------------------------------------------------------


class PauseToggled(Message):
    """The scheduler that runs shall pause, the paused one run on."""


class StepRequested(Message):
    """The paused scheduler shall take one step; one that runs is to be paused first."""


class PaceRequested(Message):
    """A step shall take at least so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
