"""One concept, one place: tests lie where what they test lies, folders stay small, pages name what is there."""

import re
from pathlib import Path

import pytest

from pagedchat.resources import resource_dir

ROOT = resource_dir("kernels").parent
MOST_FILES = 25
"""Of a folder; past that it gets floors of its own."""
OF_ALL_PARTS = ("integration", "simulation", "fuzz", "faults")
"""Folders of tests that belong to no single part of the package."""
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("kernels/*.md"),
        *ROOT.glob("pagedchat/**/*.md"),
    ]
    if path.name != "CHANGELOG.md"
)
NAMED = re.compile(r"(?<![\w/.~:$>-])((?:[\w-]+/)*[\w*{},-]+(?:\.(?:py|cu|cuh|md|toml|tcss|png)|/))(?![\w])")
"""A file with a folder before it or without, or a folder: `engine/core.py`, `pyproject.toml`, `kernels/`."""
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
BLOCK = re.compile(r"```.*?```", re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")


def folders_with_tests() -> list[Path]:
    return sorted({path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")})


@pytest.mark.parametrize("folder", folders_with_tests(), ids=str)
def test_tests_lie_where_what_they_test_lies(folder: Path) -> None:
    home = ROOT / "tools" if folder.parts[:1] == ("tools",) else ROOT / "pagedchat" / folder
    assert home.is_dir() or folder.parts[0] in OF_ALL_PARTS


def test_no_folder_is_too_full() -> None:
    counts: dict[Path, int] = {}
    for top in ("pagedchat", "kernels"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in (".py", ".cu", ".cuh"):
                counts[path.parent] = counts.get(path.parent, 0) + 1
    assert {str(folder): count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_pages_are_found() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "kernels/README.md"} <= names
    assert {"docs/use.md", "pagedchat/runtime/graphs/README.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    code = [name for piece in CODE.findall(BLOCK.sub("", text)) for name in NAMED.findall(piece)]
    assert (links, [name for name in code if not exists(name, page)]) == ([], [])


def exists(name: str, page: Path) -> bool:
    """Whether a name leads somewhere: from the top, from the page, or inside the package or the kernels."""
    places = (ROOT, page.parent, ROOT / "pagedchat", ROOT / "kernels")
    return all(any(is_there(place, each) for place in places) for each in spelled_out(name))


def is_there(place: Path, name: str) -> bool:
    """In this folder; in the package and among the kernels anywhere below it."""
    below = place.name in ("pagedchat", "kernels")
    return (place / name).exists() or any(place.glob(f"**/{name}" if below else name))


def spelled_out(name: str) -> list[str]:
    """`a/{b,c}.py` -> `a/b.py`, `a/c.py`."""
    group = re.search(r"\{([^}]*)\}", name)
    if group is None:
        return [name]
    return [each for part in group[1].split(",") for each in spelled_out(name.replace(group[0], part, 1))]
