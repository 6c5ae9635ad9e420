"""`--server`: which servers a run has, whether there is an engine here, and what goes with neither."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from pagedchat.cli import main as cli
from pagedchat.cli.options import parse_args
from pagedchat.cli.server_options import chosen_servers, engines_first
from pagedchat.history import run
from pagedchat.history.records import LayoutRecord, PaneRecord
from tests.cli.test_main import Terminal

Screens = list[tuple[Any, Any]]


class Start:
    """Runs a command line; keeps what would be shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.shown: Screens = []

    def __call__(self, *argv: str) -> int:
        from pagedchat.tui import app

        self._monkeypatch.setattr(app, "run_app", lambda link, options: self.shown.append((link, options)) or 0)
        self._monkeypatch.setattr(sys, "stdin", Terminal())
        self._monkeypatch.setattr(sys, "stdout", Terminal())
        return cli.main(argv)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(monkeypatch)


@pytest.mark.parametrize(
    ("argv", "before", "urls", "has_engine"),
    [
        ([], (), [], True),
        (["--server", "a:1", "--server", "b:2"], (), ["http://a:1/v1", "http://b:2/v1"], False),
        (["--server", "a:1", "--model", "m"], (), ["http://a:1/v1"], True),
        (["--server", "a:1", "--beside", "m"], (), ["http://a:1/v1"], True),
        ([], ("org/m", "server:http://a:1/v1"), ["http://a:1/v1"], True),
        ([], ("server:http://a:1/v1#org/m",), ["http://a:1/v1"], False),
        (["--model", "m"], ("server:a:1",), ["http://a:1/v1"], True),
        (["--server", "b:2"], ("org/m", "server:a:1"), ["http://b:2/v1"], False),
    ],
)
def test_which_servers_there_are(
    argv: list[str], before: tuple[str, ...], urls: list[str], has_engine: bool
) -> None:
    chosen = chosen_servers(parse_args(argv), before)
    assert ([server.url for server in chosen.servers], chosen.has_engine) == (urls, has_engine)


def test_servers_alone_load_no_engine_and_no_torch(start: Start) -> None:
    assert start("--server", "localhost:8000#org/m", "--api-key-env", "LAB_KEY") == 0
    [(link, options)] = start.shown
    assert type(link).__name__ == "OpenAILink"
    assert (link.address.model, link.address.key_env) == ("org/m", "LAB_KEY")
    assert (options.has_engine, options.model, options.beside) == (False, "http://localhost:8000/v1#org/m", "")
    assert type(options.open_engine("org/x")).__name__ == "EngineClient"


def test_an_engine_and_servers_stand_beside_each_other(start: Start) -> None:
    assert start("--model", "m", "--server", "a:1", "--seed", "4") == 0
    [(link, options)] = start.shown
    assert type(link).__name__ == "EngineClient"
    assert [server.url for server in options.servers] == ["http://a:1/v1"]
    assert options.open_server(options.servers[0])._seed == 4


def test_chats_of_before_are_where_they_were(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    panes = (PaneRecord(1, 11, 0), PaneRecord(2, 12, 1), PaneRecord(3, 13, 2))
    layout = LayoutRecord(panes, models=("server:a:1", "org/m", "server:b:2"))
    monkeypatch.setattr(run, "begin", lambda **_: run.RunHistory(MagicMock(), run.Reopened(layout)))
    assert start("--continue") == 0
    [(_, options)] = start.shown
    assert (options.model, [server.url for server in options.servers]) == (
        "org/m",
        ["http://a:1/v1", "http://b:2/v1"],
    )
    assert [pane.beside for pane in options.history.reopened.layout.panes] == [1, 0, 2]
    assert engines_first(LayoutRecord()) == LayoutRecord()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--server", "ftp://x"], "servers speak http or https"),
        (["--server", "http://me:key@x"], "would be seen on the screen"),
        (["--server", "x", "--trace", "{}/run.trace"], "--trace is of an engine on this machine"),
        (["--server", "x", "--metrics-port", "0"], "--metrics-port is of an engine on this machine"),
        (["-p", "Hi", "--server", "x"], "--server goes with the chats on the screen"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    start: Start,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    argv: list[str],
    said: str,
) -> None:
    assert start(*[word.format(tmp_path) for word in argv]) == cli.EXIT_USAGE
    assert said in capsys.readouterr().err
    assert start.shown == []
