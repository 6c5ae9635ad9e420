"""Prompts with gaps in them, text files of a folder: `{{name}}` is a variable, `{{name|value}}` one with a default.

`{{text}}` is what is typed behind the variables. What has no gap is a prompt as it is.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pagedchat.bounds import shown
from pagedchat.chat.sanitize import sanitize
from pagedchat.chat.writing.fuzzy import ranked
from pagedchat.errors import PagedChatError, first_line

MOST_BYTES = 64 << 10
MOST_TEMPLATES = 500
ENDINGS = (".txt", ".md")
_GAP = re.compile(r"\{\{\s*(\w+)\s*(?:\|([^{}]*))?\}\}")
_SETTING = re.compile(r"(\w+)=(.*)", re.DOTALL)
TEXT = "text"
_USAGE = "Type /template NAME [variable=value ...] [text]"


class PromptTemplateError(PagedChatError):
    """A template that is not there, cannot be read, or has gaps that nobody filled."""


class MissingVariablesError(PromptTemplateError):
    """Gaps that nobody filled; `line` is the command that would, up to the first of them."""

    def __init__(self, name: str, missing: list[str]) -> None:
        wanted = " ".join("text" if gap == TEXT else f"{gap}=..." for gap in missing)
        super().__init__(f"The template {name} needs {', '.join(missing)}.", f"Type /template {name} {wanted}")
        self.line = f"/template {name} " + ("" if missing[0] == TEXT else f"{missing[0]}=")


def template_names(folder: Path) -> list[str]:
    """Of all templates in a folder, without their endings; none where there is no folder."""
    try:
        found = [path for path in folder.iterdir() if path.suffix in ENDINGS and not path.name.startswith(".")]
    except OSError:
        return []
    return sorted({path.stem for path in found if path.stem.isprintable()})[:MOST_TEMPLATES]


def filled(folder: Path, argument: str) -> str:
    """The prompt that `NAME variable=value text` makes of a template.

    Raises:
        PromptTemplateError: it is not there, cannot be read, or a variable is missing or unknown.
    """
    name, _, rest = argument.strip().partition(" ")
    template = _read(folder, name)
    gaps = {found[1]: _default(found[2]) for found in _GAP.finditer(template)}
    values, text = _values(rest.strip(), gaps)
    if text:
        values[TEXT] = text
        template = template if TEXT in gaps else f"{template.rstrip()}\n\n{{{{{TEXT}}}}}"
    missing = [gap for gap, default in gaps.items() if default is None and gap not in values]
    if missing:
        raise MissingVariablesError(name, missing)
    return _GAP.sub(lambda found: values.get(found[1], _default(found[2]) or ""), template).rstrip("\n")


def _default(text: str | None) -> str | None:
    return text if text is None else text.strip()


def _read(folder: Path, name: str) -> str:
    known = template_names(folder)
    if name not in known:
        near = [known[index] for index in ranked(name, known, 1)] if name else []
        question = f" Did you mean {near[0]}?" if near else ""
        hint = f"There are {', '.join(known[:20])}." if known else "A text file there is a template."
        raise PromptTemplateError(f"There is no template {shown(name)} in {folder}.{question}", hint)
    path = next(folder / f"{name}{ending}" for ending in ENDINGS if (folder / f"{name}{ending}").exists())
    try:
        if not path.is_file():
            raise OSError(0, "that is no file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise OSError(0, "it is larger than 64 KiB")
        return sanitize(data.decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise PromptTemplateError(f"{path} cannot be read: {reason}.", _USAGE) from None


def _values(rest: str, gaps: Mapping[str, str | None]) -> tuple[dict[str, str], str]:
    """`a=b c="d e" and so on` -> the values of a and c, and `and so on`."""
    values: dict[str, str] = {}
    while (setting := _SETTING.match(rest)) is not None:
        name = setting[1]
        if name not in gaps:
            if values or gaps.keys() - {TEXT}:
                raise PromptTemplateError(f"The template has no variable {shown(name)}.",
                                          f"It has {', '.join(gaps) or 'none'}.")  # fmt: skip
            break
        values[name], rest = _first(setting[2])
    return values, rest


def _first(text: str) -> tuple[str, str]:
    """A value, in quotes or up to the next blank, and what comes after it."""
    if text[:1] in "\"'" and (end := text.find(text[0], 1)) > 0:
        return text[1:end], text[end + 1 :].strip()
    value, _, rest = text.partition(" ")
    return value, rest.strip()
