import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pagedchat.jit.cache import KernelCache, cache_key, default_folder
from pagedchat.jit.compiler import Cubin
from pagedchat.jit.resource_usage import ResourceUsage
from pagedchat.jit.source import KernelSource
from pagedchat.jit.toolchain import Toolchain
from pagedchat.jit.variant import Variant

CUBIN = Cubin(b"\x7fELF\n\0code", (ResourceUsage("k", 32, 48, 8, 4, 4),), 0.25, "a warning\nof two lines")
SOURCE = KernelSource(Path("/kernels/k.cu"), Path("/kernels"), "code", {"a.cuh": "one"})
TOOLCHAIN = Toolchain("13.0", Path("/lib/libnvrtc.so.13"), 1000, Path("/include"), "13.0")
VARIANT = Variant.of("k", HEAD_SIZE=64)


def test_what_is_put_is_got(tmp_path: Path) -> None:
    KernelCache(tmp_path / "new").put("key", CUBIN)
    assert KernelCache(tmp_path / "new").get("key") == CUBIN


def test_missing_entry_and_missing_folder_are_none(tmp_path: Path) -> None:
    assert KernelCache(tmp_path).get("key") is None
    assert KernelCache(tmp_path / "new").get("key") is None
    assert KernelCache(tmp_path / "new").size() == (0, 0)


@pytest.mark.parametrize("damage", ["empty", "truncated", "one bit", "longer", "text"])
def test_damaged_entry_is_dropped(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = KernelCache(tmp_path)
    cache.put("key", CUBIN)
    [path] = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "truncated": content[:-3],
            "one bit": content[:-1] + bytes([content[-1] ^ 1]),
            "longer": content + b"x",
            "text": b"not an entry at all",
        }[damage]
    )
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
