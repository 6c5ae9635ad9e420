"""The engine process ends at a named phase of its work: what the user sees, and what is kept."""

import asyncio
import os
import shutil
import signal

import psutil
import pytest

from pagedchat import events as ev
from pagedchat.chat.session import ChatSession
from pagedchat.jit.cache import KernelCache
from pagedchat.service import client as client_module
from pagedchat.service import commands as cmd
from pagedchat.service import process as process_module
from pagedchat.service.child import EXIT_CRASHED
from pagedchat.trace.reader import open_trace
from tests.faults.gated_engine import CUBIN, LOST, NUM_BLOCKS, PHASES, STEP_PHASES, STOPPED
from tests.faults.screens import PATIENCE, Screens, screens
from tests.service.fake_engine import ENTRY

SIGNALS = {signal.SIGKILL: "killed", signal.SIGSEGV: "segmentation fault", signal.SIGTERM: "terminated"}


@pytest.fixture(autouse=True)
def _any_number_of_crashes(monkeypatch):
    monkeypatch.setattr(client_module, "MAX_CRASHES", 100)


async def bring_about(program: Screens, phase: str, what: str, prompt: str) -> ChatSession:
    """Have something happen at this phase, and bring the engine, or the next one, to it."""
    if phase == "copy":
        async with asyncio.timeout(PATIENCE):
            return await _bring_about_a_copy(program, what, prompt)
    program.gates.order(phase, what)
    if phase not in STEP_PHASES and program.view.live:
        shutil.rmtree(program.gates.orders / "kernels")
        await program.restart()
    if phase == "swap":
        program.ask(f"{prompt}, too")
    return program.ask(prompt, max_tokens=None if phase in STEP_PHASES else 5)


async def _bring_about_a_copy(program: Screens, what: str, prompt: str) -> ChatSession:
    """Fork a reply under way until that copies a block, which it does neither between two blocks nor at its end."""
    program.gates.order("copy", what)
    chat, forked_at = program.ask(prompt), 0
    while not program.gates.has_arrival:
        if not chat.busy:
            close_chats(program)
            chat, forked_at = program.ask(prompt), 0
        if len(chat.open_text) != forked_at:
            program.desk.fork(chat)
            forked_at = len(chat.open_text)
        await asyncio.sleep(0.005)  # a gate is silent
    return chat


async def answers(program: Screens, prompt: str = "Hi") -> bool:
    """Whether a new chat is answered."""
    chat = program.ask(prompt, max_tokens=5)
    await program.until(lambda: not chat.busy)
    return [entry.ending for entry in chat.entries] == ["complete", "length"]


def close_chats(program: Screens) -> None:
    for chat in list(program.desk):
        program.desk.stop(chat)
        program.desk.close(chat)


def check_recordings(program: Screens) -> None:
    """Every engine that was ready has one, whole and closed."""
    num_engines = sum(isinstance(event, ev.EngineReady) for event in program.heard)
    traces = sorted(program.trace.parent.glob("run*.trace"))
    assert len(traces) == num_engines
    assert all(open_trace(trace).ended for trace in traces)


@pytest.mark.parametrize("phase", PHASES)
async def test_a_signal_ends_the_engine_and_the_chats_go_on(phase, tmp_path):
    async with screens(tmp_path) as program:
        for number, in_words in SIGNALS.items():
            chat = await bring_about(program, phase, "wait", prompt := f"Before {number.name}")
            assert await program.arrival() == phase
            asked_late = program.ask("Are you there?", max_tokens=5)
            written = {each: each.open_text for each in program.desk}
            os.kill(program.client.pid, number)
            await program.until(lambda number=number: (died := program.died()) and died.exit_code == -number)
            assert f"The engine ended ({number.name}, {in_words})" in program.banners[-1]
            assert f"the chats are kept · log: {program.client.log_path}" in program.banners[-1]
            if number == signal.SIGSEGV:
                assert "Fatal Python error: Segmentation fault" in program.client.log_path.read_text()
                assert "most recent call first" in program.died().log_tail
            await program.until(lambda late=asked_late: not late.busy)
            assert (
                asked_late.entries[-1].ending == "length"
            )  # the next engine has answered what this one had not begun
            assert all(is_kept(each, text) for each, text in written.items())
            assert prompt in (chat.take_returned(), *(turn.text for turn in chat.turns))
            close_chats(program)
        assert await answers(program)
    check_recordings(program)
    assert KernelCache(tmp_path / "kernels").get("kernel") == CUBIN


