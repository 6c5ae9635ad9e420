"""The model of a simulated engine: a symbolic cache that checks every read, and letters made of the prefix, in some
worlds by a product of CPU kernels for all chats of a step at once. In some there are pages of bytes beside the
symbols.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, reduce

import torch
from tokenizers import Tokenizer

from pagedchat.chat.template import ChatTemplate
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.search import BeamSearch, Choice
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import BlockOp, ScheduledSequence
from pagedchat.events import EngineReady
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cpu.kernels import CpuKernels, cpu_kernels
from pagedchat.ops.cpu.linear import FEW_ROWS, CpuLinear
from pagedchat.ops.quantized.quantize import quantize
from tests.engine.groups.beam_model import ChoosingRunner
from tests.engine.kv_simulator import KVSimulator, fingerprint, reply_of
from tests.fakes import CHAT_TEMPLATE, EOS, byte_tokenizer
from tests.ops.cpu.mixture_case import mixed, tables
from tests.ops.experts.mixture_case import make_mixture
from tests.service.fake_engine import ready_info
from tests.simulation.byte_pages import BytePages

_LETTERS = "abcdeé€ "
"""What replies are made of: one, two and three bytes, hence as many tokens."""


@cache
def tokenizer() -> Tokenizer:
    return byte_tokenizer()


@cache
def template() -> ChatTemplate:
    return ChatTemplate(CHAT_TEMPLATE)


@cache
def _alphabet() -> list[int]:
    """Tokens to choose from. Bytes of different characters mix, so some replies are no text at all."""
    ids = tokenizer().encode(_LETTERS, add_special_tokens=False).ids
    plain = tokenizer().encode("abcde ", add_special_tokens=False).ids
    return [*plain * 6, *ids, tokenizer().token_to_id(EOS)]


def choose(state: int) -> int:
    """The token that follows a prefix with this fingerprint."""
    tokens = _alphabet()
    return tokens[(state >> 7) % len(tokens)]


FORMATS = ("float32", "bfloat16", "int8", "int4", "experts")
"""Of the weights that kernels choose by; rows of the last one go through a mixture of experts before."""
_WIDTH = 64


class _Experts:
    """A mixture of experts, in 4 bits."""

    def __init__(self, kernels: CpuKernels) -> None:
        self._kernels = kernels
        self._like = make_mixture(1, num_experts=7, per_token=3, hidden=_WIDTH, width=32)
        self._mixture, _ = tables(kernels, self._like, bits=4)
        self._router = CpuLinear(torch.randn(7, _WIDTH, generator=torch.Generator().manual_seed(6)))

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return mixed(self._kernels, self._mixture, replace(self._like, rows=rows, logits=self._router(rows)))


class KernelLetters:
    """Letters by the largest element of a product, whose rows are made of prefixes. What a row gives follows from
    it alone, bit for bit: whoever asks for one letter gets that which a step with many chats has.

    Args:
        form: in `FORMATS`.
    """

    def __init__(self, form: str) -> None:
        source = torch.Generator().manual_seed(5)
        weight = torch.randn(len(_alphabet()), _WIDTH, generator=source)
        kernels = cpu_kernels()
        self._experts = _Experts(kernels) if form == "experts" and kernels is not None else None
        if form in ("int8", "int4"):
            self._multiply = CpuLinear(quantize(weight, int(form[3]), 32))
        else:
            self._multiply = CpuLinear(weight if form == "experts" else weight.to(getattr(torch, form)))

    def __call__(self, prefixes: list[int]) -> list[int]:
        """A token for each."""
        rows = [
            [((prefix >> place % 57) * (place + 3) & 15) - 7.5 for place in range(_WIDTH)] for prefix in prefixes
        ]
        tokens = _alphabet()
        # More rows than kernels take go to a library, which may add in another order.
        inputs: Iterable[torch.Tensor] = torch.tensor(rows).split(FEW_ROWS)
        if self._experts is not None:
            inputs = map(self._experts, inputs)
        parts = [self._multiply(part) for part in inputs]
        return [tokens[place] for part in parts for place in part.argmax(dim=1).tolist()]


@cache
def kernel_letters(form: str) -> KernelLetters | None:
    """None where this machine has no kernels."""
    return None if cpu_kernels() is None else KernelLetters(form)


def likely(state: int, count: int) -> list[Choice]:
    """The most likely letters after a prefix with this fingerprint, for beams."""
    tokens = sorted(set(_alphabet()))
    weights = {token: 1 + fingerprint(state, token) % 1_000_003 for token in tokens}
    log_of_sum = math.log(sum(weights.values()))
    choices = [(token, math.log(weight) - log_of_sum) for token, weight in weights.items()]
    return sorted(choices, key=lambda choice: -choice[1])[:count]


class LetterModel(ChoosingRunner):
    """Answers with letters, and has beams search for them.

    Args:
        num_blocks, block_size, num_host_blocks: of its cache.
        letters: that choose them; None: symbols do.
        kind: of the pages of bytes that are kept besides; None: there are none.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int,
        letters: KernelLetters | None,
        kind: CacheKind | None,
    ) -> None:
        super().__init__(num_blocks, block_size, num_host_blocks)
        self._letters = letters
        self.chooses_beams = num_blocks > 6
        self._pages = None if kind is None else BytePages(kind, num_blocks, block_size, num_host_blocks)

    def likely(self, prefix: int, count: int) -> list[Choice]:
        return likely(prefix, count)

    def choose_all(self, prefixes: list[int]) -> list[int]:
        if self._letters is None:
            return [choose(prefix) for prefix in prefixes]
        return self._letters(prefixes) if prefixes else []

    def also_move(self, op: BlockOp) -> None:
        if self._pages is not None:
            self._pages.move(op)

    def also_write(self, item: ScheduledSequence, states: list[int]) -> None:
        if self._pages is not None:
            self._pages.write(item.sequence.block_table, item.start, states)

    def also_read(self, item: ScheduledSequence, states: list[int]) -> None:
        if self._pages is not None:
            self._pages.check(item.sequence.block_table, states)


class SmallerModel(KVSimulator):
    """Drafts for the other by symbols, over a cache of its own; it is right but for one prefix in five."""

    def choose(self, prefix: int) -> int:
        return choose(prefix if prefix % 5 else prefix // 5)


def expected_ids(prompt: list[int], max_tokens: int, letters: KernelLetters | None) -> list[int]:
    """What the model must answer, however it was scheduled."""
    one = choose if letters is None else lambda state: letters([state])[0]
    return reply_of(prompt, one, max_tokens, {tokenizer().token_to_id(EOS)})


def expected_search(prompt: list[int], width: int, max_tokens: int) -> list[int]:
    """The likeliest reply that a search must find, however it was scheduled."""
    search = BeamSearch(BeamSearchParams(width, max_tokens), frozenset({tokenizer().token_to_id(EOS)}))
    start = reduce(fingerprint, prompt, 0)
    while not search.is_over:
        states = [reduce(fingerprint, tokens, start) for tokens, _ in search.beams]
        search.advance([likely(state, search.num_choices) for state in states])
    return search.best()[0].token_ids


def expected_text(token_ids: list[int], stops: list[str]) -> str:
    """The text of these tokens up to the first stop string, if there is one in it."""
    text: str = tokenizer().decode(token_ids, skip_special_tokens=True)
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text


def info_of(limits: EngineLimits) -> EngineReady:
    return ready_info(
        max_model_len=limits.model_len,
        block_size=limits.block_size,
        num_blocks=limits.num_blocks,
        num_host_blocks=limits.num_host_blocks,
    )
