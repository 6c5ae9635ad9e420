from pathlib import Path

import pytest

from pagedchat.jit.source import kernel_path, read_source
from tests.jit.kernels import MORE, NUMBERS, SCALE, write_kernels


def test_headers_of_headers_belong_to_the_source(tmp_path: Path) -> None:
    source = read_source(write_kernels(tmp_path), "scale")
    assert source.path == tmp_path / "scale.cu"
    assert source.text == SCALE
    assert source.headers == {"numbers.cuh": NUMBERS, "more.cuh": MORE}


def test_headers_that_include_each_other_are_read_once(tmp_path: Path) -> None:
    write_kernels(tmp_path)
    (tmp_path / "more.cuh").write_text('#pragma once\n#include "numbers.cuh"\n')
    assert set(read_source(tmp_path, "scale").headers) == {"numbers.cuh", "more.cuh"}


def test_headers_of_cuda_and_missing_ones_are_the_compilers_business(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        '#include <cuda_fp16.h>\n  # include "nowhere.cuh"\n// #include "in a comment"\n'
    )
    assert read_source(tmp_path, "k").headers == {}


def test_a_folder_is_walked_through_once_and_a_kernel_that_is_new_or_has_moved_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kernels(tmp_path)
    walks: list[str] = []
    walk = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda path, pattern: walks.append(pattern) or walk(path, pattern))
    assert {kernel_path(tmp_path, "scale") for _ in range(3)} == {tmp_path / "scale.cu"}
    assert walks == ["*.cu"]
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "new.cu").write_text("")
    (tmp_path / "scale.cu").rename(tmp_path / "part" / "scale.cu")
    assert kernel_path(tmp_path, "new") == tmp_path / "part" / "new.cu"
    assert kernel_path(tmp_path, "scale") == tmp_path / "part" / "scale.cu"


def test_missing_kernel_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_source(tmp_path, "nothing")
