"""The engine as one side of `python -m tools.beside_llama`: it reads "chats prompt new" and answers milliseconds.

Knows nothing of what it is compared with.
"""

import random
import sys
import time
from statistics import median

from pagedchat.api.engine import LLMEngine
from pagedchat.config import CacheConfig, DType, EngineConfig, ModelConfig, QuantizationName
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.garbage import rare_collections
from pagedchat.requests.prompts import TokensPrompt


def main(folder: str, dtype: DType, quantization: QuantizationName) -> None:
    """Load and answer until there are no more lines.

    Args:
        folder: of the checkpoint.
        dtype, quantization: as `ModelConfig` takes them.
    """
    model = ModelConfig(
        model=folder, device="cpu", dtype=dtype, quantization=quantization, skip_tokenizer_init=True
    )
    # As by llama.cpp nothing is kept of prompts that are over: memory would tell how many rounds there were.
    cache = CacheConfig(enable_prefix_caching=False)
    engine = LLMEngine(EngineConfig(model=model, cache=cache), streams=False)
    source = random.Random(1)  # noqa: S311 - to be repeated
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        num_chats, length, num_new = map(int, line.split())
        params = SamplingParams(temperature=0, max_tokens=num_new, ignore_eos=True)
        for number in range(num_chats):
            ids = source.choices(range(engine.info.vocab_size), k=length)
            engine.add_request(str(number), TokensPrompt(prompt_token_ids=ids), params)
        steps = _steps(engine)
        prompts, decodes = steps[: len(steps) - num_new + 1], steps[len(steps) - num_new + 1 :]
        sys.stdout.write(f"{sum(prompts):.3f} {median(decodes) if decodes else 0.0:.3f}\n")
        sys.stdout.flush()


def _steps(engine: LLMEngine) -> list[float]:
    """Milliseconds of each, until all requests are answered."""
    milliseconds = []
    with rare_collections():
        while engine.has_unfinished_requests():
            started = time.perf_counter()
            engine.step()
            milliseconds.append(1e3 * (time.perf_counter() - started))
    return milliseconds


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])  # type: ignore[arg-type]  # the config checks them
