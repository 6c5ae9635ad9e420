"""What people wrote is theirs alone: modes of files and folders, under any umask."""

import os
import stat

import pytest

from pagedchat.private_files import is_private_folder, make_folder, open_to_append, write_file


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022], ids=oct)
def _umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_folders_that_are_made_are_closed_to_others_on_all_floors(tmp_path):
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path)] == [0o700, 0o700, 0o755]


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a")


@pytest.mark.usefixtures("_umask")
def test_files_are_closed_to_others(tmp_path):
    os.close(open_to_append(tmp_path / "log"))
    write_file(tmp_path / "dump", b"x")
    assert [mode(tmp_path / "log"), mode(tmp_path / "dump")] == [0o600, 0o600]


def test_an_open_file_of_an_earlier_release_is_closed_when_it_is_written_to(tmp_path):
    path = tmp_path / "history"
    path.write_text("old\n")
    path.chmod(0o644)
    descriptor = open_to_append(path)
    os.write(descriptor, b"new\n")
    os.close(descriptor)
    assert (mode(path), path.read_text()) == (0o600, "old\nnew\n")


def test_writing_a_file_leaves_nothing_of_the_one_before(tmp_path):
    (tmp_path / "x").write_bytes(b"long before")
    (tmp_path / "x").chmod(0o666)
    write_file(tmp_path / "x", b"now")
    assert ((tmp_path / "x").read_bytes(), mode(tmp_path / "x")) == (b"now", 0o600)


def test_a_link_to_a_private_folder_is_none(tmp_path):
    make_folder(tmp_path / "own")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    make_folder(tmp_path / "open")
    (tmp_path / "open").chmod(0o750)
    kinds = [is_private_folder(tmp_path / name) for name in ("own", "link", "open", "missing")]
    assert kinds == [True, False, False, False]
