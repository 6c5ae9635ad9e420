"""Replies as they come, of an engine in a process of its own."""

import asyncio

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM


async def streamed(engine: AsyncLLM, prompt: str, request_id: str) -> int:
    params = SamplingParams(max_tokens=12, seed=4, output_kind=RequestOutputKind.DELTA, ignore_eos=True)
    num_tokens = 0
    async for output in engine.generate(request_id=request_id, prompt=prompt, sampling_params=params):
        for completion in output.outputs:
            print(completion.text, end="", flush=True)
            num_tokens += len(completion.token_ids)
        if output.finished:
            break
    return num_tokens


async def main():
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model="MODEL", enforce_eager=True))
    try:
        counts = await asyncio.gather(*(streamed(engine, f"Wave {i}", f"wave-{i}") for i in range(3)))
        assert counts == [12, 12, 12]
    finally:
        ending = engine.shutdown()
        if ending is not None:  # it is with vLLM
            await ending


if __name__ == "__main__":
    asyncio.run(main())
