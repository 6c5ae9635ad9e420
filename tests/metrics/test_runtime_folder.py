"""Where sockets lie, with a made-up home for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagedchat.metrics import runtime_folder
from pagedchat.metrics.runtime_folder import running, socket_folder, socket_path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runtime_folder, "_system_folder", list)
    monkeypatch.setattr(runtime_folder, "_candidates", lambda: [tmp_path / "first", tmp_path / "second"])
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_folder_is_for_its_owner_alone(home: Path) -> None:
    folder = socket_folder()
    assert folder == home / "first"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_folder_that_others_can_enter_is_passed_over(home: Path) -> None:
    (home / "first").mkdir()
    (home / "first").chmod(0o755)
    assert socket_folder() == home / "second"


def test_link_to_a_folder_is_passed_over(home: Path) -> None:
    (home / "elsewhere").mkdir(mode=0o700)
    (home / "first").symlink_to(home / "elsewhere")
    assert socket_folder() == home / "second"


def test_without_any_fit_folder_it_is_said(home: Path) -> None:
    for name in ("first", "second"):
        (home / name).write_text("a file")
    with pytest.raises(OSError, match="private"):
        socket_folder()


def test_what_a_dead_program_left_is_removed(home: Path) -> None:
    folder = socket_folder()
    stale, alive = socket_path(folder, dead_pid()), socket_path(folder, os.getpid())
    for path in (stale, alive, folder / "notes.sock"):
        path.touch()
    assert running() == {os.getpid(): alive}
    assert not stale.exists()
    assert (folder / "notes.sock").exists()


def test_every_place_leaves_room_for_a_socket_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Path("/" + "x" * 90)
    monkeypatch.setattr(runtime_folder, "_system_folder", lambda: [long])
    places = runtime_folder._candidates()
    assert long not in places
    assert places
    assert all(len(os.fsencode(socket_path(place, 2**22))) <= runtime_folder.MAX_PATH for place in places)
