"""The theme from run to run."""

import stat

import pytest

from pagedchat.settings.remembered import remember_theme, remembered_theme


def test_a_theme_is_remembered_in_a_file_of_our_own(tmp_path):
    path = tmp_path / "state" / "remembered.json"
    remember_theme(path, "nord")
    remember_theme(path, "gruvbox")
    assert remembered_theme(path) == "gruvbox"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["remembered.json"]


@pytest.mark.parametrize("data", [b"", b"[", b"[1]", b'{"theme": 3}', b"\xff", b"[" * 10_000])
def test_what_cannot_be_read_is_nothing(tmp_path, data):
    path = tmp_path / "remembered.json"
    path.write_bytes(data)
    assert remembered_theme(path) is None


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "state").write_text("in the way")
    remember_theme(tmp_path / "state" / "remembered.json", "nord")
    assert remembered_theme(tmp_path / "state" / "remembered.json") is None
