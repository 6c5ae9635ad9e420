import pytest

from pagedchat.cli.main import main

REFUSED = {
    "--attach ftp://box": "--attach is 'ftp://box'.",
    "--attach --model x": "--model is for an engine that is started here; --attach takes the server's as it is.",
    "--attach box --num-blocks 9": "--num-blocks is for an engine that is started here; --attach takes",
    "--attach --beside x": "--beside is for an engine that is started here",
    "--attach --server box": "--server is for an engine that is started here",
    "--attach -p hello": "--attach goes with the chats on the screen, not with one reply.",
    "--attach --metrics-port 0": "--metrics-port is for an engine that is started here",
    "--attach": "Standard output is not a terminal",
    "inspect http://": "URL is 'http://'.",
    "inspect": "Standard output is not a terminal, so the inspector cannot be shown.",
}


@pytest.mark.parametrize(("line", "sentence"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_attached_is_one_sentence(capsys, line: str, sentence: str) -> None:
    assert main(line.split()) == 2
    assert f"pagedchat: {sentence}" in capsys.readouterr().err


def test_a_missing_library_is_named_with_its_extra(capsys, monkeypatch) -> None:
    monkeypatch.setattr("pagedchat.cli.attach.find_spec", lambda _: None)
    assert main(["--attach"]) == 1
    assert "pip install 'pagedchat[remote]'" in capsys.readouterr().err


def test_help_has_both(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "--attach [URL]" in text
    assert "inspect [URL]" in text
