"""Programs on a hub: `AsyncLLM` works on it as on an engine of its own, beside terminals."""

import asyncio

import pytest

from pagedchat import events as ev
from pagedchat.api.async_llm import AsyncLLM
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import EngineDeadError, PagedChatError
from pagedchat.server.hub import EngineHub
from pagedchat.service.commands import AddRequest, Generate, Pause, SetLimit
from tests.api.linked_engine import LinkedEngine

PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


async def text_of(llm: AsyncLLM, prompt: str) -> str:
    async for output in llm.generate(prompt, PARAMS):
        last = output
    return last.outputs[0].text


async def test_two_programs_and_a_terminal_get_each_their_own():
    link = LinkedEngine()
    hub = EngineHub(link)
    one, other = (AsyncLLM(link=hub.client("program", follows_steps=False)) for _ in range(2))
    terminal = hub.client("terminal")
    async with one, other:
        alone = await text_of(one, "the sea")
        assert len(alone) > 0
        terminal.send(Generate(1, 1, [Turn("user", "the sea")], SamplingOverrides(max_tokens=4)))
        texts = await asyncio.gather(*(text_of(llm, "the sea") for llm in (one, other, one, other)))
        assert set(texts) == {alone}
        assert await one.tokenize("ab") == await other.tokenize("ab")
        async for event in terminal.events():
            assert not isinstance(event, ev.RequestOutputs | ev.Tokenized)
            if isinstance(event, ev.RequestFinished):
                break
        await terminal.close()
        assert not hub.numbers.asked
    await hub.close()
    link.assert_at_rest()


async def test_who_leaves_an_iterator_frees_its_blocks_through_the_hub():
    link = LinkedEngine()
    hub = EngineHub(link)
    async with AsyncLLM(link=hub.client("program", follows_steps=False)) as llm:
        async for _ in llm.generate("the sea", SamplingParams(max_tokens=500, ignore_eos=True)):
            break
        await asyncio.sleep(0)
        while link.core.sequences:  # noqa: ASYNC110 - the engine tells no test
            await asyncio.sleep(0)
        assert not hub.numbers.asked
    await hub.close()
    link.assert_at_rest()


async def test_a_program_that_is_closed_leaves_nothing_and_the_engine_goes_on():
    link = LinkedEngine()
    hub = EngineHub(link)
    stays = AsyncLLM(link=hub.client("program", follows_steps=False))
    goes = AsyncLLM(link=hub.client("program", follows_steps=False))
    async with stays:
        await goes.start()
        outputs = goes.generate("the sea", SamplingParams(max_tokens=500, ignore_eos=True))
        await anext(outputs)
        await goes.close()
        with pytest.raises(PagedChatError):
            await anext(outputs)
        assert await text_of(stays, "the sea")
    await hub.close()
    link.assert_at_rest()


async def test_the_engines_end_reaches_every_program():
    link = LinkedEngine()
    hub = EngineHub(link)
    async with AsyncLLM(link=hub.client("program", follows_steps=False)) as llm:
        outputs = llm.generate("the sea", SamplingParams(max_tokens=500, ignore_eos=True))
        await anext(outputs)
        link.say(ev.EngineDied(-9, "what it said last", True, "/where/its/log/is"))
        with pytest.raises(EngineDeadError) as dead:
            [output async for output in outputs]
        assert "signal 9" in dead.value.message
        assert "/where" not in str(dead.value)
    await hub.close()


async def test_each_role_may_do_what_it_is_for():
    link = LinkedEngine()
    hub = EngineHub(link)
    terminal, program, looks = (hub.client(role) for role in ("terminal", "program", "onlooker"))
    terminal.send(AddRequest(1, "the sea", PARAMS))
    program.send(Pause())
    looks.send(SetLimit(1))
    told = [[event for event in client.queue.take() if not isinstance(event, ev.RunState)] for client in
            (terminal, program, looks)]  # fmt: skip
    assert told[0] == [ev.RequestRefused(1, "A terminal asks in chats.", "", "value")]
    assert told[1] == [ev.EngineNotice("Only a terminal changes the engine for everybody.", "", True)]
    assert [event.message for event in told[2]] == ["This terminal only looks on."]
    for client in (terminal, program, looks):
        with pytest.raises(PagedChatError, match="The server decides which model runs"):
            await client.restart()
        with pytest.raises(PagedChatError):
            client.beside("x")
