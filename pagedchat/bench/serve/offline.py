"""The same prompts on an engine in this process: what a server is held against."""

import time

from pagedchat.api.engine import LLMEngine
from pagedchat.bench.serve.streams import Stream
from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams


class Offline:
    """An engine without a server.

    Args:
        config: what it loads.

    Raises:
        PagedChatError: it cannot.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._engine = LLMEngine(config)
        self.vocab_size = self._engine.info.vocab_size

    def run(self, prompts: list[list[int]], new_tokens: int) -> list[Stream]:
        """All prompts together, told step by step."""
        params = _params(new_tokens, RequestOutputKind.DELTA)
        streams = {str(number): Stream() for number in range(len(prompts))}
        started = time.perf_counter()
        for number, prompt in enumerate(prompts):
            self._engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter() - started
            for output in outputs:
                stream = streams[output.request_id]
                stream.num_tokens += len(output.outputs[0].token_ids)
                stream.times.append(now)
        return list(streams.values())

    def seconds(self, prompts: list[list[int]], new_tokens: int) -> float:
        """All prompts together, told once they are answered: as fast as the engine is."""
        params = _params(new_tokens, RequestOutputKind.FINAL_ONLY)
        started = time.perf_counter()
        for number, prompt in enumerate(prompts):
            self._engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            self._engine.step()
        return time.perf_counter() - started

    def settle(self) -> None:
        """Make ready what the streams so far were served without."""
        self._engine.prepare()

    def close(self) -> None:
        """Free everything."""
        self._engine.close()


def _params(new_tokens: int, kind: RequestOutputKind) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, output_kind=kind)
