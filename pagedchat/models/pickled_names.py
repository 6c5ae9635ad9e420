"""What a pickled file would import if it were unpickled, found by reading its instructions. Runs none of them."""

import pickletools
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

_OF_WEIGHTS = re.compile(
    r"collections\.OrderedDict|torch\.\w+Storage|torch\._utils\._rebuild_\w+|torch\._tensor\._rebuild_\w+"
    r"|torch\.nn\.parameter\.Parameter|torch\.(Size|device|storage\.\w+|b?float\d*|u?int\d+|half|long|bool)"
)
"""What tensors are made of."""
_IMPORTS = ("GLOBAL", "INST")
_FROM_STACK = "STACK_GLOBAL"
_MOST_PICKLES = 8
"""In one file; torch wrote four before the tensors' bytes."""


def foreign_names(path: Path) -> list[str]:
    """Names in order, as `os.system`, of all that weights have no need of; empty where the file cannot be read."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            return sorted(_foreign(file))
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        return sorted({found for name in names for found in _foreign(archive.open(name))})


def _foreign(file: IO[bytes]) -> set[str]:
    found: set[str] = set()
    with suppress(Exception):  # at the end, or where it is no pickle: what was found until then counts
        for _ in range(_MOST_PICKLES):
            found.update(_imports(file))
    return {name for name in found if not _OF_WEIGHTS.fullmatch(name)}


def _imports(file: IO[bytes]) -> Iterator[str]:
    """Every name that one pickle imports, module first."""
    memo: dict[int, str] = {}
    texts: list[str] = []
    """Pushed on the stack, in order; the last two are what `STACK_GLOBAL` takes."""
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name in _IMPORTS:
            yield str(argument).replace(" ", ".", 1)
        elif opcode.name == _FROM_STACK:
            yield ".".join(texts[-2:])
        elif opcode.name == "MEMOIZE" or "PUT" in opcode.name:
            memo[len(memo) if argument is None else argument] = texts[-1] if texts else ""
        elif "GET" in opcode.name:
            texts.append(memo.get(argument or 0, ""))
        elif isinstance(argument, str):
            texts.append(argument)
