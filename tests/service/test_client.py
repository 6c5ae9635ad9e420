"""Real engine processes (with a fake model in them): started, killed, restarted, failing, left alone."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from pagedchat import events as ev
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.service import client as client_module
from pagedchat.service import commands as cmd
from pagedchat.service import process as process_module
from pagedchat.service.client import EngineClient
from pagedchat.service.process import EngineProcess
from tests.service.engine_rig import ask
from tests.service.fake_engine import ENTRY
from tests.service.test_wire import unsendable_config

TIMEOUT = 60


class Listener:
    """Collects a client's events and waits for some of them."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.events: list[ev.EngineEvent] = []
        self._events = client.events()

    async def until(self, wanted) -> ev.EngineEvent:
        """The first event not heard yet for which `wanted` is true (a type, or a function)."""
        async with asyncio.timeout(TIMEOUT):
            async for event in self._events:
                self.events.append(event)
                if isinstance(event, wanted) if isinstance(wanted, type) else wanted(event):
                    return event
        raise AssertionError(f"the events ended: {self.events}")

    async def finished(self, *request_ids: int) -> None:
        """All these requests have ended well."""
        left = set(request_ids)
        while left:
            left.discard((await self.until(ev.RequestFinished)).request_id)

    def text(self, request_id: int) -> str:
        deltas = [e for e in self.events if isinstance(e, ev.TextDelta) and e.request_id == request_id]
        return "".join(delta.text for delta in deltas)


@pytest.fixture
async def connect(tmp_path):
    """`await connect("load")`: a client whose engine process uses that fake loader, and a listener to it."""
    clients = []

    async def start(loader: str) -> tuple[EngineClient, Listener]:
        entry = [*ENTRY, f"tests.service.fake_engine:{loader}"]
        client = EngineClient(EngineConfig(model=ModelConfig(model="some/model")), tmp_path, entry)
        clients.append(client)
        await client.start()
        return client, Listener(client)

    yield start
    for client in clients:
        await client.close()


async def test_commands_wait_for_the_engine_and_two_sessions_stream(connect):
    client, heard = await connect("load")
    client.send(ask(1, 10, "Hi"))
    client.send(ask(2, 20, "Ho"))
    await heard.finished(10, 20)
    assert heard.text(10) == heard.text(20) == "once upon a time there was a block "
    kinds = [type(event) for event in heard.events]
    assert kinds[:3] == [ev.LoadProgress, ev.EngineReady, ev.RunState]
    assert heard.events[0].message == "reading some/model"


async def test_killed_engine_comes_back_and_answers(connect):
    client, heard = await connect("load_endless")
    client.send(ask(1, 10, "Hi"))
    client.send(ask(2, 20, "Ho"))
    await heard.until(lambda e: isinstance(e, ev.TextDelta) and e.request_id == 20)
    os.kill(client.pid, signal.SIGKILL)
    client_pid = client.pid
    died = await heard.until(ev.EngineDied)
    assert (died.exit_code, died.restarting) == (-signal.SIGKILL, True)
    client.send(ask(1, 11, "Hi", heard.text(10), "Go on", max_tokens=5))
    await heard.until(ev.EngineReady)
    await heard.finished(11)
    assert len(heard.text(11)) == 5
    assert client.pid != client_pid


async def test_prompt_that_the_killed_engine_had_not_begun_with_is_answered_by_the_next(connect):
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    os.kill(client.pid, signal.SIGSTOP)
    client.send(ask(1, 10, "Hi"))
    client.send(ask(2, 20, "Ho"))
    client.send(cmd.Close(2))
    os.kill(client.pid, signal.SIGKILL)
    await heard.until(ev.EngineDied)
    await heard.finished(10)
    assert heard.text(10)
    assert not any(isinstance(event, ev.RequestStarted) and event.request_id == 20 for event in heard.events)


async def test_focus_is_told_again_to_a_new_process(connect, monkeypatch):
    sent, send = [], EngineProcess.send
    monkeypatch.setattr(EngineProcess, "send", lambda self, message: (sent.append(message), send(self, message)))
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    client.send(cmd.Focus(2))
    os.kill(client.pid, signal.SIGKILL)
    await heard.until(ev.EngineDied)
    await heard.until(ev.EngineReady)
    assert sent.count(cmd.Focus(2)) == 2


