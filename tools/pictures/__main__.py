"""Makes the pictures of assets/ anew, dark and light.

python -m tools.pictures                   all of them
python -m tools.pictures chats-dark film-dark   some, by their names
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from tools.pictures.stage import Stage, on_stage
from tools.pictures.svg import film

THEMES = {"dark": "textual-dark", "light": "textual-light"}
FOLDER = Path(__file__).parents[2] / "assets"


class Scene(NamedTuple):
    """What is done before a picture is taken, or while a film is."""

    columns: int
    rows: int
    play: Callable[[Stage], Awaitable[None]]


async def _two_chats(stage: Stage) -> None:
    await stage.ask("Tell me a story about a clock.")
    await stage.press("f9")
    await stage.ask("Write a short poem about the sea.")


async def _chats(stage: Stage) -> None:
    await _two_chats(stage)
    stage.shot()


async def _tree(stage: Stage) -> None:
    await _two_chats(stage)
    await stage.press("alt+1")
    await stage.ask("What is a KV cache?")
    await stage.press("ctrl+g")
    await stage.rest()
    await stage.press("alt+down")
    stage.shot()


async def _inspector(stage: Stage) -> None:
    await _two_chats(stage)
    await stage.press("f3")
    await stage.settle()
    stage.shot()


async def _alternatives(stage: Stage) -> None:
    """A reply by how sure the model was of it, and beside it the fork with another token."""
    await stage.ask("/logprobs on")
    await stage.ask("Describe a city that never sleeps.")
    await stage.press("alt+p", *["alt+n"] * 5, "enter")
    await stage.rest()
    await stage.press("alt+1", "alt+p")
    stage.shot()


async def _beams(stage: Stage) -> None:
    """Four beams in the midst of a search, as a tree of their blocks."""
    await stage.ask("/beam 4 Tell me a story about a clock.")
    await stage.press("f3", "n")
    stage.app.go_to_step(120)
    await stage.settle()
    stage.shot()


async def _drafts(stage: Stage) -> None:
    """What was guessed to come again, and what came of it."""
    await stage.ask("/set speculate lookup")
    for prompt in ("What is a KV cache?", "What is a KV cache?", "What is a KV cache?"):
        await stage.ask(prompt)
    await stage.press("f3", "n")
    stage.shot()


async def _film(stage: Stage) -> None:
    """A fork, a copy on write, and back in time."""
    await stage.press("f3")
    stage.shot(1.0)
    await stage.type("Tell me a story about a clock.")
    stage.shot(1.2)
    await stage.press("enter")
    await _follow(stage)
    stage.shot(1.5)
    await stage.press("f9")
    stage.shot(2.0)
    await stage.type("And then?")
    stage.shot(0.8)
    await stage.press("enter")
    await _follow(stage)
    stage.shot(2.0)
    step = stage.app.view.step
    for back in range(0, step - 1, max(1, step // 10)):
        stage.app.go_to_step(step - back)
        await stage.settle()
        stage.shot(0.4)
    stage.shot(1.5)


async def _follow(stage: Stage) -> None:
    """A reply as it grows."""
    busy = True
    while busy:
        await stage.settle()
        stage.shot(0.35)
        busy = stage.app.desk.num_busy > 0
    await stage.rest()


SCENES = {
    "chats": Scene(120, 34, _chats),
    "tree": Scene(170, 36, _tree),
    "inspector": Scene(170, 46, _inspector),
    "inspector-wide": Scene(250, 56, _inspector),
    "alternatives": Scene(120, 34, _alternatives),
    "beams": Scene(120, 40, _beams),
    "drafts": Scene(120, 40, _drafts),
    "film": Scene(150, 40, _film),
}


async def make(name: str, theme: str) -> Path:
    """One picture; returns its file."""
    scene = SCENES[name]
    async with on_stage(scene.columns, scene.rows, THEMES[theme]) as stage:
        await scene.play(stage)
    path = FOLDER / f"{name}-{theme}.svg"
    path.write_text(film(stage.frames))
    return path


def main() -> None:
    """Read the command line and make what it names."""
    names = [f"{name}-{theme}" for name in SCENES for theme in THEMES]
    parser = argparse.ArgumentParser(
        prog="python -m tools.pictures", description="Makes the pictures of assets/ anew."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    for wanted in parser.parse_args().names or names:
        if wanted not in names:
            parser.error(f"there is no picture {wanted}; there are {', '.join(names)}")
        path = asyncio.run(make(*wanted.rsplit("-", 1)))
        print(f"{path.relative_to(FOLDER.parent)}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
