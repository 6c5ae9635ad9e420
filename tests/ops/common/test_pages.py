"""What is in memory of tables in files, and of new memory, by the kernel's account."""

import os
import sys
from pathlib import Path

import pytest
import torch

from pagedchat.ops.common.pages import FilePages, FileRows, prefer_small_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
ROWS, WIDTH = 4096, 1024


@pytest.fixture
def table(tmp_path: Path) -> torch.Tensor:
    """16 MiB."""
    return table_in(tmp_path / "table")


def table_in(path: Path) -> torch.Tensor:
    torch.arange(ROWS * WIDTH, dtype=torch.float32).numpy().tofile(path)
    return torch.from_file(str(path), shared=False, size=ROWS * WIDTH).view(ROWS, WIDTH)


def mapping(tensor: torch.Tensor) -> dict[str, str]:
    """What `smaps` says of the mapping that it begins in."""
    found: dict[str, str] = {}
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split(maxsplit=1)
        if not name.endswith(":"):
            first, last = (int(each, 16) for each in name.split("-"))
            is_inside = first <= tensor.data_ptr() < last
        elif is_inside:
            found[name[:-1]] = rest[0] if rest else ""
    return found


def resident(tensor: torch.Tensor) -> int:
    return int(mapping(tensor)["Rss"].split()[0]) * 1024


def test_rows_of_a_table_in_a_file_are_read_without_mapping_it(table: torch.Tensor) -> None:
    FilePages().forget(table)
    indices = torch.randperm(ROWS)
    rows = FileRows(table)
    found = rows.at(indices)
    assert rows.at(indices[:0]).shape == (0, WIDTH)
    assert resident(table) == 0
    assert torch.equal(found, table[indices])
    assert resident(table) > 0


def test_where_a_file_is_mapped_is_asked_once_for_all_of_its_tensors(
    table: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two files in turns; what is no file's memory is left as it is, also in between."""
    asked: list[int] = []
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **options: asked.append(1) or read(path, **options))
    other, own, pages = table_in(tmp_path / "other"), torch.ones(ROWS, WIDTH), FilePages()
    for mapped in (table, other):
        assert mapped.sum() > 0
        for first in range(0, ROWS, ROWS // 8):
            pages.forget(mapped[first : first + ROWS // 8])
    assert len(asked) == 2
    pages.forget(own)
    pages.forget(own[::2])
    assert len(asked) == 3
    monkeypatch.undo()
    assert resident(table) == resident(other) == 0
    assert own.sum() == own.numel()
    assert torch.equal(table, other)


def test_a_part_of_a_file_is_found_where_it_is(table: torch.Tensor) -> None:
    part = table[1000:1100]
    assert torch.equal(FileRows(part).at(torch.tensor([99, 0, 3])), part[[99, 0, 3]])


@pytest.mark.parametrize("index", [-1, ROWS])
def test_rows_that_are_not_there_are_refused(table: torch.Tensor, index: int) -> None:
    with pytest.raises(IndexError, match=f"of {ROWS}"):
        FileRows(table).at(torch.tensor([3, index]))


def test_another_file_of_the_same_name_is_not_read(table: torch.Tensor, tmp_path: Path) -> None:
    (tmp_path / "table").rename(tmp_path / "kept")
    (tmp_path / "table").write_bytes(bytes(table.nbytes))
    assert torch.equal(FileRows(table).at(torch.tensor([5])), table[5:6])


def test_a_file_that_was_cut_short_is_an_error(table: torch.Tensor, tmp_path: Path) -> None:
    rows = FileRows(table)
    os.truncate(tmp_path / "table", 4096)
    with pytest.raises(OSError, match="shorter"):
        rows.at(torch.tensor([5]))


def test_rows_in_memory_of_our_own_are_taken_from_there() -> None:
    own = torch.randn(ROWS, 8)
    assert torch.equal(FileRows(own).at(torch.tensor([7, 7])), own[[7, 7]])


def test_new_memory_is_told_to_have_small_pages() -> None:
    memory = torch.empty(1 << 26, dtype=torch.uint8)  # a mapping of its own
    prefer_small_pages(memory)
    inside = memory[1 << 20 :]
    assert "nh" in mapping(inside)["VmFlags"].split()
