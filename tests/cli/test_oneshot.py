"""One prompt, one reply: what is printed, and what is not."""

import io
import json
import sys
import time

import pytest

from pagedchat.chat.sanitize import sanitize
from pagedchat.cli import main as cli
from pagedchat.cli import progress_line
from pagedchat.events import LoadProgress
from tests.api.fakes_llm import FakeLoadedModel, use_fake_model
from tests.fakes import ASSISTANT, FakeModelRunner, byte_tokenizer, reciting
from tests.faulty_tokenizer import FaultyTokenizer


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def recite(monkeypatch: pytest.MonkeyPatch, text: str, after: str = ASSISTANT, **changes: object) -> None:
    runner = FakeModelRunner(reciting(byte_tokenizer(), text, after))
    use_fake_model(monkeypatch, FakeLoadedModel(runner=runner, **changes))


def test_reply_is_printed_with_a_line_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, "A fine day. It rains.")
    assert cli.main(["-p", "Hello", "--max-tokens", "11"]) == 0
    assert capsys.readouterr() == ("A fine day.\n", "")


def test_standard_input_is_replied_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recite(monkeypatch, "Yes.")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Is it?"))
    assert cli.main(["--max-tokens", "4"]) == 0
    assert capsys.readouterr().out == "Yes.\n"


def test_json_has_text_tokens_timings_and_cache(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, "Yes. No.")
    assert cli.main(["-p", "Is it?", "--json", "--stop", ". "]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["text"], reply["finish_reason"], reply["model"]) == ("Yes", "stop", "fake")
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(reply["token_ids"]) == "Yes. "
    assert tokenizer.decode(reply["prompt_token_ids"], skip_special_tokens=False) == (
        "<|user|>Is it?</s><|assistant|>"
    )
    assert set(reply["timings"]) == {"load_s", "ttft_s", "total_s", "tokens_per_second"}
    assert 0 < reply["timings"]["ttft_s"] <= reply["timings"]["total_s"]
    assert reply["cache"]["blocks_total"] == 64
    assert reply["cache"]["prefix_queries"] > 0


def test_system_prompt_goes_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recite(monkeypatch, "Yes.")
    assert cli.main(["-p", "Hi", "--json", "--system", "Be brief."]) == 0
    token_ids = json.loads(capsys.readouterr().out)["prompt_token_ids"]
    assert byte_tokenizer().decode(token_ids, skip_special_tokens=False) == (
        "<|system|>Be brief.</s><|user|>Hi</s><|assistant|>"
    )


def test_raw_prompt_is_continued_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, " calm", after=":")
    assert cli.main(["-p", "The sea:", "--raw", "--max-tokens", "5", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["text"], byte_tokenizer().decode(reply["prompt_token_ids"])) == (" calm", "The sea:")


def test_base_model_replies_without_the_space_after_its_label(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, " Fine.\nUser: And you?", after=":", chat_template=None)
    assert cli.main(["-p", "How are you?", "--max-tokens", "50"]) == 0
    assert capsys.readouterr().out == "Fine.\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_reply_that_an_error_ended_is_told_and_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    recite(monkeypatch, "All is well", tokenizer=FaultyTokenizer("is", KeyError("lost")))
    assert cli.main(["-p", "Hi", "--max-tokens", "20", *options]) == 1
    captured = capsys.readouterr()
    if options:
        assert json.loads(captured.out)["finish_reason"] == "error"
    else:
        assert captured.out == "All i\n"
        assert "ended by an error of pagedchat's own" in captured.err


ESCAPES = "a\x1b[2Jb\x07c"


def test_pipe_gets_the_models_exact_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, ESCAPES)
    cli.main(["-p", "x", "--max-tokens", str(len(ESCAPES))])
    assert capsys.readouterr().out == ESCAPES + "\n"


def test_terminal_gets_nothing_it_could_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    recite(monkeypatch, ESCAPES)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    cli.main(["-p", "x", "--max-tokens", str(len(ESCAPES))])
    shown = terminal.getvalue()
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert shown.endswith("bc\n")


UNSAFE = "\x7f\x85\x9b31m\u200f\u202e\u2066\u2028\ufeff\U000e0041 é 海 🌊"


def test_json_has_nothing_that_a_terminal_could_obey_and_means_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, UNSAFE)
    cli.main(["-p", "x", "--json", "--max-tokens", str(len(UNSAFE.encode()))])
    line = capsys.readouterr().out
    assert json.loads(line)["text"] == UNSAFE
    assert sanitize(line) == line
    assert "é 海 🌊" in line


