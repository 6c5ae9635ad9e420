"""Engines of one and of several ranks on a CPU, and what they are asked."""

from pathlib import Path

from pagedchat import LLM, SamplingParams
from pagedchat.outputs import RequestOutput

NUM_TOKENS = 16
SHARED = list(range(40, 60))
PROMPTS = [
    [5, 6, 7],
    [*SHARED, 8],
    [*SHARED, 9, 10, 11],
    [(7 * i) % 90 + 3 for i in range(40)],
    [(11 * i) % 90 + 3 for i in range(27)],
]
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=3)
DRAWN = SamplingParams(
    temperature=1.0, top_p=0.9, seed=4, n=3, max_tokens=NUM_TOKENS, repetition_penalty=1.2, ignore_eos=True
)


def make(folder: Path, size: int, **arguments: object) -> LLM:
    return LLM(
        str(folder), device="cpu", dtype="float32", skip_tokenizer_init=True, tensor_parallel_size=size, **arguments
    )


def ask(llm: LLM, params: SamplingParams = GREEDY) -> list[RequestOutput]:
    return llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)


def tokens(outputs: list[RequestOutput]) -> list[list[list[int]]]:
    return [[list(answer.token_ids) for answer in output.outputs] for output in outputs]


def logprobs(outputs: list[RequestOutput]) -> list[float]:
    """Of all tokens, and of the most likely ones in their place."""
    told = [each for output in outputs for answer in output.outputs for each in answer.logprobs or []]
    return [entry.logprob for of_token in told for entry in of_token.values()]
