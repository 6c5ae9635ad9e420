"""Terminals at a server's WebSocket: what a reply does while nobody listens, and what foreigners are told."""

import asyncio
import struct
from contextlib import suppress

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from pagedchat import events as ev
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.service.attaching import MAX_TOLD, PROTOCOL, Hello, Refused, Told, Welcome, server_reader
from pagedchat.service.commands import Generate, Pause, SetPace, StepOnce
from pagedchat.service.wire import FrameWriter
from tests.server.attach_serving import PATIENCE, Terminal, serving, until


def ask(session_id, request_id, prompt, chat_id=0, **overrides):
    return Generate(session_id, request_id, [Turn("user", prompt)], SamplingOverrides(**overrides), chat_id=chat_id)


async def test_a_reply_reaches_its_terminal_and_no_other():
    async with serving() as served, Terminal(served) as one, Terminal(served, key="another") as other:
        await one.until_heard(ev.CacheKeyframe)
        await other.until_heard(ev.CacheKeyframe)
        one.send(ask(1, 1, "tell A", max_tokens=8))
        await until(lambda: served.link.rig.loop.may_step)
        served.link.step(8)
        finished = await one.until_heard(ev.RequestFinished)
        assert (finished.session_id, finished.request_id, finished.num_tokens) == (1, 1, 8)
        assert one.text(1) == "A" * 8
        await other.until_heard(ev.Steps)
        assert not other.of(ev.TextDelta)
        assert b"A" not in b"".join(b"".join(texts.texts) for texts in other.of(ev.TokenTexts))
    assert not served.link.hub.numbers.own


async def test_a_reply_goes_on_without_its_terminal_and_the_next_one_gets_all_of_it():
    async with serving() as served:
        killed = Terminal(served)
        async with killed:
            killed.send(ask(2, 1, "tell B", chat_id=77, max_tokens=20))
            await until(lambda: served.link.rig.loop.may_step)
            served.link.step(5)
            await killed.until(lambda: killed.text(1) == "BBBBB")
            await killed.kill()
        served.link.step(7)
        async with Terminal(served, chats=[(1, 50), (4, 77)]) as again:
            kept = await again.until_heard(ev.ReplyKept)
            assert (kept.session_id, kept.chat_id, kept.text, kept.finished) == (4, 77, "B" * 12, False)
            assert kept.turns == [("user", "tell B")]
            served.link.step(8)
            finished = await again.until_heard(ev.RequestFinished)
            assert again.text(kept.request_id) == "B" * 20
            assert (finished.session_id, finished.request_id) == (4, kept.request_id)
            again.send(ask(4, 1, "and", chat_id=77, max_tokens=1))
            await until(lambda: served.link.rig.loop.may_step)
            served.link.step()
            await again.until_heard(ev.RequestFinished, 2)
        assert len(served.link.rig.core.sequences) == 1, "the same sequence went on"


async def test_a_second_terminal_that_lives_keeps_its_own():
    async with serving() as served, Terminal(served) as lives:
        lives.send(ask(1, 1, "tell A", chat_id=5, max_tokens=3))
        await until(lambda: served.link.rig.loop.may_step)
        async with Terminal(served, chats=[(1, 5)]) as other:
            await other.until_heard(ev.CacheKeyframe)
            served.link.step(3)
            await lives.until_heard(ev.RequestFinished)
            assert not other.of(ev.ReplyKept)


async def test_another_user_gets_nothing_of_what_was_left():
    async with serving() as served:
        async with Terminal(served) as gone:
            gone.send(ask(1, 1, "tell A", chat_id=5))
            await until(lambda: served.link.rig.loop.may_step)
        for key in ("somebody else", ""):
            async with Terminal(served, key=key, chats=[(1, 5)]) as other:
                await other.until_heard(ev.CacheKeyframe)
                assert not other.of(ev.ReplyKept)