async def test_limit_pace_and_pause_are_set_in_a_new_process_too(connect):
    client, heard = await connect("load_endless")
    await heard.until(ev.RunState)
    for command in (cmd.Pause(), cmd.SetPace(0.25), cmd.SetLimit(90), cmd.SetLimit(40)):
        client.send(command)
    await heard.until(lambda e: e == ev.RunState(True, 0.25, 40))
    os.kill(client.pid, signal.SIGKILL)
    client.send(ask(1, 10, "Hi"))
    await heard.until(ev.EngineReady)
    await heard.until(lambda e: e == ev.RunState(True, 0.25, 40))
    await heard.until(ev.RequestStarted)
    assert not any(isinstance(event, ev.TextDelta) for event in heard.events)  # paused before the prompt came
    client.send(cmd.Resume())
    client.send(cmd.SetPace(0.0))
    client.send(cmd.SetLimit(None))
    await heard.until(ev.TextDelta)


async def test_prompt_that_cannot_be_sent_fails_by_itself(connect):
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    client.send(ask(1, 10, "half a character: \ud83d"))
    client.send(cmd.StepOnce(2**70))
    client.send(ask(3, 30, "Hi"))
    failed = await heard.until(ev.RequestFailed)
    assert failed.request_id == 10
    assert failed.message == "The prompt and its settings cannot be passed on: some characters are no text."
    assert failed.hint
    refused = await heard.until(ev.EngineNotice)
    assert refused.failed
    assert refused.message == "“StepOnce” cannot be passed on: a number has more than 64 bits."
    await heard.finished(30)
    assert not any(isinstance(event, ev.EngineDied) for event in heard.events)


async def test_prompt_that_cannot_be_sent_fails_by_itself_when_the_engine_is_ready(connect):
    client, heard = await connect("load")
    client.send(ask(1, 10, "\ud83d"))
    client.send(ask(2, 20, "Hi"))
    assert (await heard.until(ev.RequestFailed)).request_id == 10
    await heard.finished(20)


async def test_settings_that_cannot_be_sent_are_a_failed_start_and_no_process(tmp_path):
    client = EngineClient(unsendable_config(), tmp_path)
    await client.start()
    failed = await Listener(client).until(ev.EngineFailed)
    assert failed.message == "The engine's settings cannot be passed on: some characters are no text."
    assert failed.hint
    assert client.pid is None
    await client.close()


async def test_defect_in_watching_over_the_engine_is_told_and_logged(connect, monkeypatch):
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    pid = client.pid

    async def fail(_):
        raise LookupError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(EngineProcess, "wait", fail)
        await client.restart()
        client.send(ask(1, 10, "Hi"))
        failed = await heard.until(ev.EngineFailed)
    assert failed.message == "The engine could not be watched over: LookupError: odd."
    assert str(client.log_path) in failed.hint
    assert "in fail\n" in client.log_path.read_text()
    assert (await heard.until(ev.RequestFailed)).request_id == 10
    assert client.pid is None
    assert not _runs(pid)
    await client.restart()
    await heard.until(ev.EngineReady)


async def test_prompt_that_was_on_its_way_when_watching_failed_is_refused_and_not_sent_later(connect, monkeypatch):
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    os.kill(client.pid, signal.SIGSTOP)
    client.send(ask(1, 10, "Hi"))
    with monkeypatch.context() as patch:
        patch.setattr(client_module.LogFile, "tail", lambda _: {}["odd"])
        os.kill(client.pid, signal.SIGKILL)
        assert (await heard.until(ev.RequestFailed)).request_id == 10
    for _ in range(2):
        await client.restart()
        await heard.until(ev.EngineReady)
    client.send(ask(1, 11, "Ho"))
    await heard.finished(11)
    assert not any(isinstance(event, ev.RequestStarted) and event.request_id == 10 for event in heard.events)


async def test_engine_that_hangs_is_started_anew_when_that_is_wished(connect):
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    hanging = client.pid
    os.kill(hanging, signal.SIGSTOP)
    client.send(ask(1, 10, "Hi"))
    await client.restart()
    await heard.finished(10)
    assert client.pid != hanging


async def test_another_model_takes_the_place_of_one_that_runs_or_loads_or_failed(connect):
    client, heard = await connect("load_unless_missing")
    await heard.until(ev.EngineReady)
    client.send(ask(1, 10, "Hi"))
    await heard.finished(10)
    first = client.pid
    await client.switch("another/model")
    died = await heard.until(ev.EngineDied)
    assert (died.next_model, died.restarting) == ("another/model", True)
    told = await heard.until(ev.LoadProgress)
    while "reading" not in told.message:
        told = await heard.until(ev.LoadProgress)
    assert told.message == "reading another/model"
    await heard.until(ev.EngineReady)
    client.send(ask(1, 11, "Ho"))
    await heard.finished(11)
    assert client.pid != first
    await client.switch("no/missing")
    await heard.until(ev.EngineFailed)
    await client.switch("third/model")
    assert (await heard.until(ev.EngineReady)).model == "third/model"
    for number in range(4):  # more than crashes would be forgiven
        await client.switch(f"model/{number}")
    client.send(ask(1, 12, "Ha"))
    await heard.finished(12)
    assert [event.model for event in heard.events if isinstance(event, ev.EngineReady)][-1] == "model/3"


