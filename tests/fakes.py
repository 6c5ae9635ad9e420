"""Stand-ins for what is slow or random: a model runner without a model, a tokenizer without training, a clock.

Import them as `from tests.fakes import FakeModelRunner`.
"""

import time
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput

BOS, EOS, USER, ASSISTANT = "<s>", "</s>", "<|user|>", "<|assistant|>"
SPECIAL_TOKENS = [BOS, EOS, USER, ASSISTANT]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

NextToken = Callable[[list[int]], int]


def byte_tokenizer(add_bos: bool = False) -> Tokenizer:
    """One token a byte, and four special tokens; ids are the same in every process."""
    special = {token: i for i, token in enumerate(SPECIAL_TOKENS)}
    alphabet = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()), len(special))}
    tokenizer = Tokenizer(models.BPE({**special, **alphabet}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, special[BOS])]
        )
    return tokenizer


def scrambled(token_ids: list[int]) -> int:
    """A small letter, as a token of `byte_tokenizer`, that depends on the whole sequence."""
    state = 0
    for token_id in token_ids:
        state = (state * 31 + token_id + 7) % 1_000_003
    return len(SPECIAL_TOKENS) + ord("a") - ord("!") + state % 26


def reciting(tokenizer: Tokenizer, text: str, after: str = ASSISTANT) -> NextToken:
    """A model that answers everything with `text`: it goes on with whatever comes after the last `after`."""
    reply = tokenizer.encode(text, add_special_tokens=False).ids
    start = tokenizer.token_to_id(after)

    def next_token(token_ids: list[int]) -> int:
        num_said = token_ids[::-1].index(start) if start in token_ids else 0
        return reply[num_said % len(reply)]

    return next_token


class FakeModelRunner:
    """Carries out batches in pure Python: the next token is a function of the tokens before it.

    It keeps a KV cache of plain token ids, written and read through the block tables with all copies and swaps, and
    it is from there that it reads the tokens before: a wrong block gives a wrong text.
    """

    def __init__(self, next_token: NextToken = scrambled, block_size: int = 16, step_seconds: float = 0.0) -> None:
        self.next_token = next_token
        self.block_size = block_size
        self.step_seconds = step_seconds
        self.batches: list[list[tuple[int, int]]] = []
        """Per step: (seq_id, num_tokens) of each part."""
        self.fail_next: Exception | None = None
        """Raised by the next step, after which the runner is of no use: `check` raises it too, once."""
        self._lost: Exception | None = None
        self._device: dict[int, list[int]] = {}
        self._host: dict[int, list[int]] = {}

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        time.sleep(self.step_seconds)
        if self.fail_next is not None:
            self._lost, self.fail_next = self.fail_next, None
            raise self._lost
        for op in batch.block_ops:
            source = self._host if op.kind == "swap_in" else self._device
            target = self._host if op.kind == "swap_out" else self._device
            target[op.dst] = list(source.get(op.src, self._empty()))
        batch.block_ops.clear()
        self.batches.append([(item.sequence.seq_id, item.num_tokens) for item in batch.scheduled])
        for item in batch.scheduled:
            for position in range(item.start, item.start + item.num_tokens):
                self._write(item.sequence.block_table, position, item.sequence.token_ids[position])
        return ModelRunnerOutput([self._sample(item) if item.samples else [] for item in batch.scheduled])

    def check(self) -> None:
        if self._lost is not None:
            error, self._lost = self._lost, None
            raise error

    def _sample(self, item: Any) -> list[int]:
        table, length = item.sequence.block_table, item.start + item.num_tokens
        cached = [token_id for block_id in table for token_id in self._device[block_id]][:length]
        return [self.next_token(cached)]

    def _write(self, block_table: list[int], position: int, token_id: int) -> None:
        block = self._device.setdefault(block_table[position // self.block_size], self._empty())
        block[position % self.block_size] = token_id

    def _empty(self) -> list[int]:
        return [-1] * self.block_size


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
