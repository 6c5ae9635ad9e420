import hashlib
import logging
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pagedchat.jit import own_folder
from pagedchat.jit.cache import KernelCache, cache_key, default_folder
from pagedchat.jit.compiler import Cubin
from pagedchat.jit.resource_usage import ResourceUsage
from pagedchat.jit.source import KernelSource
from pagedchat.jit.toolchain import Toolchain
from pagedchat.jit.variant import Variant
from tests.jit.damage import DAMAGES

CUBIN = Cubin(b"\x7fELF\n\0code", (ResourceUsage("k", 32, 48, 8, 4, 4),), 0.25, "a warning\nof two lines")
SOURCE = KernelSource(Path("/kernels/k.cu"), Path("/kernels"), "code", {"a.cuh": "one"})
TOOLCHAIN = Toolchain("13.0", Path("/lib/libnvrtc.so.13"), 1000, Path("/include"), "13.0")
VARIANT = Variant.of("k", HEAD_SIZE=64)


def test_what_is_put_is_got(tmp_path: Path) -> None:
    KernelCache(tmp_path / "new").put("key", CUBIN)
    assert KernelCache(tmp_path / "new").get("key") == CUBIN


def test_what_a_killed_writer_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    old, fresh = tmp_path / ".new-1", tmp_path / ".new-2"
    for path in (old, fresh):
        path.write_bytes(b"half of a kernel")
    os.utime(old, (0, 0))
    KernelCache(tmp_path).put("key", CUBIN)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_missing_entry_and_missing_folder_are_none(tmp_path: Path) -> None:
    assert KernelCache(tmp_path).get("key") is None
    assert KernelCache(tmp_path / "new").get("key") is None
    assert KernelCache(tmp_path / "new").size() == (0, 0)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_dropped(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = KernelCache(tmp_path)
    cache.put("key", CUBIN)
    [path] = tmp_path.iterdir()
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert cache.get("key") is None
    assert list(tmp_path.iterdir()) == []
    assert "was damaged" in caplog.text
    cache.put("key", CUBIN)
    assert cache.get("key") == CUBIN


def test_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = KernelCache(tmp_path / "file" / "kernels")
    with caplog.at_level(logging.WARNING):
        cache.put("a", CUBIN)
        cache.put("b", CUBIN)
    assert cache.get("a") is None
    assert [record.getMessage() for record in caplog.records] == [
        f"Compiled kernels cannot be kept in {tmp_path / 'file' / 'kernels'}: Not a directory"
    ]


# --- what another user may have planted ---------------------------------------------------------------


def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whatever is on disk belongs to somebody else."""
    monkeypatch.setattr(own_folder, "trusted_owners", set)


def test_folder_and_entries_are_for_this_user_alone(tmp_path: Path) -> None:
    KernelCache(tmp_path / "new").put("key", CUBIN)
    [path] = (tmp_path / "new").iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "new", path)] == [0o700, 0o600]


def test_folder_of_another_user_is_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    KernelCache(tmp_path).put("key", CUBIN)
    of_another_user(monkeypatch)
    cache = KernelCache(tmp_path)
    assert cache.get("key") is None
    cache.put("other", CUBIN)
    assert len(list(tmp_path.iterdir())) == 1
    [record] = caplog.records
    assert record.getMessage().startswith(f"{tmp_path} is not used, since it belongs to another user (uid ")
    assert cache.objection.startswith("it belongs to another user")


def test_own_folder_that_was_open_to_all_is_closed(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    cache.put("key", CUBIN)
    tmp_path.chmod(0o777)
    assert cache.get("key") == CUBIN
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_folder_that_is_meant_for_all_is_left_as_it_is_and_not_used(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    cache.put("key", CUBIN)
    tmp_path.chmod(0o1777)
    assert cache.get("key") is None
    assert cache.objection == "other users may write to it"
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


@pytest.mark.parametrize("planted", ["written by others", "link", "pipe", "folder", "under another name"])
def test_entry_that_may_be_planted_is_none_and_is_written_over(planted: str, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    cache = KernelCache(folder)
    cache.put("key", CUBIN)
    [path] = folder.iterdir()
    if planted == "written by others":
        path.chmod(0o666)
    elif planted == "under another name":
        cache.put("other", replace(CUBIN, code=b"other"))
        os.replace(folder / "other.cubin", path)
    else:
        path.rename(tmp_path / "elsewhere")
        {
            "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
            "pipe": lambda: os.mkfifo(path),
            "folder": path.mkdir,
        }[planted]()
    assert cache.get("key") is None
    if planted != "folder":
        cache.put("key", CUBIN)
        assert cache.get("key") == CUBIN
        assert not path.is_symlink()


@pytest.mark.parametrize(
    "facts",
    [
        b"", b"[]", b"{}", b"{", b"\xff", b"[" * 100_000, b'{"usage": [], "seconds": "1", "warnings": ""}',
        b'{"usage": [{}], "seconds": 1, "warnings": ""}',
        b'{"usage": [{"entry": 1}], "seconds": 1, "warnings": ""}',
        b'{"usage": [{"entry": "k", "registers": 1e99}], "seconds": 1, "warnings": ""}',
    ],
)  # fmt: skip
def test_valid_digest_over_something_else_is_a_miss(facts: bytes, tmp_path: Path) -> None:
    cache, body = KernelCache(tmp_path), facts + b"\ncode"
    (tmp_path / "key.cubin").write_bytes(b"pagedchat kernel 2\n" + hashlib.sha256(b"key\n" + body).digest() + body)
    assert cache.get("key") is None
    assert list(tmp_path.iterdir()) == []


# --- several at a time --------------------------------------------------------------------------------


def test_writers_and_readers_of_one_entry_never_meet_half_of_it(tmp_path: Path) -> None:
    cubins = [replace(CUBIN, code=bytes([i]) * 200_000) for i in range(4)]
    wrong: list[object] = []

    def work(cubin: Cubin) -> None:
        cache = KernelCache(tmp_path)
        for _ in range(20):
            cache.put("key", cubin)
            if cache.get("key") not in cubins:
                wrong.append(cubin)

    threads = [threading.Thread(target=work, args=(cubin,)) for cubin in cubins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert KernelCache(tmp_path).size()[0] == 1
    assert len(list(tmp_path.iterdir())) == 1  # nothing half written is left behind


def test_key_depends_on_everything_that_the_cubin_is_made_of() -> None:
    changes = [
        (SOURCE, VARIANT, "sm_90", TOOLCHAIN),
        (replace(SOURCE, text="other"), VARIANT, "sm_90", TOOLCHAIN),
        (replace(SOURCE, path=Path("/elsewhere/k.cu")), VARIANT, "sm_90", TOOLCHAIN),
        (replace(SOURCE, headers={"a.cuh": "two"}), VARIANT, "sm_90", TOOLCHAIN),
        (replace(SOURCE, headers={"b.cuh": "one"}), VARIANT, "sm_90", TOOLCHAIN),
        (SOURCE, Variant.of("k", HEAD_SIZE=80), "sm_90", TOOLCHAIN),
        (SOURCE, VARIANT, "sm_80", TOOLCHAIN),
        (SOURCE, VARIANT, "sm_90", replace(TOOLCHAIN, nvrtc_version="13.1")),
        (SOURCE, VARIANT, "sm_90", replace(TOOLCHAIN, nvrtc_bytes=1001)),
        (SOURCE, VARIANT, "sm_90", replace(TOOLCHAIN, headers_version="13.1")),
    ]
    assert len({cache_key(*parts) for parts in changes}) == len(changes)


def test_key_depends_on_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedchat.jit import cache

    before = cache_key(SOURCE, VARIANT, "sm_90", TOOLCHAIN)
    monkeypatch.setattr(cache, "OPTIONS", {**cache.OPTIONS, "use_fast_math": True})
    assert cache_key(SOURCE, VARIANT, "sm_90", TOOLCHAIN) != before


def test_key_does_not_depend_on_where_the_compiler_lies() -> None:
    moved = replace(TOOLCHAIN, nvrtc_path=Path("/opt/libnvrtc.so.13"), headers=Path("/opt/include"))
    assert cache_key(SOURCE, VARIANT, "sm_90", moved) == cache_key(SOURCE, VARIANT, "sm_90", TOOLCHAIN)


def test_folder_is_the_users_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PAGEDCHAT_CACHE_DIR", raising=False)
    assert default_folder().parts[-2:] == ("pagedchat", "kernels")
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path))
    assert KernelCache().folder == tmp_path / "kernels"
