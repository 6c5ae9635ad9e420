"""Files in a prompt: their text, or one sentence."""

import os

import pytest

from pagedchat.chat.writing import prompt_files
from pagedchat.chat.writing.file_list import list_files
from pagedchat.chat.writing.prompt_files import PromptFileError, mention, with_files


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "use.md").write_text("# Use\n\n```sh\nrun\n```\n")
    (tmp_path / "a b.py").write_text("x\t= 1\r\n")
    return tmp_path


def test_the_text_of_a_file_stands_behind_the_prompt_and_is_told(root):
    filled = with_files('Look at @docs/use.md, and at @"a b.py".', root)
    assert filled.text == (
        'Look at @docs/use.md, and at @"a b.py".\n\n'
        "docs/use.md:\n````md\n# Use\n\n```sh\nrun\n```\n````\n\n"
        "a b.py:\n```py\nx\t= 1\n```"
    )
    assert filled.told == "Put into the prompt: docs/use.md (5 lines, 21 B), a b.py (1 line, 6 B)."


@pytest.mark.parametrize("prompt", ["mail me@example.org", "@ and @", "ask @alice", "no sign", "@docs is a folder"])
def test_a_word_that_names_no_file_is_a_word(root, prompt):
    assert with_files(prompt, root) == prompt_files.FilledPrompt(prompt, "")


def test_what_looks_like_a_file_and_is_none_is_told(root):
    filled = with_files("see @docs/usage.md.", root)
    assert (filled.text, filled.told) == (
        "see @docs/usage.md.", "There is no file docs/usage.md; sent as it is written.",
    )  # fmt: skip


def test_a_file_that_is_named_twice_goes_in_once(root):
    assert with_files("@docs/use.md @docs/use.md", root).text.count("# Use") == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG\r\n\x00\x00", "x.bin is no text."),
        (b"caf\xe9", "x.bin is no text in UTF-8."),
        (b"a" * (256 * 1024 + 1), "x.bin is larger than 256 KiB."),
    ],
)
def test_what_is_no_text_or_too_much_is_refused_in_a_sentence(root, data, message):
    (root / "x.bin").write_bytes(data)
    with pytest.raises(PromptFileError) as caught:
        with_files("@x.bin", root)
    assert caught.value.message == message
    assert "not sent" in caught.value.hint


def test_what_would_be_waited_for_is_refused(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(PromptFileError, match=r"pipe is no text\."):
        with_files("@pipe", root)


def test_too_many_files_are_refused(root):
    for number in range(21):
        (root / f"{number}.txt").write_text("x")
    with pytest.raises(PromptFileError, match="21 files with 21 characters are too much"):
        with_files(" ".join(f"@{number}.txt" for number in range(21)), root)


def test_what_no_eye_sees_in_a_file_is_written_out(root):
    (root / "x.txt").write_text("a\x1b]0;t\x07\u202eb\U000e0041")
    assert r"a\x1b]0;t\x07\u202eb\U000e0041" in with_files("@x.txt", root).text


@pytest.mark.parametrize("name", ["docs/use.md", "a b.py", "end.", "x'"])
def test_a_mention_names_its_file(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("inside")
    assert "inside" in with_files(f"{mention(name)} please", tmp_path).text


def test_files_are_listed_from_the_top_without_what_is_hidden_or_made(tmp_path):
    for name in ("b.txt", "a.txt", "in/c.txt", "in/deep/d.txt", ".git/x", "node_modules/y", "in/.hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list_files(tmp_path) == ["a.txt", "b.txt", "in/c.txt", "in/deep/d.txt"]
    assert list_files(tmp_path / "none") == []


def test_a_list_of_files_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("pagedchat.chat.writing.file_list.MOST_FILES", 3)
    for number in range(9):
        (tmp_path / f"{number}").write_text("")
    assert len(list_files(tmp_path)) == 3
    assert list_files(tmp_path, seconds=-1) == []
