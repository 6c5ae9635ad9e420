"""The file that a word with an @ may name, while it is being written in a composer. Draws nothing."""

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagedchat.tui.commands.registry import Candidate

FRESH_SECONDS = 10.0
"""So long a list of files is good."""
MOST_CANDIDATES = 12
_LONGEST = 400
"""Characters before the cursor that a name may take."""
_HINT = "Tab takes it, and its text goes behind the prompt"
_WORD = re.compile(r"(?:^|\s)@([^\s\"]*)$")


class FileMentions:
    """The files below the folder that the program was started in, listed when one is asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.typed: str | None = None
        """What stands behind the @; None where no file is being named."""
        self._listed_at = float("-inf")
        self._listing = False

    def look_for(self, before_cursor: str) -> "list[Candidate]":
        """The files that the end of a line may name, the best first; none where it names none."""
        found = _WORD.search(before_cursor[-_LONGEST:])
        self.typed = found[1] if found else None
        if self.typed is None:
            return []
        from pagedchat.chat.writing.fuzzy import ranked  # noqa: PLC0415 - not for the first frame
        from pagedchat.tui.commands.registry import Candidate  # noqa: PLC0415 - as above

        best = [self.names[index] for index in ranked(self.typed, self.names, MOST_CANDIDATES)]
        line = before_cursor[: len(before_cursor) - len(self.typed)]
        return [Candidate(f"{line}{name} ", name, _HINT) for name in best]

    @property
    def wants_list(self) -> bool:
        """Whether a file is being named and the files are not known, or were long ago."""
        old = time.monotonic() > self._listed_at + FRESH_SECONDS
        return self.typed is not None and old and not self._listing

    async def list(self) -> None:
        """Look through the folder, beside everything else."""
        from pagedchat.chat.writing.file_list import list_files  # noqa: PLC0415 - as above

        self._listing = True
        try:
            self.names = await asyncio.to_thread(list_files, here())
        finally:
            self._listing = False
            self._listed_at = time.monotonic()


def here() -> Path:
    """The folder that the program was started in; it may be gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")
