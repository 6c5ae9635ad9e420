"""Chats into files and out of them."""

import json
import os
import stat

import pytest

from pagedchat.chat.formats import files
from pagedchat.chat.formats.files import FileExistsAlreadyError, read_chats, write_chat
from pagedchat.chat.formats.saved_chat import FormatError, SavedChat
from pagedchat.chat.turns import Entry, Turn

CHAT = SavedChat(
    "tale", "Be brief.", {"temperature": 0.5}, (Entry(Turn("user", "a")), Entry(Turn("assistant", "b")))
)


@pytest.mark.parametrize("ending", ["md", "json", "html", "svg", "JSON"])
def test_a_file_is_written_for_the_user_alone(tmp_path, ending, monkeypatch):
    os.umask(before := os.umask(0))
    path = tmp_path / f"a chat.{ending}"
    num_bytes = write_chat(path, CHAT)
    assert (path.stat().st_size, stat.S_IMODE(path.stat().st_mode)) == (num_bytes, 0o600)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    os.umask(before)


def test_what_is_written_is_read(tmp_path):
    write_chat(tmp_path / "a.json", CHAT)
    assert read_chats(tmp_path / "a.json") == [CHAT]


def test_a_file_is_not_overwritten_unless_that_was_asked_for(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("mine")
    with pytest.raises(FileExistsAlreadyError):
        write_chat(path, CHAT)
    assert path.read_text() == "mine"
    write_chat(path, CHAT, overwrite=True)
    assert read_chats(path) == [CHAT]


def test_a_link_that_leads_nowhere_is_a_file_that_is_there(tmp_path):
    (tmp_path / "a.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsAlreadyError):
        write_chat(tmp_path / "a.json", CHAT)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_comes_in_between_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    monkeypatch.setitem(files.WRITERS, ".json", lambda chat: path.write_text("theirs") and "")
    with pytest.raises(FileExistsAlreadyError):
        write_chat(path, CHAT)
    assert path.read_text() == "theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    write_chat(tmp_path / "a.json", CHAT)
    assert read_chats(tmp_path / "a.json") == [CHAT]
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.txt", "A chat is not written as '.txt'."),
        ("a", "A chat is not written as 'a'."),
        ("no/folder/a.md", "no/folder/a.md cannot be written: no such file or directory."),
        ("x\0.md", "cannot be written: embedded null byte."),
        ("n" * 300 + ".md", "cannot be written: file name too long."),
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, name, message):
    with pytest.raises(FormatError) as caught:
        write_chat(tmp_path / name, CHAT)
    assert caught.value.message.endswith(message)
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_leaves_no_half_of_a_file_and_keeps_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("mine")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FormatError, match="no space left on device"):
        write_chat(path, CHAT, overwrite=True)
    assert path.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON: line 1, column 1."),
        (b'{"a": 1,\n]', "is not JSON: line 2, column 1."),
        (b"\xff\xfe", "is not text in UTF-8."),
        (b"[" * 200_000, "is nested too deeply."),
        (b'{"a":' * 200_000, "is nested too deeply."),
        (
            b"[" + b"9" * 5000 + b"]",
            "cannot be read: exceeds the limit (4300 digits) for integer string conversion",
        ),
        (b"{}", "holds no chat."),
        (b"null", "holds no chat."),
        (b'[{"mapping": {"a": 3}}]', "holds no chat."),
        (b'{"format": "pagedchat chat", "version": 9}', "cannot be imported. Its version is 9"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path, data, message):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        read_chats(path)
    assert message in caught.value.message
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("pipe", "that is no file"), (".", "that is a folder"), ("none", "no such file")):
        with pytest.raises(FormatError, match=message):
            read_chats(tmp_path / name)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(3 << 20)
    with pytest.raises(FormatError, match="has 3 MiB; at most 1 are read"):
        read_chats(tmp_path / "a.json")


def test_a_byte_order_mark_is_no_matter(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode())
    assert read_chats(path)[0].unanswered == "hi"
