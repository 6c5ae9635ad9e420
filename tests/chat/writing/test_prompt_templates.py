"""Prompts with gaps."""

import pytest

from pagedchat.chat.writing.prompt_templates import (
    MissingVariablesError,
    PromptTemplateError,
    filled,
    template_names,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sum.txt").write_text("Sum up in {{ lang | English }}, {{n|3}} lines:\n{{text}}\n")
    (tmp_path / "review.md").write_text("Review {{what}} for {{what}} and {{how}}.")
    (tmp_path / "plain.txt").write_text("Tell me a story.\n")
    (tmp_path / ".hidden.txt").write_text("")
    (tmp_path / "other.py").write_text("")
    return tmp_path


def test_templates_are_the_text_files_of_the_folder(folder):
    assert template_names(folder) == ["plain", "review", "sum"]
    assert template_names(folder / "none") == []


@pytest.mark.parametrize(
    ("argument", "prompt"),
    [
        ("sum a long text", "Sum up in English, 3 lines:\na long text"),
        ("sum lang=German n=5 a = b", "Sum up in German, 5 lines:\na = b"),
        ('review what="the big thing" how=speed', "Review the big thing for the big thing and speed."),
        ("plain", "Tell me a story."),
        ("plain of the sea", "Tell me a story.\n\nof the sea"),
        ("plain x=1", "Tell me a story.\n\nx=1"),
        ("review what={{how}} how=x", "Review {{how}} for {{how}} and x."),
    ],
)
def test_gaps_are_filled(folder, argument, prompt):
    assert filled(folder, argument) == prompt


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("review", "The template review needs what, how. Type /template review what=... how=..."),
        ("sum", "The template sum needs text. Type /template sum text"),
        ("review why=3", "The template has no variable 'why'. It has what, how."),
        ("reveiw", "There is no template 'reveiw' in "),
        ("../plain", "There is no template '../plain' in "),
    ],
)
def test_what_cannot_be_filled_is_said(folder, argument, message):
    with pytest.raises(PromptTemplateError) as caught:
        filled(folder, argument)
    assert str(caught.value).startswith(message)


def test_the_command_that_would_fill_the_first_gap_is_known(folder):
    with pytest.raises(MissingVariablesError) as caught:
        filled(folder, "review")
    assert caught.value.line == "/template review what="


@pytest.mark.parametrize(
    ("data", "reason"), [(b"\xff", "codec can't decode"), (b"a" * 70_000, "larger than 64 KiB")]
)
def test_a_template_that_cannot_be_read_is_said(folder, data, reason):
    (folder / "bad.txt").write_bytes(data)
    with pytest.raises(PromptTemplateError, match=reason):
        filled(folder, "bad")
