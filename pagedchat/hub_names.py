"""What a model of the hub is called: `OWNER/NAME`, and one GGUF model of several there `OWNER/NAME:TAG` or
`OWNER/NAME/FILE.gguf`. Knows names alone.
"""

import re
from typing import NamedTuple

MOST_LETTERS = 500
"""Of a file's path in a repository."""
_SITE = re.compile(r"(?:https://)?(?:hf|huggingface)\.co/(?=[^/]+/[^/])")
_PIECE = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"(?:{_PIECE}/)?{_PIECE}")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,96}")


class HubName(NamedTuple):
    """A name that may be one of the hub's."""

    text: str
    """As it was typed, for messages."""
    repo: str
    """`OWNER/NAME`; of old models `NAME` alone."""
    tag: str = ""
    """Which GGUF model, by words of its name: `Q4_K_M`."""
    file: str = ""
    """Which one, by the path of any of its files in the repository."""

    @property
    def is_gguf(self) -> bool:
        """Whether it can be no other model than a GGUF."""
        return bool(self.tag or self.file)


def hub_name(text: str) -> HubName | None:
    """What a name means on the hub; None where it can be no name there.

    `hf.co/` before it, as Ollama has it, is passed over.
    """
    rest = _SITE.sub("", text, count=1) if _SITE.match(text) else text
    repo, colon, tag = rest.partition(":")
    if colon:
        is_one = "/" in repo and _is_repo(repo) and _TAG.fullmatch(tag)
        return HubName(text, repo, tag=tag) if is_one else None
    owner, slash, more = rest.partition("/")
    name, has_file, file = more.partition("/")
    repo = owner + slash + name
    if not _is_repo(repo) or (has_file and not is_gguf_path(file)):
        return None
    return HubName(text, repo, file=file)


def is_gguf_path(file: str) -> bool:
    """Whether it is a GGUF file's path in a repository that can be typed, and stays inside."""
    return (
        len(file) <= MOST_LETTERS
        and file.lower().endswith(".gguf")
        and file.isprintable()
        and not any(letter in file for letter in ":\\")
        and all(piece and not piece.startswith(".") for piece in file.split("/"))
    )


def _is_repo(repo: str) -> bool:
    return bool(_REPO.fullmatch(repo)) and "--" not in repo and ".." not in repo and not repo.endswith(".git")
