import os
from dataclasses import replace
from pathlib import Path

import pytest

from pagedchat.jit.cpu.cache import ObjectCache, cache_key
from tests.jit.cpu.targets import AVX2
from tests.jit.damage import DAMAGES


def test_what_is_put_is_got(tmp_path: Path) -> None:
    ObjectCache(tmp_path / "new").put("key", b"\x7fELF\ncode")
    assert ObjectCache(tmp_path / "new").get("key") == b"\x7fELF\ncode"
    assert ObjectCache(tmp_path / "new").get("other") is None
    assert ObjectCache(tmp_path / "none").get("key") is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_dropped(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("key", b"code of a kernel")
    [path] = tmp_path.iterdir()
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert cache.get("key") is None
    assert not path.exists()
    assert "damaged" in caplog.text


def test_entry_under_another_name_is_none(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("key", b"code")
    os.replace(tmp_path / "key.o", tmp_path / "other.o")
    assert cache.get("other") is None


def test_what_others_may_have_written_is_not_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("key", b"code")
    (tmp_path / "key.o").chmod(0o666)
    assert cache.get("key") is None
    assert "other users may write to it" in caplog.text


def test_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    ObjectCache(tmp_path / "file").put("key", b"code")
    assert "cannot be kept" in caplog.text


def test_key_follows_text_compiler_and_processor() -> None:
    keys = {
        cache_key(text, target)
        for text in ("a", "b")
        for target in (
            AVX2,
            replace(AVX2, name="skylake"),
            replace(AVX2, llvm="23.0.0"),
            replace(AVX2, features=AVX2.features | {"bmi2"}),
            replace(AVX2, triple="x86_64-apple-darwin"),
        )
    }
    assert len(keys) == 10
