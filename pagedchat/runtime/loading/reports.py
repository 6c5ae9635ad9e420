"""How loading goes, told step by step. Light to import."""

from typing import Literal

from pagedchat.events import LoadProgress
from pagedchat.runtime.loading.loaded import Progress

Stage = Literal["import", "download", "weights", "kernels", "profile", "cache", "warmup"]


class Reports:
    """Says it to whoever wants to know.

    Args:
        progress: is told.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def say(self, stage: Stage, message: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        """See `LoadProgress`."""
        self.progress(LoadProgress(stage, message, done, total, unit))

    def download(self, file: str, done: int, total: int) -> None:
        """So many bytes of a file are here."""
        self.say("download", f"Downloading {file}", done, total, "B")

    def weights(self, done: int, total: int) -> None:
        """So many tensors are in their places."""
        self.say("weights", "Reading the weights", done, total, "tensors")

    def kernels(self, message: str, done: int, total: int) -> None:
        """So many kernels are compiled."""
        self.say("kernels", message, done, total, "kernels")