def test_prompt_that_does_not_fit_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_fake_model(monkeypatch)
    assert cli.main(["-p", "x" * 200]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("pagedchat: The prompt has ")
    assert captured.out == ""


def test_what_was_passed_over_while_loading_is_said_beside_the_reply(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recite(monkeypatch, "Hello</s>", notices=("top_k is\x1b[2J passed over.",))
    assert cli.main(["-p", "hi"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hello\n"
    assert "top_k is" in captured.err
    assert "\x1b" not in captured.err


# --- the line that says how loading goes --------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "_QUIET_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_slow_loading_shows_a_line_and_wipes_it() -> None:
    terminal = Terminal()
    progress = progress_line.ProgressLine(terminal)
    progress.show(LoadProgress("import", "Loading torch"))
    while "Loading torch" not in terminal.getvalue():
        time.sleep(0.001)
    progress.show(LoadProgress("weights", "Reading weights\x1b[2J", 1, 4, "tensors"))
    progress.clear()
    assert "Reading weights 25%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")


@pytest.fixture
def late(impatient: None) -> tuple[Terminal, progress_line.ProgressLine]:
    """A line that nobody has told anything for as long as it keeps quiet."""
    terminal = Terminal()
    progress = progress_line.ProgressLine(terminal)
    progress._timer.join()
    assert terminal.getvalue() == ""
    return terminal, progress


READING = LoadProgress("weights", "Reading weights", 1, 4, "tensors")


def test_loading_that_says_nothing_for_long_shows_what_it_says_then(
    late: tuple[Terminal, progress_line.ProgressLine],
) -> None:
    terminal, progress = late
    progress.show(READING)
    assert terminal.getvalue() == "\r\x1b[2KReading weights 25%"
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[2KReading weights 25%\r\x1b[2K"


def test_nothing_is_shown_once_the_line_is_wiped(late: tuple[Terminal, progress_line.ProgressLine]) -> None:
    terminal, progress = late
    progress.clear()
    progress.show(READING)
    progress.clear()
    assert terminal.getvalue() == ""


def test_quick_loading_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "_QUIET_SECONDS", 600)
    terminal = Terminal()
    progress = progress_line.ProgressLine(terminal)
    progress.show(LoadProgress("import", "Loading torch"))
    progress.clear()
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("impatient")
def test_loading_says_nothing_where_nobody_watches() -> None:
    stream = io.StringIO()
    progress = progress_line.ProgressLine(stream)
    progress.show(LoadProgress("import", "Loading torch"))
    time.sleep(0.05)
    progress.show(LoadProgress("weights", "Reading weights"))
    progress.clear()
    assert stream.getvalue() == ""


# --- kept -----------------------------------------------------------------------------------------------


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str]):
    """One prompt of a user who has a history of their own; what the model was told, and what was printed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def ask(prompt: str, *argv: str, reply: str = "Yes.") -> tuple[str, str, str]:
        recite(monkeypatch, reply)
        code = cli.main(["-p", prompt, "--json", "--max-tokens", "4", *argv])
        out, err = capsys.readouterr()
        told = json.loads(out)["prompt_token_ids"] if code == 0 else []
        return byte_tokenizer().decode(told, skip_special_tokens=False), out, err

    return ask


def test_a_reply_is_kept_and_the_next_one_goes_on_with_it(ask) -> None:
    ask("Is it?", "--system", "Be brief.")
    told, _, err = ask("Sure?", "--continue")
    assert told == ("<|system|>Be brief.</s><|user|>Is it?</s><|assistant|>Yes.</s><|user|>Sure?</s><|assistant|>")
    assert err == ""
    told, _, _ = ask("Really?", "--continue")
    assert told.count("<|user|>") == 3


def test_a_chat_is_gone_on_with_by_its_number(ask) -> None:
    for prompt in ("one", "two"):
        ask(prompt)
    assert ask("more", "--resume", "1")[0].startswith("<|user|>one</s>")
    assert "two" not in ask("more", "--resume", "1")[0]
    assert ask("more", "--resume", "9")[2] == (
        "pagedchat: There is no chat 9 in the history.\n^S in the program lists them all.\n"
    )


def test_what_is_not_to_be_kept_is_not(ask, tmp_path) -> None:
    ask("one", "--ephemeral")
    ask("one", "--raw")
    assert list(tmp_path.iterdir()) == []
    assert "There is no earlier chat to go on with." in ask("more", "--continue")[2]


@pytest.mark.parametrize("argv", [["--continue"], ["--resume", "1"]])
def test_what_is_damaged_cannot_be_gone_on_with(ask, tmp_path, argv: list[str]) -> None:
    (tmp_path / "pagedchat").mkdir()
    (tmp_path / "pagedchat" / "history.db").write_text("no history")
    assert ask("one", *argv)[2].startswith("pagedchat: There is no ")
    (tmp_path / "pagedchat" / "history.db").unlink()
    (tmp_path / "pagedchat" / "history.db").mkdir()
    assert ask("one", *argv)[2].startswith("pagedchat: There is no history in ")


def test_a_reply_is_made_though_it_cannot_be_kept(ask, tmp_path) -> None:
    (tmp_path / "pagedchat").write_text("no folder")
    _, out, err = ask("one")
    assert json.loads(out)["text"] == "Yes."
    assert "cannot be written to (file exists): what is new is not kept." in err
