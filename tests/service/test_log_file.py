"""The engine's log: appended to, shown from its end, and not kept for ever."""

import os
import tempfile

from pagedchat.private_files import open_to_append
from pagedchat.service import log_file
from pagedchat.service.log_file import KEPT, LogFile


def write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())
    os.close(descriptor)


def test_tail_is_of_the_process_started_last(tmp_path):
    log = LogFile(tmp_path / "deep" / "folder")
    write(log.open(), "first process\n")
    assert log.tail() == "first process"
    write(log.open(), "".join(f"line {i}\n" for i in range(100)))
    assert log.tail(3) == "line 97\nline 98\nline 99"
    assert log.tail(1000).startswith("line 0\n")
    assert log.path.read_text().startswith("first process\nline 0\n")


def test_long_lines_and_broken_bytes_do_no_harm(tmp_path):
    log = LogFile(tmp_path)
    descriptor = log.open()
    os.write(descriptor, b"x" * 100_000 + b"\xff\xfe")
    os.close(descriptor)
    assert log.tail().endswith("x\ufffd\ufffd")
    assert len(log.tail()) < 5000


def test_tail_without_a_file_is_empty(tmp_path):
    assert LogFile(tmp_path).tail() == ""


def test_only_the_newest_logs_are_kept(tmp_path):
    for i in range(KEPT + 5):
        path = tmp_path / f"engine-x{i}.log"
        path.touch()
        os.utime(path, (i, i))
    os.close(LogFile(tmp_path).open())
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"engine-x{i}.log" for i in range(5, KEPT + 5)} | {f"engine-{os.getpid()}.log"}


def test_a_log_that_is_still_written_to_is_never_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    old = LogFile(tmp_path)
    engine = old.open()
    path = old.path
    old.close()  # the program is gone, the engine that it started is not
    monkeypatch.setattr(os, "getpid", lambda: 2)
    os.utime(path, (0, 0))
    for i in range(KEPT + 1):
        (tmp_path / f"engine-x{i}.log").touch()
    os.close(LogFile(tmp_path).open())
    assert path.exists()
    os.close(engine)
    (tmp_path / "engine-x99.log").touch()
    os.close(LogFile(tmp_path).open())
    assert not path.exists()


def test_a_log_removed_while_it_is_opened_is_made_again(tmp_path, monkeypatch):
    opened = []

    def open_and_lose(path):
        opened.append(open_to_append(path))
        if len(opened) == 1:
            path.unlink()
        return opened[-1]

    monkeypatch.setattr(log_file, "open_to_append", open_and_lose)
    log = LogFile(tmp_path)
    write(log.open(), "here\n")
    assert (len(opened), log.path.read_text()) == (2, "here\n")


def test_a_folder_that_cannot_be_written_to_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "file").touch()
    log = LogFile(tmp_path / "file" / "log")
    write(log.open(), "somewhere else\n")
    assert log.path.parent.parent == tmp_path / "tmp"
    assert log.path.parent.stat().st_mode & 0o777 == 0o700
    assert log.tail() == "somewhere else"
    reason = f"{tmp_path}/file/log cannot be written to (not a directory)"
    assert log.complaint == f"The engine's log is {log.path}: {reason}."


def test_without_any_folder_there_is_no_log(tmp_path, monkeypatch):
    elsewhere = tmp_path / f"pagedchat-log-{os.getuid()}"
    elsewhere.mkdir(mode=0o755)
    elsewhere.chmod(0o755)  # planted by somebody, or opened to others
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    log = LogFile(tmp_path / "file")
    write(log.open(), "nowhere\n")
    assert (log.path, log.tail()) == (None, "")
    assert log.complaint == f"The engine's log is not kept: {tmp_path}/file cannot be written to (file exists)."
    assert not list(elsewhere.iterdir())


def test_an_error_of_this_process_is_in_the_log_too(tmp_path):
    log = LogFile(tmp_path)
    os.close(log.open())
    log.add_traceback(OverflowError("too big"))
    assert log.tail() == "OverflowError: too big"
