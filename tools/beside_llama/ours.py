"""The engine as one side of `python -m tools.beside_llama`: it reads "chats prompt new" and answers milliseconds.

Knows nothing of what it is compared with.
"""

import random
import sys
import time
from statistics import median

from pagedchat import LLM, SamplingParams
from pagedchat.api.prompts import TokensPrompt
from pagedchat.engine.core import EngineCore


def main(folder: str, dtype: str, quantization: str) -> None:
    """Load and answer until there are no more lines.

    Args:
        folder: of the checkpoint.
        dtype: as `LLM` takes it.
        quantization: as `LLM` takes it.
    """
    llm = LLM(
        folder, device="cpu", dtype=dtype, quantization=quantization,  # type: ignore[arg-type]
        skip_tokenizer_init=True,
    )  # fmt: skip
    steps = _timed_steps()
    source = random.Random(1)  # noqa: S311 - to be repeated
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        num_chats, length, num_new = map(int, line.split())
        prompts = [
            TokensPrompt(prompt_token_ids=source.choices(range(llm.info.vocab_size), k=length))
            for _ in range(num_chats)
        ]
        steps.clear()
        llm.generate(prompts, SamplingParams(temperature=0, max_tokens=num_new, ignore_eos=True), use_tqdm=False)
        prefill, decodes = steps[: len(steps) - num_new + 1], steps[len(steps) - num_new + 1 :]
        sys.stdout.write(f"{sum(prefill):.3f} {median(decodes) if decodes else 0.0:.3f}\n")
        sys.stdout.flush()


def _timed_steps() -> list[float]:
    """Milliseconds of every step of any engine from now on, the latest last."""
    step, milliseconds = EngineCore.step, list[float]()

    def timed(core: EngineCore) -> object:
        started = time.perf_counter()
        report = step(core)
        milliseconds.append(1e3 * (time.perf_counter() - started))
        return report

    EngineCore.step = timed  # type: ignore[assignment, method-assign]
    return milliseconds


if __name__ == "__main__":
    main(*sys.argv[1:])