def is_kept(chat: ChatSession, written: str) -> bool:
    """Whether all that a chat showed when the engine ended is there still."""
    return not written or chat.entries[-1].turn.text.startswith(written)


@pytest.mark.parametrize("phase", STEP_PHASES)
async def test_a_lost_device_ends_the_engine_and_the_chats_go_on(phase, tmp_path):
    """What a CUDA context does after a kernel has trapped: whatever is asked of it fails from then on."""
    async with screens(tmp_path) as program:
        chat = await bring_about(program, phase, "lose the device", "Hi")
        await program.until(program.died)
        assert program.died().exit_code == EXIT_CRASHED
        assert f"The engine ended ({LOST}" in program.banners[-1]
        assert chat.notice.message == f"The engine crashed: {LOST}."
        assert str(program.client.log_path) in chat.notice.hint
        assert "Hi" in (chat.take_returned(), *(turn.text for turn in chat.turns))
        assert await answers(program)
    check_recordings(program)


async def test_memory_that_runs_out_in_a_single_step_is_not_noticed(tmp_path):
    async with screens(tmp_path) as program:
        chat = await bring_about(program, "decode", "run out of memory", "Hi")
        await program.until(lambda: not chat.busy)
        assert chat.entries[-1].ending == "length"
        assert program.died() is None


async def test_a_device_that_is_lost_while_loading_is_said_and_tried_again_by_a_key(tmp_path):
    async with screens(tmp_path) as program:
        program.gates.order("loading", "lose the device")
        chat = program.ask("Hi")
        await program.until(lambda: program.view.failure)
        assert (
            program.banners[-1]
            == f"The engine could not start\n{LOST}\nF12 tries again · ^L loads another model · ^Q quits"
        )
        await program.until(lambda: not chat.busy)
        assert chat.take_returned() == "Hi"
        await program.bridge.restart()
        assert await answers(program)


async def test_memory_that_runs_out_while_loading_is_said(tmp_path):
    entry = (*ENTRY, "tests.faults.gated_engine:load_in_little_memory")
    async with screens(tmp_path, entry) as program:
        chat = program.ask("Hi")
        await program.until(lambda: program.view.failure)
        assert "emory" in program.view.failure.message
        assert "choose a smaller model" in program.view.failure.hint
        await program.until(lambda: not chat.busy)
        assert chat.take_returned() == "Hi"


async def test_a_connection_that_closes_ends_an_engine_that_lives_on(tmp_path, monkeypatch):
    monkeypatch.setattr(process_module, "GRACE", 0.05)
    async with screens(tmp_path) as program:
        chat = await bring_about(program, "decode", "close the connection", "Hi")
        await program.until(lambda: chat.open_text)
        pid, written = program.client.pid, chat.open_text
        await program.until(program.died)
        assert program.died().exit_code == -signal.SIGKILL
        assert not psutil.pid_exists(pid)
        assert is_kept(chat, written)
        assert chat.state == "interrupted"
        assert await answers(program)


async def test_an_engine_that_is_stopped_goes_on_where_it_was(tmp_path):
    async with screens(tmp_path) as program:
        undisturbed = program.ask("Hi", max_tokens=100)
        await program.until(lambda: not undisturbed.busy)
        chat = program.ask("Hi", max_tokens=100)
        await program.until(lambda: chat.open_text)
        program.send(cmd.SetLimit(NUM_BLOCKS - 1))
        os.kill(program.client.pid, signal.SIGSTOP)
        asked_late = program.ask("Are you there?", max_tokens=5)
        await asyncio.sleep(STOPPED)  # that it goes on as if no time had passed is the point
        os.kill(program.client.pid, signal.SIGCONT)
        await program.until(lambda: not chat.busy and not asked_late.busy)
        assert chat.entries == undisturbed.entries
        assert asked_late.entries[-1].ending == "length"
        assert program.view.limit == NUM_BLOCKS - 1
        assert program.died() is None
    check_recordings(program)


async def test_an_engine_that_stays_stopped_is_started_anew_by_a_key(tmp_path):
    async with screens(tmp_path) as program:
        chat = program.ask("Hi")
        await program.until(lambda: chat.open_text)
        pid, written = program.client.pid, chat.open_text
        os.kill(pid, signal.SIGSTOP)
        await program.bridge.restart()
        assert await answers(program)
        assert is_kept(chat, written)
        assert program.client.pid != pid
