"""Models on the disk, found by names and sizes alone."""

from pathlib import Path

import pytest

from pagedchat import bundled, local_models
from pagedchat.local_models import LocalModel
from pagedchat.local_models import local_models as found_in


def checkpoint(folder: Path, weights: str = "model.safetensors", size: int = 10) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / weights).write_bytes(b"x" * size)
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which there is nothing yet."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "near").mkdir()
    return tmp_path / "home"


def names(near: Path) -> list[tuple[str, str]]:
    return [(model.name, model.place) for model in found_in(near)][1:]  # behind the one in the box


def snapshot(cache: Path, model: str, commit: str = "c0ffee") -> Path:
    folder = cache / f"models--{model.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    return checkpoint(folder / "snapshots" / commit)


def test_on_an_empty_machine_there_is_the_one_in_the_box(tmp_path: Path) -> None:
    size = sum(file.stat().st_size for file in bundled.folder().glob("*.safetensors"))
    assert found_in(tmp_path / "near") == [LocalModel(bundled.NAME, "in the box", size)]


def test_the_hubs_cache_has_what_was_fetched_as_a_whole(home: Path, tmp_path: Path) -> None:
    cache = home / ".cache" / "huggingface" / "hub"
    snapshot(cache, "Qwen/Qwen2.5-0.5B")
    (snapshot(cache, "half/fetched") / "model.safetensors").unlink()
    snapshot(cache, "no--name/of--the--hub")
    (snapshot(cache, "both/kinds") / "m-Q8_0.gguf").write_bytes(b"GGUF")
    gguf = snapshot(cache, "owner/ggufs")
    (gguf / "model.safetensors").unlink()
    (gguf / "Q4_K_M").mkdir()
    for part, size in ((1, 10), (2, 20)):
        (gguf / "Q4_K_M" / f"m-Q4_K_M-0000{part}-of-00002.gguf").write_bytes(b"x" * size)
    (gguf / "m-Q6_K-00001-of-00002.gguf").write_bytes(b"GGUF")
    checkpoint(cache / "models--no--ref" / "snapshots" / "c0ffee")
    checkpoint(cache / "datasets--some--text" / "snapshots" / "c0ffee")
    (snapshot(cache, "odd/ref").parent.parent / "refs" / "main").write_bytes(b"\xff../../..")
    assert [(model.name, model.num_bytes) for model in found_in(tmp_path / "near")][1:] == [
        ("both/kinds", 10),
        ("both/kinds:Q8_0", 4),
        ("owner/ggufs:Q4_K_M", 30),
        ("Qwen/Qwen2.5-0.5B", 10),
    ]


def test_folders_and_gguf_files_near_by(home: Path, tmp_path: Path) -> None:
    near = tmp_path / "near"
    checkpoint(near / "mine")
    checkpoint(near / "older", "pytorch_model.bin")
    (near / "notes").mkdir()
    for name in ("small.gguf", "mmproj-small.gguf"):
        (near / name).write_bytes(b"GGUF")
    kept = home / ".lmstudio" / "models" / "owner" / "name" / "model-Q8_0.GGUF"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"GGUF")
    (kept.parent / "deeper").mkdir()
    (kept.parent / "deeper" / "x.gguf").write_bytes(b"GGUF")
    assert names(near) == [
        (str(near / "mine"), "folder"),
        (str(near / "older"), "folder"),
        (str(kept), "GGUF file"),
        (str(near / "small.gguf"), "GGUF file"),
    ]


def test_a_gguf_model_in_several_files_is_one(tmp_path: Path) -> None:
    near = tmp_path / "near"
    for name, size in (
        ("large-00002-of-00003.gguf", 20), ("large-00001-of-00003.gguf", 10), ("large-00003-of-00003.gguf", 30),
        ("larger-00001-of-00002.gguf", 10), ("half-00001-of-00002.gguf", 10), ("rest-00002-of-00002.gguf", 10),
        ("odd-00003-of-00002.gguf", 7), ("odd-1-of-2.gguf", 8), ("alone-00001-of-00001.gguf", 9),
    ):  # fmt: skip
        (near / name).write_bytes(b"x" * size)
    (near / "larger-00002-of-00002.gguf").symlink_to("nowhere")
    found = {Path(model.name).name: model.num_bytes for model in found_in(near) if model.place == "GGUF file"}
    assert found == {
        "large-00001-of-00003.gguf": 60, "odd-00003-of-00002.gguf": 7, "odd-1-of-2.gguf": 8,
        "alone-00001-of-00001.gguf": 9,
    }  # fmt: skip


def test_a_checkpoint_is_found_in_its_own_folder(tmp_path: Path) -> None:
    assert names(checkpoint(tmp_path / "mine")) == [(str(tmp_path / "mine"), "folder")]


def test_of_a_huge_folder_only_a_part_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "MOST_ENTRIES", 3)
    for number in range(9):
        (tmp_path / "near" / f"{number}.gguf").write_bytes(b"GGUF")
    assert len(names(tmp_path / "near")) == 3


def test_folders_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    assert names(tmp_path / "nowhere") == []
