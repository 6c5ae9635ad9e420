"""Headers that are read once, and libraries that are made once, whoever asks for them."""

import ctypes
from pathlib import Path

import pytest

from pagedchat.errors import KernelCompileError
from tests.tools.emulator_case import needs_compiler
from tools.emulator.compiler import build, read_once

pytestmark = needs_compiler

TEXT = '#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n'


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path / "cache"))


def test_a_header_that_was_read_is_found_where_it_was_left(tmp_path: Path) -> None:
    header = tmp_path / "answer.h"
    header.write_text("#pragma once\n#define ANSWER 42\n")
    folder = read_once(header, "a digest", ["-O1"])
    library = build("answer", TEXT, ["-O1", f"-I{folder}"])
    assert ctypes.CDLL(str(library)).answer() == 42
    with pytest.raises(KernelCompileError, match=r"answer\.h"):  # the header itself is nowhere to be found
        build("answer", TEXT, ["-O2", "-Wno-unused"])


def test_nothing_is_made_twice(tmp_path: Path) -> None:
    header = tmp_path / "answer.h"
    header.write_text("#pragma once\n#define ANSWER 1\n")
    made = []
    for _ in range(2):
        folder = read_once(header, "a digest", [])
        library = build("answer", TEXT, [f"-I{folder}"])
        made.append([(path, path.stat().st_mtime_ns) for path in (folder / "answer.h.gch", library)])
    assert made[0] == made[1]
    assert read_once(header, "another digest", []) != folder
