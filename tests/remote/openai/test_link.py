"""A server as an engine link: prompts and replies, forks and stops, and everything that a server can do wrong."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import (
    EngineFailed,
    EngineNotice,
    EngineReady,
    RequestFailed,
    RequestFinished,
    RequestStarted,
    RequestWaits,
    ServerModels,
    TextDelta,
)
from pagedchat.remote.openai import asking, http, link
from pagedchat.remote.openai.address import ServerAddress, server_address
from pagedchat.remote.openai.link import OpenAILink
from pagedchat.service.commands import Close, Focus, Fork, Generate, Pause, Stop
from tests.misbehaving_server import MisbehavingServer, chunk, send, send_error, send_json, start_stream, stream
from tests.remote.openai.link_rig import Heard, connected

OPENAI = [{"id": "org/tiny", "owned_by": "system"}]


# --- connecting ---------------------------------------------------------------------------------------


async def test_a_server_says_what_it_is():
    async with connected() as (server, heard):
        ready = heard.all[-1]
        assert (ready.model, ready.max_model_len, ready.num_blocks) == ("org/tiny", 4096, 0)
        assert (ready.server.kind, ready.server.url, ready.server.continues) == ("vLLM", server.url, True)


async def test_several_models_are_offered_and_prompts_wait_for_the_choice():
    models = [{"id": name, "owned_by": "library"} for name in ("a/one", "b/two")]
    async with connected(ready=False, models=models) as (server, heard):
        offered = await heard.until(ServerModels)
        assert offered.names == ["a/one", "b/two"]
        heard.link.send(Generate(1, 1, [Turn("user", "Hi")], SamplingOverrides()))
        await heard.link.switch("b/two")
        text, _ = await heard.end(1)
        assert (text, server.asked[0].body["model"]) == ("You said: Hi", "b/two")
        beside = heard.link.beside("a/one")
        assert beside.address.model == "a/one"
        await beside.close()


async def test_a_model_that_is_not_there_is_one_sentence_with_the_nearest():
    async with connected(ready=False, address="#org/tny") as (_, heard):
        failed = await heard.until(EngineFailed)
        assert "has no model called 'org/tny'" in failed.message
        assert "Did you mean 'org/tiny'?" in failed.hint


@pytest.mark.parametrize(
    ("models", "said"),
    [([], "lists no model"), ("garbage", "sent what is no reply (no list of models)"), (None, "no list of models")],
)
async def test_a_list_that_is_none_is_said(models, said):
    async with connected(ready=False, models=models) as (_, heard):
        assert said in (await heard.until(EngineFailed)).message


async def test_a_server_without_a_list_is_asked_for_the_model_that_is_named():
    async with MisbehavingServer(list_models=False) as server:
        there = OpenAILink(server_address(f"{server.url}#org/mine", {}))
        heard = Heard(there)
        await there.start()
        assert (await heard.until(EngineReady)).model == "org/mine"
        assert (await heard.reply("Hi"))[0] == "You said: Hi"
        await there.close()


async def test_a_server_that_is_away_is_asked_again_with_the_next_prompt():
    async with MisbehavingServer() as server:
        port = server.port
    there = OpenAILink(server_address(f"127.0.0.1:{port}", {}))
    heard = Heard(there)
    await there.start()
    failed = await heard.until(EngineFailed)
    assert f"127.0.0.1:{port} cannot be reached: nobody answers there." in failed.message
    assert "does it run?" in failed.hint
    text, ended = await heard.reply("Hi", 1)
    assert (text, type(ended)) == ("", RequestFailed)
    async with MisbehavingServer(port=port):
        text, ended = await heard.reply("Hi", 2)
        assert (text, type(ended)) == ("You said: Hi", RequestFinished)
        await there.close()


async def test_a_key_goes_with_every_request_and_is_never_told(monkeypatch):
    monkeypatch.setenv("LAB_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody-else")
    async with connected(environ_key="LAB_KEY", key="sk-very-secret") as (server, heard):
        await heard.reply("Hi")
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer sk-very-secret"}
        assert not [name for request in server.requests for name in request.headers if "organization" in name]
        assert "secret" not in repr(heard.all)


async def test_a_wrong_key_and_none_say_what_to_do_without_the_key(monkeypatch):
    monkeypatch.setenv("LAB_KEY", "sk-wrong-one")
    async with connected(ready=False, environ_key="LAB_KEY", key="other") as (_, heard):
        failed = await heard.until(EngineFailed)
        assert "does not take the key (401: Incorrect API key provided: Bearer …)" in failed.message
        assert failed.hint == "It was sent what LAB_KEY has."
    async with connected(ready=False, key="other") as (server, heard):
        failed = await heard.until(EngineFailed)
        assert "--api-key-env" in failed.hint
        assert server.requests[0].headers["authorization"] == f"Bearer {http.NO_KEY}"
    async with connected(ready=False, environ_key="NO_SUCH_KEY") as (_, heard):
        assert "NO_SUCH_KEY, and that variable has nothing" in (await heard.until(EngineFailed)).message


async def test_without_the_package_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    async with connected(ready=False) as (_, heard):
        failed = await heard.until(EngineFailed)
        assert (failed.message, failed.hint) == (
            "Panes on other servers need the openai package.", "pip install 'pagedchat[remote]' has it.",
        )  # fmt: skip


# --- replies ------------------------------------------------------------------------------------------


async def test_a_reply_comes_with_its_figures():
    async with connected() as (server, heard):
        text, ended = await heard.reply("hello", temperature=0.5, top_k=3)
        assert text == "You said: hello"
        assert (ended.reason, ended.num_tokens) == ("stop", 3)
        assert ended.num_cached_tokens == ended.num_prompt_tokens // 2 > 0
        assert (server.asked[0].body["temperature"], server.asked[0].body["top_k"]) == (0.5, 3)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=20), max_size=12), st.booleans())
def test_the_chats_text_is_what_was_sent(pieces, raw):
    async def ask():
        async def answer(writer, request):
            await stream(writer, request, pieces)

        async with connected(answer=answer) as (_, heard):
            return await heard.reply("Go", raw=raw)

    text, ended = asyncio.run(ask())
    assert text == "".join(pieces)
    assert ended.reason == "stop"


async def test_a_server_that_does_not_know_of_usage_is_asked_without():
    async def answer(writer, request):
        if "stream_options" in request.body:
            await send_error(writer, 400, "Unrecognized field: stream_options", param="stream_options")
        else:
            await stream(writer, request, ["Fine."])

    async with connected(answer=answer) as (_, heard):
        assert (await heard.reply("Hi"))[0] == "Fine."


async def test_what_a_server_is_not_known_to_take_is_told_once():
    async with connected(models=OPENAI) as (server, heard):
        await heard.reply("one", 1, top_k=3, min_p=0.1)
        await heard.reply("two", 2, top_k=3)
        notices = [event.message for event in heard.all if isinstance(event, EngineNotice)]
        assert len(notices) == 1
        assert notices[0].startswith("top_k, min_p are not sent: 127.0.0.1:")
        assert "top_k" not in server.asked[0].body


async def test_a_reply_is_gone_on_with():
    async with connected() as (server, heard):
        turns = [Turn("user", "Hi"), Turn("assistant", "Begun ")]
        text, _ = await heard.reply("", turns=turns)
        assert text == "and on it goes."
        assert server.asked[0].body["messages"][-1] == {"role": "assistant", "content": "Begun "}
    async with connected(models=OPENAI) as (server, heard):
        _, ended = await heard.reply("", turns=turns)
        assert "is not known to go on in the middle of a reply" in ended.message
        assert server.asked == []


async def test_a_stream_that_tells_its_end_only_by_its_last_line_is_whole():
    async def answer(writer, request):
        await start_stream(writer)
        said = json.dumps({"choices": [{"delta": {"content": "data: [DONE] is no end."}, "finish_reason": None}]})
        await chunk(writer, f"data: {said}\n\n".encode())
        if request.prompt == "whole":
            await chunk(writer, b"data: [DO")
            await chunk(writer, b"NE]\n\n")
        await chunk(writer, b"")

    async with connected(answer=answer) as (_, heard):
        text, ended = await heard.reply("whole")
        assert (text, ended.reason) == ("data: [DONE] is no end.", "stop")
        assert type((await heard.reply("cut off", 2))[1]) is RequestFailed


async def test_a_router_that_does_not_tell_is_told_what_runs_behind_it():
    async with MisbehavingServer(models=OPENAI) as server:
        there = OpenAILink(ServerAddress("lab", server.url, kind="vllm"))
        heard = Heard(there)
        await there.start()
        ready = await heard.until(EngineReady)
        assert (ready.server.kind, ready.server.continues) == ("vLLM", True)
        await there.close()


# --- what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "text", "said"),
    [
        ("cut", "This reply is cut ", "ended the stream in the middle of the reply."),
        ("huge", "", "sent a line of more than 1 MiB."),
        ("garbage", "", "sent what is no reply (Expecting property name"),
        ("400", "", "does not take temperature (400: temperature must be at most 2)."),
        ("500", "", "failed (500: try later)."),
    ],
)
async def test_trouble_is_one_sentence_and_the_text_stays(prompt, text, said):
    async with connected() as (_, heard):
        found, ended = await heard.reply(prompt)
        assert found == text
        assert said in ended.message
        assert ("/continue goes on from here" in ended.hint) is bool(text)
        assert (await heard.reply("again", 2))[0] == "You said: again"


async def test_a_busy_server_is_asked_again_and_says_so_meanwhile():
    tries = []

    async def answer(writer, request):
        tries.append(request)
        if len(tries) < 3:
            await send_error(writer, 429, "slow down", headers={"Retry-After": "0"})
        else:
            await stream(writer, request, ["Now."])

    async with connected(answer=answer) as (_, heard):
        assert (await heard.reply("Hi"))[0] == "Now."
        waits = [event.message for event in heard.all if isinstance(event, RequestWaits)]
        assert len(waits) == 2
        assert "is busy (429: slow down); asked again in 0 s" in waits[0]


async def test_a_busy_server_is_not_asked_for_ever():
    async def answer(writer, request):
        await send_error(writer, 503, "full", headers={"Retry-After": "4000"})

    async with connected(answer=answer) as (server, heard):
        _, ended = await heard.reply("Hi")
        assert "is busy (503: full)" in ended.message
        assert len(server.asked) == 1
    async with connected() as (server, heard):
        _, ended = await heard.reply("429")
        assert "is busy (429: try later)" in ended.message
        assert len(server.asked) == 1 + len(asking.PAUSES)


async def test_silence_is_told_while_it_lasts_and_ends(monkeypatch):
    monkeypatch.setattr(link, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(asking, "QUIET_SECONDS", 0.0)
    async with MisbehavingServer() as server:
        address = server_address(server.url, {})
        there = OpenAILink(ServerAddress(address.name, address.url, timeout=0.3))
        heard = Heard(there)
        await there.start()
        await heard.until(EngineReady)
        text, ended = await heard.reply("stall")
        assert text == "One word, then "
        assert "was silent for 0 s." in ended.message
        assert any(isinstance(event, RequestWaits) and "waits for more" in event.message for event in heard.all)
        _, ended = await heard.reply("wait", 2)
        assert "was silent" in ended.message
        assert any(
            isinstance(event, RequestWaits) and "waits for an answer" in event.message for event in heard.all
        )
        await there.close()


async def test_an_endless_reply_ends(monkeypatch):
    monkeypatch.setattr(http, "MOST_STREAM", 1 << 16)

    async def answer(writer, request):
        await start_stream(writer)
        while not writer.is_closing():
            await chunk(writer, b'data: {"choices": [{"delta": {"content": "more "}}]}\n\n' * 100)

    async with connected(answer=answer) as (_, heard):
        text, ended = await heard.reply("Hi")
        assert "sent more than 64 KiB" in ended.message
        assert text.startswith("more more")


async def test_an_answer_that_is_too_long_or_compressed_is_not_read(monkeypatch):
    monkeypatch.setattr(http, "MOST_ANSWER", 1 << 10)

    async def answer(writer, request):
        if request.prompt == "zip":
            await send(writer, 200, b"x", "text/event-stream", {"Content-Encoding": "gzip"})
        else:
            await send_json(writer, 400, {"error": "x" * 5000})

    async with connected(answer=answer) as (_, heard):
        assert "a compressed answer, which was not asked for" in (await heard.reply("zip"))[1].message
        assert "sent more than 1 KiB" in (await heard.reply("long", 2))[1].message


async def test_redirects_are_not_followed_with_the_key(monkeypatch):
    monkeypatch.setenv("LAB_KEY", "sk-very-secret")
    async with MisbehavingServer() as elsewhere:

        async def answer(writer, request):
            await send(writer, 307, b"", "text/plain", {"Location": f"{elsewhere.url}/chat/completions"})

        async with connected(environ_key="LAB_KEY", key="sk-very-secret", answer=answer) as (_, heard):
            _, ended = await heard.reply("Hi")
            assert f"sends on to {elsewhere.url}/chat/completions, and that is not followed." in ended.message
        assert elsewhere.requests == []


async def test_an_error_in_the_stream_is_told():
    async def answer(writer, request):
        await start_stream(writer)
        await chunk(writer, b'data: {"choices": [{"delta": {"content": "So far"}}]}\n\n')
        await chunk(writer, b'data: {"error": {"message": "engine \\u001b[31mdied"}}\n\n')

    async with connected(answer=answer) as (_, heard):
        text, ended = await heard.reply("Hi")
        assert (text, "ended the reply with an error: engine died." in ended.message) == ("So far", True)


# --- stopping, forking, closing -----------------------------------------------------------------------


async def test_a_reply_that_is_stopped_keeps_its_text_and_its_connection_goes():
    async with connected(metrics=None) as (_, heard):
        heard.link.send(Generate(1, 1, [Turn("user", "stall")], SamplingOverrides()))
        while heard.text(1) != "One word, then ":
            await heard.until(TextDelta)
        heard.link.send(Focus(1))
        heard.link.send(Stop(1))
        text, ended = await heard.end(1)
        assert (text, ended.reason) == ("One word, then ", "abort")
        assert (await heard.reply("on", 2))[0] == "You said: on"


async def test_a_fork_in_the_middle_of_a_reply_goes_on_from_there():
    async with connected() as (server, heard):
        heard.link.send(Generate(1, 1, [Turn("user", "stall")], SamplingOverrides()))
        while heard.text(1) != "One word, then ":
            await heard.until(TextDelta)
        heard.link.send(Fork(1, 2, 7))
        text, _ = await heard.end(7)
        assert text == "One word, then and on it goes."
        assert server.asked[1].body["messages"][-1]["content"] == "One word, then "
        server.go_on.set()
        assert (await heard.end(1))[0] == "One word, then nothing for long."


async def test_a_fork_of_a_reply_that_is_over_hears_its_story_and_one_of_nothing_that_there_is_none():
    async with connected() as (server, heard):
        await heard.reply("hello")
        heard.link.send(Fork(1, 2, 7))
        text, ended = await heard.end(7)
        assert (text, ended.reason, ended.session_id) == ("You said: hello", "stop", 2)
        assert any(isinstance(event, RequestStarted) and event.request_id == 7 for event in heard.all)
        heard.link.send(Fork(9, 3, 8))
        _, ended = await heard.end(8)
        assert (ended.reason, ended.num_tokens, ended.num_prompt_tokens) == ("abort", 0, 0)
        await heard.reply("cut", 4)
        heard.link.send(Fork(1, 3, 9))
        text, ended = await heard.end(9)
        assert (text, type(ended)) == ("This reply is cut ", RequestFailed)
        assert len(server.asked) == 2


async def test_a_chat_that_is_closed_says_nothing_more():
    async with connected() as (_, heard):
        heard.link.send(Generate(1, 1, [Turn("user", "stall")], SamplingOverrides()))
        await heard.until(TextDelta)
        heard.link.send(Close(1))
        assert (await heard.reply("next", 2, 2))[0] == "You said: next"
        assert [e for e in heard.all if isinstance(e, RequestFinished | RequestFailed) and e.request_id == 1] == []


async def test_what_a_server_cannot_do_is_said():
    async with connected() as (_, heard):
        heard.link.send(Pause())
        assert "is a server and knows no Pause." in (await heard.until(EngineNotice)).message


async def test_asking_anew_ends_replies_with_their_text():
    async with connected() as (_, heard):
        heard.link.send(Generate(1, 1, [Turn("user", "stall")], SamplingOverrides()))
        while heard.text(1) != "One word, then ":
            await heard.until(TextDelta)
        await heard.link.restart()
        text, ended = await heard.end(1)
        assert (text, "was made anew" in ended.message) == ("One word, then ", True)
        await heard.until(EngineReady)


# --- figures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [("vllm:num_requests_running 2\n", ""), (None, "It has no /metrics."), ("x", "no figures")],
)
async def test_figures_come_by_themselves_and_what_is_missing_is_said(metrics, problem):
    async with connected(metrics=metrics) as (_, heard):
        await heard.reply("hello")
        await heard.told_figures()
        assert problem in heard.figures[0].problem
        assert heard.figures[0].running == (None if problem else 2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"beam_width": 4}, "is a server and searches no beams."), ({"begun": [5]}, "puts no tokens into a reply.")],
)
async def test_what_only_an_engine_here_does_is_refused(changed, said):
    async with connected() as (server, heard):
        heard.link.send(Generate(1, 7, [Turn("user", "hello")], SamplingOverrides(), **changed))
        _, ended = await heard.end(7)
        assert isinstance(ended, RequestFailed)
        assert said in ended.message
        assert server.asked == []
