"""Help with writing in the composer: files, prompts sent before, templates, the user's own editor."""

import os
import stat

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.chat.foot_line import CommandHints
from pagedchat.tui.kit import editor
from pagedchat.tui.kit.picker import Picker
from tests.tui.commands.test_commands import command, complaint
from tests.tui.whole_app import WIDE, drawn, pane, settle, toasts, until


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "use.md").write_text("How to use it.\n")
    (tmp_path / "docs" / "users.md").write_text("Who uses it.\n")
    (tmp_path / "a b.txt").write_text("Blank.\n")
    (tmp_path / "x.bin").write_bytes(b"\0\1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def type_in(pilot, text):
    composer = pane(pilot.app, 1).composer
    composer.insert(text)
    await pilot.pause()
    await until(pilot, lambda: not (composer._files.wants_list or composer._files._listing))
    await pilot.pause()


# --- files ----------------------------------------------------------------------------------------------


async def test_a_file_is_found_by_its_letters_and_goes_into_the_prompt(make_app, link, folder):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await type_in(pilot, "Read @abt")
        assert "a b.txt" in drawn(app.screen.query_one(CommandHints))
        await pilot.press("tab")
        assert pane(app, 1).composer.text == 'Read @"a b.txt" '
        await pilot.press("enter")
        await settle(pilot)
        [sent] = link.generates()
        assert sent.turns[-1].text == 'Read @"a b.txt" \n\na b.txt:\n```txt\nBlank.\n```'
        assert toasts(app) == ["Put into the prompt: a b.txt (1 line, 7 B)."]


async def test_of_several_files_one_is_chosen(make_app, link, folder):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await type_in(pilot, "Read @use now")
        composer = pane(app, 1).composer
        composer.move_cursor((0, len("Read @use")))
        await pilot.press("tab")
        await pilot.pause()
        assert isinstance(app.screen, Picker)
        await pilot.press("r", "s", "enter")  # behind what was typed before
        await pilot.pause()
        assert composer.text == "Read @docs/users.md  now"
        assert app.screen is app.chats
        assert app.focused is composer


async def test_a_choice_that_is_left_leaves_what_was_typed(make_app, folder):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await type_in(pilot, "@")
        await pilot.press("tab")
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert pane(app, 1).composer.text == "@"


async def test_a_file_that_cannot_go_in_brings_the_prompt_back(make_app, link, folder):
    app = make_app(sessions=2)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, "Look at @x.bin")
        assert complaint(app) == "x.bin is no text. Only text can be put into a prompt; it was not sent."
        assert pane(app, 1).composer.text == "Look at @x.bin"
        await pilot.press("f7")
        await settle(pilot)
        assert pane(app, 1).composer.text == "Look at @x.bin"
        assert link.generates() == []


async def test_a_file_goes_to_every_chat(make_app, link, folder):
    app = make_app(sessions=2)
    async with app.run_test(size=WIDE) as pilot:
        await type_in(pilot, "@docs/use.md ?")
        await pilot.press("f7")
        await settle(pilot)
        assert ["How to use it." in sent.turns[-1].text for sent in link.generates()] == [True, True]


async def test_a_sign_inside_a_word_offers_no_files(make_app, folder):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await type_in(pilot, "me@use")
        assert not app.screen.query_one(CommandHints).display


# --- prompts sent before ----------------------------------------------------------------------------------


def history_of(*prompts):
    history = PromptHistory()
    for prompt in prompts:
        history.add(prompt)
    return history


