"""Parts of a GGUF model that are missing, damaged, of other models or called something else: one sentence each, and
what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagedchat.errors import ModelError
from pagedchat.models.hub import find_model
from tests.models.gguf.test_header import load
from tools.fuzz.gguf_files import TENSORS, VALUES, gguf_bytes
from tools.fuzz.gguf_parts import Part, file_name, split, write_parts

FIRST, SECOND, THIRD = (file_name(number, 3) for number in (1, 2, 3))


def refused(named: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load(find_model(str(named)))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def message_of(folder: Path, change: Callable[[list[Part]], None]) -> str:
    """What is said of three parts that something was done to."""
    parts = split(VALUES, TENSORS, 3)
    change(parts)
    return refused(write_parts(folder, parts)).message


@pytest.mark.parametrize("gone", [(FIRST,), (SECOND,), (THIRD,), (FIRST, THIRD)])
def test_a_part_that_is_missing_is_named(gone: tuple[str, ...], tmp_path: Path) -> None:
    write_parts(tmp_path, split(VALUES, TENSORS, 3))
    for name in gone:
        (tmp_path / name).unlink()
    more = " and 1 more" if len(gone) > 1 else ""
    for named in tmp_path.iterdir():
        error = refused(named)
        assert error.message.endswith(f" lacks {gone[0]}{more} of its 3 parts.")
        assert error.hint == "Download what is missing beside it."
    assert f" lacks {gone[0]}" in refused(tmp_path).message


def test_a_link_to_nothing_and_a_folder_are_no_parts(tmp_path: Path) -> None:
    write_parts(tmp_path, split(VALUES, TENSORS, 3))
    for name in (SECOND, THIRD):
        (tmp_path / name).unlink()
    (tmp_path / SECOND).symlink_to("nowhere")
    (tmp_path / THIRD).mkdir()
    assert f"lacks {SECOND} and 1 more of its 3 parts" in refused(tmp_path / FIRST).message


@pytest.mark.parametrize("count", [2, 4, 65535, 2**63, 0, -1, "3", None, [3], 3.5])
def test_another_count_than_in_its_name(count: Any, tmp_path: Path) -> None:
    said = message_of(tmp_path, lambda parts: parts[1].values.update({"split.count": count}))
    assert f"{SECOND} is one of 3 parts by its name, but its split.count is " in said


@pytest.mark.parametrize("number", [0, 2, 3, 65535, "1", None])
def test_another_number_than_in_its_name(number: Any, tmp_path: Path) -> None:
    said = message_of(tmp_path, lambda parts: parts[1].values.update({"split.no": number}))
    assert f"{SECOND} is not the part that its name says: its split.no is " in said
    assert said.endswith(", not 1.")


def test_numbers_that_are_left_out(tmp_path: Path) -> None:
    for key, said in (("split.no", "its split.no is None, not 1"), ("split.count", "its split.count is None")):
        assert said in message_of(tmp_path, lambda parts, key=key: parts[1].values.pop(key))  # type: ignore[misc]


def test_parts_that_changed_places(tmp_path: Path) -> None:
    said = message_of(tmp_path, lambda parts: parts.reverse())
    assert f"{FIRST} is not the part that its name says: its split.no is 2, not 0." in said


def test_a_part_of_another_model(tmp_path: Path) -> None:
    others = split(VALUES, TENSORS[:-1], 3)
    said = message_of(tmp_path, lambda parts: parts.__setitem__(2, others[2]))
    assert said == f"{THIRD} is a part of another model than {FIRST}: its split.tensors.count is 10, not 11."


@pytest.mark.parametrize("total", [0, 10, 2**31 - 1, -1, "11", None])
def test_another_number_of_tensors(total: Any, tmp_path: Path) -> None:
    def change(parts: list[Part]) -> None:
        for part in parts:
            part.values["split.tensors.count"] = total

    said = message_of(tmp_path, change)
    assert "The parts of m have 11 tensors, but their split.tensors.count is " in said


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    def change(parts: list[Part]) -> None:
        parts[2].tensors[0] = parts[0].tensors[0]

    said = message_of(tmp_path, change)
    assert said == f"token_embd.weight is in two parts of m: {FIRST} and {THIRD}."


@pytest.mark.parametrize("left", [0, 30, 200, -100])
def test_a_part_that_is_cut_short(left: int, tmp_path: Path) -> None:
    first = write_parts(tmp_path, split(VALUES, TENSORS, 3))
    (tmp_path / SECOND).write_bytes((tmp_path / SECOND).read_bytes()[:left])
    assert refused(first).message.startswith(f"{SECOND} cannot be read as GGUF: it is cut short")


def test_a_part_with_scales_that_are_none(tmp_path: Path) -> None:
    first = write_parts(tmp_path, split(VALUES, TENSORS, 3))
    whole = (tmp_path / THIRD).read_bytes()
    one = b"\x00\x3c"  # in which all contents are written
    (tmp_path / THIRD).write_bytes(whole.replace(one * 18, b"\x00\x7c" * 18))
    assert refused(first).message.startswith(f"{THIRD} is damaged: in blk.0.attn_k.weight, it has scales")


def test_more_parts_than_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-65535.gguf"
    path.write_bytes(gguf_bytes(VALUES, TENSORS))
    said = refused(path)
    assert "is one of 65,535 parts by its name, of which at most 1,000 are read." in said.message
    assert "llama-gguf-split --merge" in said.hint


@pytest.mark.parametrize("name", ["m.gguf", "m-1-of-3.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf"])
def test_a_part_that_is_called_something_else(name: str, tmp_path: Path) -> None:
    first = write_parts(tmp_path, split(VALUES, TENSORS, 3))
    error = refused(first.rename(tmp_path / name))
    assert error.message == f"{name} is a part of a model (its split.count is 3), but is not named as one."
    assert "NAME-00001-of-00003.gguf" in error.hint


def test_a_whole_model_that_is_called_a_part(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / file_name(number, 2)).write_bytes(gguf_bytes(VALUES, TENSORS))
    error = refused(tmp_path)
    assert error.message == f"{file_name(1, 2)} is one of 2 parts by its name, but its split.count is None."
    assert "give it another name if it is a model by itself" in error.hint
    load((tmp_path / file_name(1, 2)).rename(tmp_path / file_name(1, 1)))


def test_a_folder_with_several_models(tmp_path: Path) -> None:
    write_parts(tmp_path, split(VALUES, TENSORS, 3))
    (tmp_path / "other.gguf").write_bytes(gguf_bytes(VALUES, TENSORS))
    error = refused(tmp_path)
    assert error.message == f"There are 2 models in the folder {tmp_path}."
    assert error.hint == f"Name one of its files, {FIRST} or other.gguf."
    (tmp_path / "third.gguf").write_bytes(b"GGUF")
    assert refused(tmp_path).hint.endswith("or other.gguf or another.")
