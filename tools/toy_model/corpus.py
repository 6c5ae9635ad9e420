"""Conversations as one flat array of tokens, with who speaks and where each begins."""

import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from tools.toy_model.bpe import ASSISTANT, BOS, EOS, SYSTEM, USER
from tools.toy_model.conversations import Conversation

ROLE_TOKENS = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
_BATCH = 4_096
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": 64 << 20}]
"""The dictionary holds it all: variations of a conversation lie anywhere in it."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """All conversations, one after another: `<s><|user|>text</s><|assistant|>text</s>`..."""

    tokens: npt.NDArray[np.uint16]
    """`[num_tokens]`"""
    spoken: npt.NDArray[np.bool_]
    """`[num_tokens]`: True for the assistant's words and the `</s>` that ends them."""
    starts: npt.NDArray[np.int64]
    """`[num_conversations + 1]`: where each begins; the last is `num_tokens`."""
    sources: tuple[str, ...]
    """`[num_conversations]`"""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """`[num_conversations]`, in tokens."""
        return np.diff(self.starts)

    def save(self, path: Path) -> None:
        """Write an `.npz` compressed by xz, which `load_corpus` reads."""
        names = sorted(set(self.sources))
        numbers = {name: number for number, name in enumerate(names)}
        file = BytesIO()
        np.savez(
            file,
            tokens=self.tokens,
            spoken=np.packbits(self.spoken),
            lengths=self.lengths.astype(np.uint16),
            names=np.array(names),
            sources=np.array([numbers[source] for source in self.sources], np.uint16),
        )
        path.write_bytes(lzma.compress(file.getvalue(), filters=_FILTERS))


def load_corpus(path: Path) -> Corpus:
    """Read what `Corpus.save` wrote."""
    with np.load(BytesIO(lzma.decompress(path.read_bytes()))) as file:
        tokens, names = file["tokens"], file["names"].tolist()
        starts = np.concatenate([[0], np.cumsum(file["lengths"].astype(np.int64))])
        spoken = np.unpackbits(file["spoken"], count=len(tokens)).astype(np.bool_)
        return Corpus(tokens, spoken, starts, tuple(names[number] for number in file["sources"].tolist()))


def encode(conversations: Sequence[Conversation], tokenizer: Tokenizer, longest: int) -> Corpus:
    """Turn conversations into a corpus; what is longer than `longest` tokens is cut there."""
    tokens: list[npt.NDArray[np.uint16]] = []
    spoken: list[npt.NDArray[np.bool_]] = []
    for begin in range(0, len(conversations), _BATCH):
        batch = conversations[begin : begin + _BATCH]
        texts = [text for conversation in batch for _, text in conversation.messages]
        ids = iter([e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)])
        for conversation in batch:
            row, said = _one(conversation, ids)
            tokens.append(row[:longest])
            spoken.append(said[:longest])
    starts = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum([len(row) for row in tokens], out=starts[1:])
    sources = tuple(conversation.source for conversation in conversations)
    return Corpus(np.concatenate(tokens), np.concatenate(spoken), starts, sources)


def _one(conversation: Conversation, ids) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.bool_]]:  # type: ignore[no-untyped-def]
    row: list[int] = [BOS]
    said = [False]
    for role, _ in conversation.messages:
        text = next(ids)
        row += [ROLE_TOKENS[role], *text, EOS]
        said += [False] + [role == "assistant"] * (len(text) + 1)
    return np.array(row, np.uint16), np.array(said, np.bool_)
