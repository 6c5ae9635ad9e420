"""What the hub's library has fetched, found by its layout."""

from pathlib import Path

import pytest

from pagedchat import hub_cache as module
from pagedchat.hub_cache import files_in, hub_cache, repo_of, snapshot_of, user_cache
from tools.fuzz.hub_models import put_in_cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_it_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (user_cache(), hub_cache()) == (tmp_path / ".cache", tmp_path / ".cache" / "huggingface" / "hub")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert hub_cache() == tmp_path / "xdg" / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert hub_cache() == tmp_path / "hf" / "hub"
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", "$HOME/old")
    assert hub_cache() == tmp_path / "old"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    assert hub_cache() == tmp_path / "cache"


def test_a_snapshot_has_the_files_that_are_here() -> None:
    snapshot = put_in_cache(
        hub_cache(), "o/n", {"m.gguf": b"1", "Q4_0/m.gguf": b"2", "a/b/c/d/m": b"3", "a/b/c/d/e/m": b"4"}
    )
    (snapshot / "broken.gguf").symlink_to("nowhere")
    assert snapshot_of("o/n") == snapshot
    assert sorted(files_in(snapshot)) == ["Q4_0/m.gguf", "a/b/c/d/m", "m.gguf"]


def test_of_a_huge_snapshot_only_a_part_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    assert len(files_in(put_in_cache(hub_cache(), "o/n", {f"{number}/m": b"" for number in range(5)}))) == 2


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    assert snapshot_of("o/n") is None
    ref = put_in_cache(hub_cache(), "o/n", {}).parent.parent / "refs" / "main"
    for content in (b"../../..", b"\xff", b""):
        ref.write_bytes(content)
        assert snapshot_of("o/n") is None
    assert files_in(tmp_path / "nowhere") == []


def test_a_folder_of_the_cache_says_whose_files_it_has() -> None:
    assert repo_of(Path("models--o--n")) == "o/n"
    assert repo_of(Path("models--gpt2")) == "gpt2"
    assert repo_of(Path("datasets--o--n")) is None
