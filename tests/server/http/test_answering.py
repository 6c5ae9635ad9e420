"""An answer on its way: clients that go, too many of them, the server's end, errors in the middle."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from pagedchat.errors import EngineDeadError
from pagedchat.events import EngineDied
from pagedchat.server.admission import Admission
from pagedchat.server.http.answering import GeneratedAnswer, stream
from pagedchat.server.http.errors import Naming
from pagedchat.server.http.streaming import DONE
from tests.server.serving import Call, ServedApp, endless_engine, served_app

STREAM = {"prompt": "a", "max_tokens": 900, "stream": True}


async def begun(server: ServedApp, path: str = "/v1/completions", **body: Any) -> Call:
    """A stream of which something has been told."""
    call = server.begin(path, {**STREAM, **body} if path == "/v1/completions" else body)
    await asyncio.wait_for(call.written.wait(), 5)
    return call


async def until(condition: Callable[[], bool]) -> None:
    """The engine runs meanwhile."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - an engine in this loop says nothing of its pool
            await asyncio.sleep(0)


def blocks(server: ServedApp) -> tuple[int, int]:
    pool = server.link.core.blocks.pool
    return pool.num_in_use, len(server.link.core.sequences)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_gives_its_blocks_back(stream: bool) -> None:
    async with served_app(endless_engine()) as server:
        before = blocks(server)
        call = server.begin("/v1/completions", {**STREAM, "stream": stream, "n": 3})
        await until(lambda: blocks(server)[1] >= 3)
        call.leave()
        await call.over()
        await until(lambda: blocks(server) == before)


async def test_of_many_clients_that_go_away_at_any_time_nothing_is_left() -> None:
    async with served_app(endless_engine()) as server:
        calls = [server.begin("/v1/completions", {**STREAM, "max_tokens": 40 + count}) for count in range(40)]
        for count, call in enumerate(calls):
            if count % 3:
                for _ in range(count % 7):
                    await asyncio.sleep(0)
                call.leave()
        answers = [await call.over() for call in calls]
        assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers[::3])


def answering(
    admission: Admission, name: str, seen: list[str], meanwhile: Callable[[], None] = lambda: None
) -> Coroutine[Any, Any, None]:
    """A stream of one event and its end; `seen` has what is done, in its order."""

    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        yield DONE
        seen.append(f"{name} tidied")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            seen.append(f"{name} {'more' if message['more_body'] else 'end'}")
            if not message["more_body"]:
                meanwhile()

    async def receive() -> Any:
        await asyncio.Event().wait()

    return GeneratedAnswer(admission, 1, stream(frames), Naming((), ""))({"type": "http"}, receive, send)


async def test_last_events_of_all_go_out_before_anything_is_tidied_up() -> None:
    seen: list[str] = []
    admission = Admission(10)
    await asyncio.gather(*(answering(admission, name, seen) for name in "abc"))
    assert seen[:6] == ["a more", "a end", "b more", "b end", "c more", "c end"]
    assert seen[6:] == ["a tidied", "b tidied", "c tidied"]
    assert admission.num_inside == 0


async def test_an_answer_that_is_cut_behind_its_end_has_one_end() -> None:
    seen: list[str] = []
    admission = Admission(10)
    await answering(admission, "a", seen, admission.cut)
    assert seen == ["a more", "a end"]
    assert admission.num_inside == 0


async def test_when_too_many_wait_the_next_one_is_told_to_come_again() -> None:
    async with served_app(endless_engine(), max_num_seqs=1, max_queued=2) as server:
        calls = [await begun(server), await begun(server, n=2)]
        answer = await server.complete()
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.error == {
            "message": "As many requests wait as may wait. Try again in a moment.", "type": "rate_limit_error",
            "param": None, "code": "rate_limit_exceeded",
        }  # fmt: skip
        assert (await server.get("/health")).status == 200
        calls[0].leave()
        await calls[0].over()
        assert (await server.complete()).status == 200
        calls[1].leave()
        await calls[1].over()


async def test_at_the_end_those_that_take_too_long_are_cut_by_an_event() -> None:
    async with served_app(endless_engine()) as server:
        call = await begun(server)
        whole = server.begin("/v1/completions", {**STREAM, "stream": False})
        await until(lambda: blocks(server)[1] >= 2)
        await server.opened.served.admission.close(0)
        answer = await call.over()
        *_, last, nothing = answer.body.split(b"\n\n")
        assert last.startswith(b'data: {"error":{"message":"The server ends, and this reply with it."')
        assert nothing == b""
        assert (await whole.over()).status == 503
        refused = await server.complete()
        assert (refused.status, refused.error["message"]) == (503, "The server is about to end.")
        assert (await server.get("/health")).status == 503


async def test_a_running_request_is_not_cut_while_it_has_time() -> None:
    async with served_app() as server:
        call = await begun(server, max_tokens=20)
        closing = asyncio.ensure_future(server.opened.served.admission.close(60))
        assert (await call.over()).body.endswith(b"data: [DONE]\n\n")
        await closing


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
async def test_the_engines_end_is_an_event_of_the_stream(path: str) -> None:
    body = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"input": "a"}
    async with served_app(endless_engine()) as server:
        call = await begun(server, path, **({} if path == "/v1/completions" else {**body, "stream": True}))
        server.link.say(EngineDied(-9, "", restarting=True))
        answer = await call.over()
        *_, last, _ = answer.body.split(b"\n\n")
        assert last.startswith(
            b'data: {"error":{"message":"The engine process ended (signal 9). Ask again in a moment."'
        ), last


async def test_a_client_that_reads_slowly_holds_up_nobody_and_gets_all_of_it_in_fewer_pieces() -> None:
    async with served_app(endless_engine()) as server:
        whole = (await server.complete(max_tokens=200)).json["choices"][0]["text"]
        call = server.begin("/v1/completions", {**STREAM, "prompt": "ab", "max_tokens": 200, "temperature": 0})
        call.may_write.clear()
        await until(lambda: blocks(server)[1] == 1)
        await until(lambda: blocks(server)[1] == 0)  # the engine is done with it
        assert (await server.complete()).status == 200
        call.may_write.set()
        events = (await call.over()).events
        assert "".join(event["choices"][0]["text"] for event in events) == whole
        assert len(events) < 10


async def test_a_client_that_goes_while_it_still_sends_is_let_go() -> None:
    async with served_app() as server:
        call = server.begin("/v1/completions", b'{"prompt":', is_whole=False)
        await asyncio.sleep(0)
        call.leave()
        await call.over()


async def test_an_error_before_the_first_token_is_a_status() -> None:
    async with served_app() as server:
        answer = await server.complete(stream=True, prompt="a" * 1001)
        assert answer.status == 400
        assert answer.error["code"] == "context_length_exceeded"


async def test_what_nobody_foresaw_is_told_without_its_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_app() as server:
        monkeypatch.setattr(server.opened.llm, "generate", lambda *_: 1 / 0)
        answer = await server.complete()
        assert answer.status == 500
        assert answer.error["message"] == "This request met an error of pagedchat's own; the server's log has it."
        assert "ZeroDivisionError" in caplog.text


async def test_an_engine_that_is_gone_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise EngineDeadError("The engine process ended.", "Ask again.")

    async with served_app() as server:
        monkeypatch.setattr(server.opened.llm, "generate", gone)
        answer = await server.complete()
        assert (answer.status, answer.error["code"]) == (503, "engine_not_ready")
