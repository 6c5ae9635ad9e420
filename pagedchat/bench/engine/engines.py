"""What can be measured: our engine through the call that a Python user makes, and transformers' `generate`."""

import torch

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.measures import Engine
from pagedchat.bench.engine.workloads import Tokens
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.requests.prompts import TokensPrompt

OURS = "pagedchat"


class OurEngine:
    """`LLM.generate` with token ids in and out.

    Args:
        llm: without a tokenizer.
    """

    name = OURS

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def generate(self, prompts: Tokens, new_tokens: int) -> Tokens:
        """See `Engine`."""
        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        return self.sample(prompts, [params] * len(prompts))

    def settle(self) -> None:
        """See `Engine`."""
        self._llm.prepare()

    def sample(self, prompts: Tokens, params: list[SamplingParams]) -> Tokens:
        """The same with parameters for each prompt."""
        outputs = self._llm.generate(
            [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts], params, use_tqdm=False
        )
        return [output.outputs[0].token_ids for output in outputs]


def transformers_engines(folder: str, dtype: str) -> list[Engine]:
    """`generate` with a growing cache, and with a static one, which transformers compiles.

    Args:
        folder: of the checkpoint.
        dtype: of weights and cache.
    """
    from pagedchat.bench.reference import TransformersModel  # noqa: PLC0415 - imports transformers, which takes seconds

    kind = getattr(torch, dtype)
    return [TransformersModel(folder, "cuda", kind), TransformersModel(folder, "cuda", kind, static=True)]