async def test_a_connection_that_is_lost_is_made_again_and_nothing_is_lost_or_said_twice():
    async with serving() as served, Terminal(served) as one:
        await one.until_heard(ev.CacheKeyframe)
        one.send(ask(1, 1, "tell A", chat_id=9, max_tokens=10))
        await until(lambda: served.link.rig.loop.may_step)
        served.link.step(3)
        await one.until(lambda: one.text(1) == "AAA")
        one.link._connection.transport.abort()
        one.send(ask(2, 2, "tell B", chat_id=10, max_tokens=4))
        lost = await one.until_heard(ev.Attachment, 2)
        assert lost.lost
        back = await one.until_heard(ev.Attachment, 3)
        assert not back.lost
        await until(lambda: len(served.link.rig.core.sequences) == 2)
        served.link.step(10)
        await one.until_heard(ev.RequestFinished, 2)
        told = one.heard[one.heard.index(lost) :]
        assert "".join(d.text for d in told if isinstance(d, ev.TextDelta) and d.request_id == 1) == "A" * 10
        assert one.text(2) == "BBBB"
        assert not one.of(ev.EngineDied)


async def test_a_server_that_was_started_anew_is_asked_again_what_it_had_not_begun():
    async with serving() as first:
        terminal = Terminal(first)
        async with terminal:
            await terminal.until_heard(ev.CacheKeyframe)
            first.server.should_exit = True
            await terminal.until(lambda: terminal.of(ev.Attachment)[-1].lost)
            terminal.send(ask(1, 1, "tell A", chat_id=9, max_tokens=2))
            async with serving(port=first.port) as second:
                await until(lambda: second.link.rig.loop.may_step)
                second.link.step(2)
                await terminal.until_heard(ev.RequestFinished)
                assert terminal.text(1) == "AA"
                (died,) = terminal.of(ev.EngineDied)
                assert died.restarting


async def test_who_leaves_and_says_so_has_its_chats_closed():
    async with serving() as served:
        async with Terminal(served) as one:
            one.send(ask(1, 1, "tell A", chat_id=5, max_tokens=3))
            await until(lambda: served.link.rig.loop.may_step)
            one.link.closes_chats = True
        await until(lambda: not len(served.attach.seats))
        assert not served.link.rig.core.sequences


async def test_nothing_is_kept_where_that_is_not_wanted():
    async with serving(keep_seconds=0) as served:
        async with Terminal(served) as one:
            one.send(ask(1, 1, "tell A", chat_id=5, max_tokens=3))
            await until(lambda: served.link.rig.loop.may_step)
            await one.kill()
        await until(lambda: not len(served.attach.seats))
        assert not served.link.rig.core.sequences


async def test_an_onlooker_sees_the_cache_and_changes_nothing():
    async with serving() as served, Terminal(served) as one, Terminal(served, role="onlooker") as looks:
        await looks.until_heard(ev.CacheKeyframe)
        one.send(ask(1, 1, "tell A", max_tokens=3))
        await until(lambda: served.link.rig.loop.may_step)
        served.link.step(3)
        await looks.until_heard(ev.Steps)
        looks.send(Pause(), ask(1, 1, "me too"))
        refused = await looks.until_heard(ev.RequestFailed)
        assert refused.message == "This terminal only looks on."
        assert looks.of(ev.EngineNotice)[0].message == "This terminal only looks on."
        assert not served.link.hub.run_state.paused


async def test_a_pause_is_told_to_all_and_lifted_when_nobody_is_left_to_do_it():
    async with serving() as served:
        async with Terminal(served) as one, Terminal(served) as other:
            await other.until_heard(ev.CacheKeyframe)
            await one.until_heard(ev.CacheKeyframe)
            one.send(Pause())
            await until(lambda: served.link.rig.loop._paused)
            served.link.pump()
            await other.until(lambda: other.of(ev.RunState)[-1].paused)
            assert other.of(ev.EngineNotice)[0].message == "Another terminal has paused the engine."
            assert not one.of(ev.EngineNotice)
        await until(lambda: not served.link.rig.loop._paused)


# --- foreigners -------------------------------------------------------------------------------------


async def test_a_wrong_key_is_told_and_a_right_one_enters():
    async with serving(api_keys=["secret"]) as served:
        for key, wanted in (("", "an API key"), ("wrong", "another API key")):
            async with Terminal(served, api_key=key) as one:
                failed = await one.until_heard(ev.EngineFailed)
                assert failed.message == f"The server at 127.0.0.1:{served.port} wants {wanted}."
                assert failed.hint == "Put it into the variable PAGEDCHAT_API_KEY."
                one.send(ask(1, 1, "tell A"))
                assert (await one.until_heard(ev.RequestFailed)).hint == "/restart tries again."
        async with Terminal(served, api_key="secret") as one:
            await one.until_heard(ev.EngineReady)


