"""What a pickle would import is found without importing it."""

import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from pagedchat.models.pickled_names import foreign_names


class Calls:
    def __init__(self, function: object) -> None:
        self.function = function

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return self.function, ("x",)


SYSTEM = f"{os.system.__module__}.system"


@pytest.mark.parametrize("protocol", range(6))
def test_names_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(pickle.dumps({"a": [Calls(os.system), Calls(eval), Calls(os.system)]}, protocol=protocol))
    evals = "__builtin__.eval" if protocol < 3 else "builtins.eval"
    assert foreign_names(path) == sorted([SYSTEM, evals])


@pytest.mark.parametrize("archive", [True, False])
def test_weights_are_nothing_foreign(tmp_path: Path, archive: bool) -> None:
    path = tmp_path / "a.bin"
    tensors = OrderedDict(
        (str(dtype), torch.nn.Parameter(torch.zeros(3).to(dtype), requires_grad=False))
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)
    )
    torch.save(tensors, path, _use_new_zipfile_serialization=archive)
    assert foreign_names(path) == []
    torch.save({**tensors, "x": Calls(os.system)}, path, _use_new_zipfile_serialization=archive)
    assert foreign_names(path) == [SYSTEM]


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x04", b"PK\x03\x04 no archive", b"\x80\x02cos\n"])
def test_what_is_no_pickle_names_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert foreign_names(path) == []


def test_hand_written_instructions(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x80\x02(i__main__\nX\n.")
    assert foreign_names(path) == ["__main__.X"]
    path.write_bytes(b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x01x\x85R0h\x00h\x01\x93.")
    assert foreign_names(path) == ["os.system"]


def test_archive_that_is_damaged_names_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}" * 3)
    assert foreign_names(path) == []
