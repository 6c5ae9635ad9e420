"""The model of a simulated engine: a symbolic cache that checks every read, and letters made of the prefix."""

from functools import cache

from tokenizers import Tokenizer

from pagedchat.chat.template import ChatTemplate
from pagedchat.engine.limits import EngineLimits
from pagedchat.events import EngineReady
from tests.engine.kv_simulator import KVSimulator, reply_of
from tests.fakes import CHAT_TEMPLATE, EOS, byte_tokenizer
from tests.service.fake_engine import ready_info

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


class LetterModel(KVSimulator):
    """Answers with letters."""

    def choose(self, prefix: int) -> int:
        return choose(prefix)


def expected_ids(prompt: list[int], max_tokens: int) -> list[int]:
    """What the model must answer, however it was scheduled."""
    return reply_of(prompt, choose, max_tokens, {tokenizer().token_to_id(EOS)})


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