async def test_nobody_there_is_told():
    async with serving() as served:
        pass
    async with Terminal(served) as one:
        failed = await one.until_heard(ev.EngineFailed)
        assert failed.message.startswith(f"Nothing answers at 127.0.0.1:{served.port} (")
        assert failed.hint == "Start it with: pagedchat serve"


async def test_a_browser_is_turned_away():
    async with serving() as served:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(served.address.websocket, origin="http://evil.example", proxy=None):
                pass
        assert refused.value.response.status_code == 403


async def answers(served, *messages):
    """What a foreign client is told, until the server ends the connection."""
    reader, heard = server_reader(), []
    async with asyncio.timeout(PATIENCE), connect(served.address.websocket, proxy=None) as foreign:
        for message in messages:
            await foreign.send(message)
        with suppress(ConnectionClosedError):  # with the code for messages that are not understood
            async for data in foreign:
                heard += reader.feed(data)
    return heard


def packed(message) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack("<I", len(body)) + body


def framed(message) -> bytes:
    return bytes(FrameWriter().frame(message))


async def test_another_version_is_told_which_this_is():
    async with serving() as served:
        (refused,) = await answers(served, framed(Hello(PROTOCOL + 1)))
        assert isinstance(refused, Refused)
        assert f"the terminal speaks protocol {PROTOCOL + 1}" in refused.message
        assert refused.hint == "Both must be of the same version."


HELLO = framed(Hello(PROTOCOL))
GARBAGE = {
    "a text": [HELLO, "hello"],
    "text first": ["GET / HTTP/1.1"],
    "no msgpack": [HELLO, struct.pack("<I", 4) + b"\xc1\xc1\xc1\xc1"],
    "another struct": [struct.pack("<I", 1) + b"\x90"],
    "a huge frame": [HELLO, struct.pack("<I", MAX_TOLD + 1)],
    "a huge hello": [struct.pack("<I", 1 << 20)],
    "an unknown command": [HELLO, packed(["Told", 1, ["Configure", {}]])],
    "no command": [HELLO, packed(["Told", 1])],
    "a shutdown in a hello's place": [framed(Told(1, Pause()))],
    "no steps": [HELLO, framed(Told(1, StepOnce(-5)))],
    "no pace": [HELLO, framed(Told(1, SetPace(float("nan"))))],
    "bad sampling": [HELLO, packed(["Told", 1, ["Generate", 1, 1, [["user", "x"]], {"temperature": -5}]])],
    "chats twice": [framed(Hello(PROTOCOL, chats=[(1, 2), (1, 3)]))],
    "chats nowhere": [framed(Hello(PROTOCOL, chats=[(-1, 2)]))],
}


@pytest.mark.parametrize("messages", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_own_connection_with_a_sentence(messages):
    async with serving() as served, Terminal(served) as other:
        *_, last = await answers(served, *messages)
        assert isinstance(last, Refused)
        assert last.message.endswith(".") or ":" in last.message
        other.send(ask(1, 1, "tell A", max_tokens=1))
        await until(lambda: served.link.rig.loop.may_step)
        served.link.step()
        await other.until_heard(ev.RequestFinished)


async def test_numbers_out_of_range_are_refused_and_the_connection_stays():
    async with serving() as served, Terminal(served) as one:
        one.send(ask(0, 1, "x"), ask(1 << 40, 2, "x"), ask(1, 3, "tell A", max_tokens=1))
        await until(lambda: served.link.rig.loop.may_step)
        served.link.step()
        await one.until_heard(ev.RequestFinished)
        assert [failed.request_id for failed in one.of(ev.RequestFailed)] == [1, 2]


async def test_one_that_does_not_read_holds_nobody_and_gets_a_keyframe_when_it_does():
    async with serving() as served, Terminal(served) as quick:
        slow = served.link.hub.client("terminal", max_waiting=50)
        quick.send(ask(1, 1, "tell A", max_tokens=200))
        await until(lambda: served.link.rig.loop.may_step)
        served.link.step(200)
        await quick.until_heard(ev.RequestFinished)
        assert len(slow.queue) < 60
        events = slow.queue.take()
        assert isinstance(events[-1], ev.CacheKeyframe)
        assert not any(isinstance(event, ev.Steps) for event in events)


def test_welcome_can_be_read_by_any_version():
    encoded = msgspec.msgpack.encode(["Welcome", 99, "9.9", "", False, 0, "more", "to come"])
    assert msgspec.msgpack.decode(encoded, type=Welcome).version == 99
