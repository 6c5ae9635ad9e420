"""The engine process at the other end of a bare socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pagedchat.config import EngineConfig
from pagedchat.events import (
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    RunState,
)
from pagedchat.service import child as child_module
from pagedchat.service.child import EXIT_CRASHED, EXIT_NOT_STARTED, EXIT_OK
from pagedchat.service.commands import Pause, Shutdown
from pagedchat.service.wire import HEADER, MAX_FRAME, Configure, FrameWriter, event_reader
from tests.service.engine_rig import ask
from tests.service.fake_engine import ENTRY

CONFIGURE = Configure(EngineConfig())


class Child:
    """An engine process without a client."""

    def __init__(self, loader: str) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(20)
        with theirs:
            command = [*ENTRY, loader, "--log-file", "engine.log", str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def send(self, *messages) -> None:
        for message in messages:
            self.socket.sendall(FrameWriter().frame(message))

    def events(self) -> list[EngineEvent]:
        """All that it says until it ends."""
        reader, events = event_reader(), []
        while data := self.socket.recv(1 << 16):
            events += reader.feed(data)
        reader.finish()
        return events

    @property
    def exit_code(self) -> int:
        return self.process.wait(20)


@pytest.fixture
def start() -> Iterator:
    """`start("load")`: a process that uses this fake loader."""
    children = []

    def start_child(name: str) -> Child:
        children.append(Child(name if ":" in name else f"tests.service.fake_engine:{name}"))
        return children[-1]

    yield start_child
    for child in children:
        child.socket.close()
        child.process.kill()
        child.process.wait()


def test_serves_until_it_is_told_to_end(start):
    child = start("load")
    child.send(CONFIGURE, Pause(), Shutdown())
    assert [type(event) for event in child.events()] == [LoadProgress, EngineReady, RunState, RunState]
    assert child.exit_code == EXIT_OK


def test_ends_with_its_connection(start, monkeypatch):
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # it keeps counts at such an end, if it lives
    child = start("load_endless")
    child.send(CONFIGURE, ask(1, 10, "Hi"))
    child.socket.recv(1)
    child.socket.close()
    assert child.exit_code == EXIT_OK


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # main leaves its socket to the end of the process
def test_a_ui_that_leaves_while_the_model_loads_is_no_failure(monkeypatch):
    monkeypatch.setattr(child_module, "_set_up_process", lambda: None)
    monkeypatch.setattr(child_module, "_read", lambda _messages, _inbox: None)  # it would end this very process
    ours, theirs = socket.socketpair()
    ours.sendall(FrameWriter().frame(CONFIGURE))
    ours.close()
    assert child_module.main(["--loader", "tests.service.fake_engine:load", str(theirs.detach())]) == EXIT_OK


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_ui_that_leaves_in_the_middle_of_a_step_is_no_crash(monkeypatch, caplog):
    class Loop:
        def run(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(child_module, "_set_up_process", lambda: None)
    monkeypatch.setattr(child_module, "_read", lambda _messages, _inbox: None)
    monkeypatch.setattr(child_module, "_start", lambda *_: Loop())
    ours, theirs = socket.socketpair()
    ours.sendall(FrameWriter().frame(CONFIGURE))
    assert child_module.main([str(theirs.detach())]) == EXIT_OK
    assert "crashed" not in caplog.text
    ours.close()


def test_a_second_configuration_changes_nothing(start):
    child = start("load")
    child.send(CONFIGURE, CONFIGURE, Shutdown())
    assert [type(event) for event in child.events()] == [LoadProgress, EngineReady, RunState]
    assert child.exit_code == EXIT_OK


def test_anything_before_the_configuration_is_refused(start):
    child = start("load")
    child.send(Pause())
    assert child.events() == []
    assert child.exit_code == EXIT_NOT_STARTED


def test_garbage_ends_it(start):
    child = start("load_endless")
    child.send(CONFIGURE, ask(1, 10, "Hi"))
    child.socket.sendall(HEADER.pack(MAX_FRAME + 1))
    assert child.exit_code == EXIT_CRASHED


@pytest.mark.parametrize("loader", ["no.such.module:load", "tests.service.fake_engine:no_such_function"])
def test_broken_install_is_told(start, loader):
    child = start(loader)
    child.send(CONFIGURE)
    (failed,) = child.events()
    assert isinstance(failed, EngineFailed)
    assert "no" in failed.message
    assert "engine.log" in failed.hint
    assert child.exit_code == EXIT_NOT_STARTED


def test_template_that_does_not_end_fails_its_request_and_stops_nobody(start):
    child = start("load_looping")
    child.send(CONFIGURE, ask(1, 10, "loop"), ask(2, 20, "Hi", raw=True, max_tokens=5), ask(3, 30, "Hi"))
    events, reader = [], event_reader()
    while len([event for event in events if isinstance(event, RequestFinished)]) < 2:
        events += reader.feed(child.socket.recv(1 << 16))
    child.socket.close()
    ends = [event for event in events if isinstance(event, RequestFailed | RequestFinished)]
    assert [event.request_id for event in ends] == [20, 10, 30]
    assert ends[1].message == "The model's chat template did not finish within 2 s."
    assert "--raw" in ends[1].hint
    assert child.exit_code == EXIT_OK


def test_crash_in_a_step_is_told_and_ends_it(start):
    child = start("load_crash")
    child.send(CONFIGURE, ask(1, 10, "Hi"))
    failed = child.events()[-1]
    assert isinstance(failed, RequestFailed)
    assert "no memory for 3 GiB" in failed.message
    assert "engine.log" in failed.hint
    assert child.exit_code == EXIT_CRASHED


def test_a_rank_that_is_lost_ends_an_engine_that_has_nothing_to_do(start) -> None:
    child = start("load_lost")
    child.send(CONFIGURE)
    assert [type(event) for event in child.events()] == [LoadProgress, EngineReady, RunState]
    assert child.exit_code == EXIT_CRASHED


def test_what_was_passed_over_while_loading_is_told_once_it_is_ready(start) -> None:
    child = start("load_noticed")
    child.send(CONFIGURE, Shutdown())
    told = [event for event in child.events() if isinstance(event, EngineReady | EngineNotice)]
    assert told[1:] == [EngineNotice("top_k is passed over. So is top_p.", failed=True)]
    assert child.exit_code == EXIT_OK


@pytest.mark.parametrize(("level", "said"), [("", []), ("debug", ["a detail"])])
def test_who_looks_for_a_fault_has_our_modules_say_more(level, said):
    program = (
        "import logging; from pagedchat.service.child import _set_up_process; _set_up_process();"
        "[logging.getLogger(name).debug('a detail') for name in ('pagedchat.runtime', 'others')]"
    )
    environment = os.environ | {"PAGEDCHAT_LOG": level}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
    )
    assert [line.rpartition(": ")[2] for line in ran.stderr.splitlines()] == said