async def test_a_prompt_sent_before_is_found_and_the_draft_comes_back_after_it(make_app):
    app = make_app(sessions=1, history=history_of("tell of boats", "two\nlines", "tell of boats", "other"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("d", "r", "a", "f", "t", "ctrl+r")
        await pilot.pause()
        assert app.screen._choices == ["other", "tell of boats", "two lines"]
        await pilot.press("b", "o", "t", "enter")
        await pilot.pause()
        composer = pane(app, 1).composer
        assert composer.text == "tell of boats"
        await pilot.press("down", "down")
        assert composer.text == "draft"


async def test_arrows_and_the_same_key_again_go_through_the_prompts(make_app):
    app = make_app(sessions=1, history=history_of("one", "two", "three"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+r")
        await pilot.pause()
        await pilot.press("ctrl+r", "down", "up", "enter")
        await pilot.pause()
        assert pane(app, 1).composer.text == "two"


async def test_without_prompts_that_is_said(make_app):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert app.screen is app.chats
        assert toasts(app) == ["No prompt was sent yet."]


async def test_what_a_prompt_has_in_it_is_drawn_as_text(make_app):
    app = make_app(sessions=1, history=history_of("[red]not red[/red] \x1b[31m"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert "[red]not red[/red]" in drawn(app.screen)


# --- templates --------------------------------------------------------------------------------------------


@pytest.fixture
def templates(tmp_path, monkeypatch):
    monkeypatch.setattr("pagedchat.tui.commands.file_commands.templates_path", lambda: tmp_path)
    (tmp_path / "sum.txt").write_text("Sum up in {{lang}}.")
    (tmp_path / "tale.txt").write_text("Tell me a tale.")
    return tmp_path


async def test_a_template_comes_into_the_composer_to_be_sent(make_app, link, templates):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, "/template sum lang=Greek")
        assert pane(app, 1).composer.text == "Sum up in Greek."
        assert link.generates() == []


async def test_a_template_is_chosen_and_asks_for_what_it_needs(make_app, templates):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, "/template")
        await pilot.press("s", "u", "m", "enter")
        await pilot.pause()
        assert pane(app, 1).composer.text == "/template sum lang="


async def test_without_templates_it_is_said_where_they_belong(make_app, templates):
    for path in templates.iterdir():
        path.unlink()
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, "/template")
        assert complaint(app).startswith(f"There are no templates yet: a text file in {templates} is one")


# --- the editor -------------------------------------------------------------------------------------------


@pytest.fixture
def with_editor(tmp_path, monkeypatch):
    """An editor that is a shell script, and the folder of drafts."""
    drafts = tmp_path / "drafts"
    monkeypatch.setattr("pagedchat.tui.chat.composer.drafts_path", lambda: drafts)
    monkeypatch.delenv("VISUAL", raising=False)

    def make(script):
        path = tmp_path / "my editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setenv("EDITOR", f"'{path}' --wait")
        return drafts

    return make


async def edit(app, pilot, text="draft"):
    from contextlib import nullcontext

    app.suspend = nullcontext  # a test has no terminal to give up; tests/faults has one
    pane(app, 1).composer.load_text(text)
    await pilot.press("ctrl+o")
    await pilot.pause()


async def test_the_prompt_goes_to_the_editor_and_back_and_can_be_undone(make_app, with_editor):
    drafts = with_editor('stat -c %a "$2" > "${2%/*}/mode"; printf " and more\\nlines\\n\\n" >> "$2"')
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await edit(app, pilot)
        composer = pane(app, 1).composer
        assert composer.text == "draft and more\nlines"
        await pilot.press("ctrl+z")
        assert composer.text == "draft"
    assert [path.name for path in drafts.iterdir()] == ["mode"]
    assert ((drafts / "mode").read_text(), stat.S_IMODE(drafts.stat().st_mode)) == ("600\n", 0o700)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "my editor ended with status 3; the prompt is as it was. What it may have written is in "),
        ('printf "\\377" > "$2"', "What was edited is no text in UTF-8. It is in "),
        ('head -c 5000000 /dev/zero > "$2"', "What was edited is larger than a prompt can be (4 MiB). It is in "),
        ('rm "$2"', "What was edited cannot be read: No such file or directory."),
    ],
)
async def test_an_editor_that_fails_leaves_the_prompt_as_it_was(make_app, with_editor, script, message):
    with_editor(script)
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await edit(app, pilot)
        assert pane(app, 1).composer.text == "draft"
        assert toasts(app)[-1].startswith(message)


async def test_an_editor_that_is_not_there_is_said(make_app, with_editor, monkeypatch):
    drafts = with_editor("")
    monkeypatch.setenv("EDITOR", "no-such-editor")
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await edit(app, pilot)
        assert pane(app, 1).composer.text == "draft"
        assert toasts(app)[-1].startswith("no-such-editor cannot be started: No such file or directory.")
    assert [*drafts.iterdir()] == []


def test_the_editor_is_the_users_own(monkeypatch):
    assert editor.editor_command({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor.editor_command({"VISUAL": " ", "EDITOR": "vi"}) == ["vi"]
    with pytest.raises(editor.EditorError, match=r"\$EDITOR is no command: No closing quotation\."):
        editor.editor_command({"EDITOR": "'vi"})
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(editor.EditorError, match=r"There is no editor\."):
        editor.editor_command({})


async def test_a_command_is_completed_whatever_file_was_named_before(make_app, folder):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await type_in(pilot, "@use")
        composer = pane(app, 1).composer
        composer.load_text("/hel")  # all at once, as a prompt that is recalled
        composer.move_cursor(composer.document.end)
        await pilot.press("tab")
        await pilot.pause()
        assert pane(app, 1).composer.text == "/help"
        assert app.screen is app.chats
