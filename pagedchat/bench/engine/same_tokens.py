"""Whether two roads lead to the same tokens: our modules and those of transformers, a chat alone and among others.

In float32, and drawn from the 20 most likely tokens: there rounding decides a token so seldom that a difference
means a mistake. Among the 50,000 tokens that random weights find about equally likely it often would, and so it
would with weights so large that they magnify every error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.workloads import Prompts, Tokens
from pagedchat.config import Device, ModelImplementation
from pagedchat.engine.sampling_params import SamplingParams

_PROMPT_TOKENS, _NEW_TOKENS = 128, 32
_IMPLEMENTATIONS: tuple[ModelImplementation, ...] = ("native", "transformers")
_NUM_BLOCKS = 1024
"""Room for all chats of a comparison at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTokens:
    """One comparison."""

    what: str
    num_same: int
    num_replies: int
    num_different: int
    """Distinct tokens in all replies: where there are few, equal ones say little."""

    @property
    def all_same(self) -> bool:
        """Whether every reply was the same both ways."""
        return self.num_same == self.num_replies


def compare_implementations(folder: str, device: Device, num_prompts: int = 32) -> SameTokens:
    """Greedy replies of our own modules and of those of transformers, all prompts together.

    Args:
        folder: of a checkpoint that our own modules run.
        device: where.
        num_prompts: how many.

    Raises:
        PagedChatError: what the engine refuses.
    """
    replies: list[Tokens] = []
    for implementation in _IMPLEMENTATIONS:
        llm = _load(folder, device, implementation)
        prompts = Prompts(llm.info.vocab_size, seed=1).many(num_prompts, _PROMPT_TOKENS)
        engine = OurEngine(llm)
        replies.append(_settled(engine, partial(engine.generate, prompts, _NEW_TOKENS)))
        del llm, engine
    return _compare("own modules and those of transformers, greedy", *replies)


def compare_company(folder: str, device: Device, num_chats: int = 64, num_alone: int = 16) -> SameTokens:
    """Replies drawn by chats that run together, and by some of them alone with the same seeds.

    Args:
        folder: of a checkpoint.
        device: where.
        num_chats: that run together.
        num_alone: of these, how many are asked once more, each on its own.

    Raises:
        PagedChatError: what the engine refuses.
    """
    llm = _load(folder, device, "auto")
    prompts = Prompts(llm.info.vocab_size, seed=2).many(num_chats, _PROMPT_TOKENS)
    together = _draw(llm, prompts, range(num_chats))
    chosen = [number * num_chats // num_alone for number in range(num_alone)]
    alone = [_draw(llm, [prompts[seed]], [seed])[0] for seed in chosen]
    what = f"a seed alone and among {num_chats - 1} others, drawn"
    return _compare(what, alone, [together[seed] for seed in chosen])


def _load(folder: str, device: Device, implementation: ModelImplementation) -> LLM:
    return LLM(
        folder,
        device=device,
        dtype="float32",
        model_implementation=implementation,
        num_blocks=_NUM_BLOCKS,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    )


def _draw(llm: LLM, prompts: Tokens, seeds: Sequence[int]) -> Tokens:
    params = [
        SamplingParams(temperature=0.8, top_p=0.95, top_k=20, max_tokens=_NEW_TOKENS, ignore_eos=True, seed=seed)
        for seed in seeds
    ]
    engine = OurEngine(llm)
    return _settled(engine, partial(engine.sample, prompts, params))


def _settled(engine: OurEngine, ask: Callable[[], Tokens]) -> Tokens:
    """The replies of steps that are there once they were lacking, and of no others."""
    ask()
    engine.settle()
    return ask()


def _compare(what: str, one: Tokens, other: Tokens) -> SameTokens:
    return SameTokens(
        what=what,
        num_same=sum(a == b for a, b in zip(one, other, strict=True)),
        num_replies=len(one),
        num_different=len({token for reply in one for token in reply}),
    )