async def test_a_tokenizer_that_was_chosen_for_one_model_is_not_the_next_ones(tmp_path):
    config = EngineConfig(model=ModelConfig(model="some/model", tokenizer="some/tokenizer", dtype="float32"))
    client = EngineClient(config, tmp_path, [*ENTRY, "tests.service.fake_engine:load"])
    await client.switch("another/model")
    heard = Listener(client)
    await heard.until(ev.EngineReady)
    assert client._config.model == ModelConfig(model="another/model", dtype="float32")
    await client.close()


async def test_another_engine_stands_beside_with_the_same_options_and_takes_what_is_left(tmp_path):
    model = ModelConfig(model="some/model", tokenizer="some/tokenizer", dtype="float32")
    config = EngineConfig(model=model, cache=CacheConfig(num_blocks=7))
    client = EngineClient(config, tmp_path, [*ENTRY, "tests.service.fake_engine:load"])
    other = client.beside("another/model")
    assert other._config.model == ModelConfig(model="another/model", dtype="float32")
    assert other._config.cache == CacheConfig(num_blocks=7, gpu_memory_utilization=1.0)
    assert (config.stands_beside, other._config.stands_beside) == (False, True)
    assert other.log_path != client.log_path
    await asyncio.gather(client.close(), other.close())


async def test_log_that_cannot_be_written_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    client = EngineClient(EngineConfig(), tmp_path / "file", [*ENTRY, "tests.service.fake_engine:load"])
    await client.start()
    heard = Listener(client)
    await heard.until(ev.EngineReady)
    client.send(ask(1, 10, "Hi"))
    await client.restart()
    await heard.finished(10)
    [notice] = [event for event in heard.events if isinstance(event, ev.EngineNotice)]
    assert notice.message.startswith("The engine's log is not kept: ")
    assert client.log_path is None
    await client.close()


async def test_model_that_cannot_be_loaded_is_told_and_not_tried_again(connect):
    client, heard = await connect("load_missing")
    client.send(ask(1, 10, "Hi"))
    failed = await heard.until(ev.EngineFailed)
    assert failed == ev.EngineFailed("There is no model 'some/model'.", "Check its name.")
    assert (await heard.until(ev.RequestFailed)).request_id == 10
    client.send(cmd.Fork(1, 2, 20))
    assert (await heard.until(ev.RequestFailed)).session_id == 2
    await client.close()
    assert not any(isinstance(event, ev.EngineDied) for event in heard.events)


async def test_defect_while_loading_is_one_sentence_and_a_log(connect):
    client, heard = await connect("load_defect")
    failed = await heard.until(ev.EngineFailed)
    assert "lm_head.weight" in failed.message
    assert "Traceback" not in failed.message
    assert str(client.log_path) in failed.hint
    await client.close()
    log = client.log_path.read_text()
    assert "Traceback" in log
    assert "about to go wrong" in log


async def test_crash_in_a_step_fails_the_request_and_restarts(connect):
    client, heard = await connect("load_crash")
    client.send(ask(1, 10, "Hi"))
    failed = await heard.until(ev.RequestFailed)
    assert "no memory for 3 GiB" in failed.message
    died = await heard.until(ev.EngineDied)
    assert died.exit_code == 70
    assert "MemoryError" in died.log_tail
    assert died.restarting


async def test_engine_that_keeps_crashing_is_given_up(connect, monkeypatch):
    monkeypatch.setattr(client_module, "MAX_CRASHES", 1)
    client, heard = await connect("load_crash")
    for request_id, restarting in ((10, True), (11, False)):
        client.send(ask(1, request_id, "Hi"))
        assert (await heard.until(ev.EngineDied)).restarting is restarting
    client.send(ask(1, 12, "Hi"))
    refused = await heard.until(lambda e: isinstance(e, ev.RequestFailed) and e.request_id == 12)
    assert str(client.log_path) in refused.hint
    await client.restart()
    await heard.until(ev.EngineReady)
    client.send(ask(1, 13, "Hi"))
    assert (await heard.until(ev.EngineDied)).restarting  # the crashes are counted anew


async def test_garbage_on_the_line_counts_as_death(tmp_path, monkeypatch):
    monkeypatch.setattr(process_module, "GRACE", 0.05)
    monkeypatch.setattr(client_module, "CLOSE_TIMEOUT", 0.05)
    script = "import os, sys, time; os.write(int(sys.argv[-1]), b'Traceback!'); time.sleep(60)"
    client = EngineClient(EngineConfig(), tmp_path, [sys.executable, "-c", script])
    await client.start()
    died = await Listener(client).until(ev.EngineDied)
    assert "frame" in died.log_tail
    await client.close()


