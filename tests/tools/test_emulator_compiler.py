"""Headers that are read once, and libraries that are made once, whoever asks for them."""

import ctypes
import shutil
from pathlib import Path

import pytest

from pagedchat.errors import KernelCompileError
from tests.tools.emulator_case import needs_compiler
from tools.emulator import compiler, library
from tools.emulator.compiler import HERE, build, read_once

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


def test_another_copy_of_the_project_finds_what_was_made_and_knows_what_the_compiler_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI checks out in another folder than where its tests ran before; nothing of the first copy may be needed."""
    made = []
    for copy in (tmp_path / "one", tmp_path / "another"):
        here = copy / "tools" / "emulator"
        for module in (compiler, library):
            monkeypatch.setattr(module, "HERE", here)
        monkeypatch.setattr(library, "resource_dir", lambda name, copy=copy: copy / name)
        shutil.copytree(HERE / "device", here / "device")
        folder = read_once(here / "device" / "device.h", "a digest", ["-O1"])
        text = library._wherever(f'# 1 "{copy}/kernels/answer.cu"\n') + '#include "device.h"\n'
        text += 'extern "C" int answer() { return __FILE__[0]; }\n'
        made.append(build("answer", text, ["-O1", f"-I{folder}", f"-I{here / 'device'}"]))
        assert ctypes.CDLL(str(made[-1])).answer() == ord("k")
        shutil.rmtree(copy)
    assert made[0] == made[1]
    assert build("answer", text + "// another text\n", ["-O1", f"-I{folder}"]) != made[0]
