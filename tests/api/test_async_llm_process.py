"""`AsyncLLM` with real engine processes: the same replies as in this process, and what becomes of one that ends."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pagedchat import LLM, AsyncLLM, RequestOutput, SamplingParams, StructuredOutputsParams
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.errors import EngineDeadError
from pagedchat.resources import resource_dir
from pagedchat.service.client import EngineClient
from tests.service.fake_engine import ENTRY

ROOT = resource_dir("kernels").parent
GREEDY = SamplingParams(temperature=0, max_tokens=5)
ENDLESS = SamplingParams(temperature=0, max_tokens=None)
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False
}  # fmt: skip
PARAMS = [
    SamplingParams(temperature=0, max_tokens=20, logprobs=2, prompt_logprobs=1),
    SamplingParams(n=4, seed=7, max_tokens=20, logprobs=0),
    SamplingParams(seed=3, temperature=1.5, max_tokens=30, stop=[" the", "."], include_stop_str_in_output=True),
    SamplingParams(temperature=0, max_tokens=30, structured_outputs=StructuredOutputsParams(json=SCHEMA)),
]


async def last_of(outputs: AsyncIterator[RequestOutput]) -> RequestOutput:
    return [output async for output in outputs][-1]


def fake(loader: str, log_dir: Path) -> EngineClient:
    config = EngineConfig(model=ModelConfig(model="some/model"))
    return EngineClient(config, log_dir, [*ENTRY, f"tests.service.fake_engine:{loader}"])


def rounded(output: RequestOutput) -> RequestOutput:
    """Without its name, and as the same sums in another company are: numbers to four places, ranks left out."""

    def told(logprobs: Any) -> Any:
        return logprobs and [one and {i: round(each.logprob, 3) for i, each in one.items()} for one in logprobs]

    outputs = [
        msgspec.structs.replace(
            one,
            logprobs=told(one.logprobs),
            cumulative_logprob=one.cumulative_logprob and round(one.cumulative_logprob, 2),
        )
        for one in output.outputs
    ]
    return msgspec.structs.replace(
        output,
        request_id="",
        metrics=None,
        num_cached_tokens=0,
        outputs=outputs,
        prompt_logprobs=told(output.prompt_logprobs),
    )


async def test_replies_are_those_of_the_library() -> None:
    """Of the model in the box, one by one and all together."""
    keywords: dict[str, Any] = {"device": "cpu", "dtype": "float32", "num_blocks": 200, "batch_invariant": True}
    prompt, talk = "The sea is", [{"role": "user", "content": "Hello!"}]
    with LLM(**keywords) as offline:
        wanted = [offline.generate(prompt, params)[0] for params in PARAMS]
        wanted += offline.chat(talk, GREEDY)  # type: ignore[arg-type]
    async with AsyncLLM(**keywords) as llm:
        asked = [llm.generate(prompt, params) for params in PARAMS]
        got = await asyncio.gather(*map(last_of, asked), last_of(llm.chat(talk, GREEDY)))  # type: ignore[arg-type]
        assert llm.info.num_blocks == 200
    assert list(map(rounded, got)) == list(map(rounded, wanted))
    assert msgspec.json.decode(got[3].outputs[0].text).keys() == {"n"}


def test_the_example_of_the_readme_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("### From Python, asynchronously\n")[2]
    [example] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=300
    )
    assert (result.stderr, result.returncode) == ("", 0)
    answers: list[str] = eval(result.stdout)
    assert len(answers) == 2
    assert all(answers)


async def test_a_killed_engine_ends_its_requests_and_the_next_one_answers(tmp_path: Path) -> None:
    client = fake("load_endless", tmp_path)
    async with AsyncLLM(link=client) as llm:
        first, second = llm.generate("Hi", ENDLESS), llm.chat([{"role": "user", "content": "Ho"}], ENDLESS)
        await anext(first)
        await anext(second)
        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for outputs in (first, second):
            with pytest.raises(EngineDeadError, match=r"^The engine process ended \(signal 9\)\. .* started anew"):
                await last_of(outputs)
        assert len((await last_of(llm.generate("Hi", GREEDY))).outputs[0].token_ids) == 5
        assert client.pid != pid
        assert llm.is_running


async def test_a_request_sent_to_an_engine_that_is_gone_already_hears_of_it(tmp_path: Path) -> None:
    client = fake("load_endless", tmp_path)
    async with AsyncLLM(link=client) as llm:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        task = asyncio.create_task(last_of(llm.generate("Hi", GREEDY)))
        await asyncio.sleep(0)
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError):
            await task
        assert await llm.tokenize("a")


async def test_a_crash_is_told_in_the_engines_words(tmp_path: Path) -> None:
    async with AsyncLLM(link=fake("load_crash", tmp_path)) as llm:
        with pytest.raises(EngineDeadError, match=r"^The engine crashed: no memory for 3 GiB\. Ask again\. .*log"):
            await last_of(llm.generate("Hi", GREEDY))


async def test_an_engine_that_cannot_start_says_why_every_time(tmp_path: Path) -> None:
    llm = AsyncLLM(link=fake("load_missing", tmp_path))
    for _ in range(2):
        with pytest.raises(EngineDeadError, match=r"^There is no model 'some/model'\. Check its name\."):
            await llm.start()
    with pytest.raises(EngineDeadError, match="no model"):
        await last_of(llm.generate("Hi"))
    await llm.close()


async def test_what_was_passed_over_while_loading_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncLLM(link=fake("load_noticed", tmp_path)) as llm:
        await llm.tokenize("a")  # said behind it
    assert "top_k is passed over. So is top_p." in caplog.text
