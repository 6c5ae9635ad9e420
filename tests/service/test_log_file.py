"""The engine's log: appended to, shown from its end, and not kept for ever."""

import os

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