async def test_command_that_does_not_exist_is_told(tmp_path):
    client = EngineClient(EngineConfig(), tmp_path, ["/no/such/python"])
    await client.start()
    assert "/no/such/python" in (await Listener(client).until(ev.EngineFailed)).message
    await client.close()


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOMEM, "Free memory."), (errno.EMFILE, "Raise the limit of open files (ulimit -n)."), (errno.EIO, "")],
)
async def test_process_that_cannot_be_made_has_the_hint_that_helps(number, hint, tmp_path, monkeypatch):
    async def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    client = EngineClient(EngineConfig(), tmp_path)
    await client.start()
    failed = await Listener(client).until(ev.EngineFailed)
    assert os.strerror(number) in failed.message
    assert failed.hint == hint
    await client.close()


async def test_close_ends_the_process_and_the_events(connect, monkeypatch):
    monkeypatch.setattr(client_module, "CLOSE_TIMEOUT", TIMEOUT)
    client, heard = await connect("load_endless")
    client.send(ask(1, 10, "Hi"))
    await heard.until(ev.TextDelta)
    pid, started = client.pid, time.monotonic()
    await client.close()
    assert time.monotonic() - started < client_module.CLOSE_TIMEOUT
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(AssertionError, match="events ended"):
        await heard.until(ev.EngineDied)


async def test_starting_what_runs_starts_no_second_process(connect):
    client, heard = await connect("load")
    await heard.until(ev.EngineReady)
    pid = client.pid
    await client.start()
    client.send(ask(1, 10, "Hi"))
    await heard.finished(10)
    assert client.pid == pid


async def test_a_client_that_was_never_started_is_closed_all_the_same(tmp_path):
    client = EngineClient(EngineConfig(), tmp_path)
    await client.close()
    assert [event async for event in client.events()] == []


async def test_close_kills_a_process_that_does_not_listen(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "CLOSE_TIMEOUT", 0.1)
    client = EngineClient(EngineConfig(), tmp_path, [sys.executable, "-c", "import time; time.sleep(60)"])
    await client.start()
    while client.pid is None:  # noqa: ASYNC110 - such a process says nothing
        await asyncio.sleep(0.01)
    pid = client.pid
    await client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_start_after_close_starts_nothing(tmp_path):
    client = EngineClient(EngineConfig(), tmp_path, [sys.executable, "-c", "raise SystemExit"])
    await client.close()
    await client.start()
    assert [event async for event in client.events()] == []
    await asyncio.sleep(0)
    assert client.pid is None


async def test_close_right_after_start_leaves_no_process(tmp_path):
    client = EngineClient(EngineConfig(), tmp_path, [*ENTRY, "tests.service.fake_engine:load"])
    await client.start()
    await client.close()
    assert client.pid is None
    assert [event async for event in client.events()] == []


UI = """
import asyncio, sys
from pathlib import Path
from pagedchat.config import EngineConfig
from pagedchat.service.client import EngineClient
from pagedchat.events import EngineReady

async def main():
    client = EngineClient(EngineConfig(), Path(sys.argv[1]), sys.argv[2:])
    await client.start()
    async for event in client.events():
        if isinstance(event, EngineReady):
            break
    heavy = [name for name in ("torch", "numpy", "jinja2", "tokenizers", "textual") if name in sys.modules]
    print(client.pid, *heavy, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_engine_ends_when_the_ui_is_killed_and_the_ui_loads_nothing_heavy(tmp_path):
    entry = [*ENTRY, "tests.service.fake_engine:load"]
    command = [sys.executable, "-c", UI, str(tmp_path), *entry]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ui:
        (pid,) = map(int, ui.stdout.readline().split())
        assert os.getpgid(pid) != os.getpgid(ui.pid)  # ^C in the terminal does not reach it
        ui.kill()
    deadline = time.monotonic() + TIMEOUT
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    """Not ended, or ended and only waiting for somebody to ask how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_an_engine_is_not_listened_to_while_too_much_waits_and_nothing_is_lost(connect):
    client, heard = await connect("load")
    held, hold = asyncio.Event(), client._events._hold
    client._events._hold = lambda full: (hold(full), held.set())
    client._events.limit = 30
    client.send(ask(1, 10, "Hi"))
    client.send(ask(2, 20, "Ho"))
    async with asyncio.timeout(TIMEOUT):
        await held.wait()
    await heard.finished(10, 20)
    assert heard.text(10) == heard.text(20) == "once upon a time there was a block "
    reports = [report for event in heard.events if isinstance(event, ev.Steps) for report in event.reports]
    assert [report.step for report in reports if report.batch] == list(range(1, reports[-1].step + 1))
