"""Finished checkpoints judged: loss by source, replies to prompts, replies that end or loop.

Any checkpoint with a chat template can be compared, whatever its tokenizer: losses are also given in bits per byte
of the reply's text. Replies are made by pagedchat's own engine at the sampling that the checkpoint comes with.
"""

import json
import math
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from pagedchat import LLM, SamplingParams
from pagedchat.outputs import RequestOutput
from tools.toy_model.conversations import Conversation, Message, read_jsonl
from tools.toy_model.forms import in_its_place

_BATCH = 48


@dataclass
class Loss:
    """Sums over the replies of one source."""

    nats: float = 0.0
    tokens: int = 0
    content_nats: float = 0.0
    content_bytes: int = 0

    @property
    def per_token(self) -> float:
        """Nats per token of this model's own tokenizer, the end of the turn included."""
        return self.nats / max(1, self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of the replies' text without the end of the turn: the same measure for every tokenizer."""
        return self.content_nats / math.log(2) / max(1, self.content_bytes)


def loss_table(models: Sequence[Path], valid: Path, in_place: bool) -> str:
    """A Markdown table: a row a source, for each model loss, perplexity and bits per byte.

    With `in_place`, chats between people and bookings stand under the system prompts they were trained with.
    """
    rng = random.Random(1)  # noqa: S311 - not for secrets
    conversations = list(read_jsonl(valid))
    if in_place:
        conversations = [in_its_place(conversation, rng) for conversation in conversations]
    by_model = [reply_losses(folder, conversations) for folder in models]
    head = "| source | replies' bytes |" + "".join(
        f" {m.name}: loss | perplexity | bits per byte |" for m in models
    )
    lines = [head, "|" + " --- |" * (2 + 3 * len(models))]
    for source in sorted(by_model[0], key=lambda name: (name == "all", name)):
        cells = [_cells(loss[source]) for loss in by_model]
        lines.append(f"| {source} | {by_model[0][source].content_bytes:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(loss: Loss) -> str:
    return f"{loss.per_token:.3f} | {math.exp(loss.per_token):.1f} | {loss.bits_per_byte:.3f}"


@torch.inference_mode()
def reply_losses(folder: Path, conversations: Iterable[Conversation]) -> dict[str, Loss]:
    """Loss on the assistant's words, in float32, by source and `all`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    longest = int(model.config.max_position_embeddings)
    rows = sorted((_spans(c, tokenizer, longest) for c in conversations), key=lambda row: len(row[1]))
    losses: dict[str, Loss] = defaultdict(Loss)
    for begin in range(0, len(rows), _BATCH):
        batch = rows[begin : begin + _BATCH]
        width = max(len(ids) for _, ids, _ in batch)
        tokens = torch.tensor([ids + [0] * (width - len(ids)) for _, ids, _ in batch])
        logits = model(input_ids=tokens[:, :-1]).logits
        nats = cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        for row, (source, _, spans) in enumerate(batch):
            for name in (source, "all"):
                for first, last, size in spans:
                    said = nats[row, first - 1 : last - 1]
                    losses[name].nats += float(said.sum())
                    losses[name].tokens += last - first
                    losses[name].content_nats += float(said[:-1].sum())
                    losses[name].content_bytes += size
    return dict(losses)


def _spans(
    conversation: Conversation, tokenizer: Any, longest: int
) -> tuple[str, list[int], list[tuple[int, int, int]]]:
    """Token ids, and for each reply where it begins and ends (its end-of-turn token included) and its bytes."""
    messages = _as_dicts(conversation.messages)
    ids: list[int] = []
    spans = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        ids = _prompt_ids(tokenizer, messages[:index])
        content = tokenizer(message["content"], add_special_tokens=False).input_ids
        if len(ids) + len(content) + 1 > longest:
            ids = ids[:longest]
            break
        spans.append((len(ids), len(ids) + len(content) + 1, len(message["content"].encode())))
        ids = [*ids, *content, tokenizer.eos_token_id]
    return conversation.source, ids, spans


def _as_dicts(messages: Iterable[Message]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in messages]


def _prompt_ids(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def replies(models: Sequence[Path], prompts: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Each prompt with the reply of each model, at the checkpoint's own sampling.

    Args:
        models: folders of checkpoints.
        prompts: JSON lines, `{"prompt": str, "system": str?}`.
        seed: the n-th prompt is sampled with seed + n.
    """
    rows = [json.loads(line) for line in prompts.read_text(encoding="utf-8").splitlines()]
    asked = [_asked(row) for row in rows]
    answers = [[_text(output) for output in _generate(folder, asked, 300, seed)] for folder in models]
    for index, row in enumerate(rows):
        yield row | {model.name: answer[index] for model, answer in zip(models, answers, strict=True)}


def _asked(row: dict[str, str]) -> list[Message]:
    question: list[Message] = [("user", row["prompt"])]
    return [("system", row["system"]), *question] if "system" in row else question


def endings(folder: Path, valid: Path, count: int, max_tokens: int) -> dict[str, int | float]:
    """Reply to `count` conversations of the validation set: how many replies ended, how many looped."""
    conversations = list(read_jsonl(valid))
    chosen = random.Random(7).sample(conversations, count)  # noqa: S311 - not for secrets
    asked = [list(c.messages[: [role for role, _ in c.messages].index("assistant")]) for c in chosen]
    outputs = _generate(folder, asked, max_tokens, seed=1)
    ended = [output.outputs[0].finish_reason == "stop" for output in outputs]
    looped = [loops(_text(output)) for output in outputs]
    return {
        "prompts": count,
        "ended": sum(ended),
        "cut_at_max_tokens": count - sum(ended),
        "looped": sum(looped),
        "mean_tokens": round(sum(len(output.outputs[0].token_ids) for output in outputs) / count, 1),
    }


def loops(text: str) -> bool:
    """Whether some run of six words occurs three times, or some run of up to six words three times in a row."""
    words = re.findall(r"\w+", text.lower())
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    for place in range(len(words) - 5):
        run = tuple(words[place : place + 6])
        seen[run] += 1
        if seen[run] >= 3:
            return True
    for size in range(1, 7):
        for place in range(len(words) - 3 * size + 1):
            if words[place : place + size] * 3 == words[place : place + 3 * size]:
                return True
    return False


def _generate(folder: Path, asked: Sequence[Sequence[Message]], max_tokens: int, seed: int) -> list[RequestOutput]:
    llm = LLM(str(folder), kv_cache_memory="1GiB", max_num_seqs=32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [{"prompt_token_ids": _prompt_ids(tokenizer, _as_dicts(messages))} for messages in asked]
    params = [_params(llm.sampling_defaults, max_tokens, seed + index) for index in range(len(prompts))]
    return llm.generate(prompts, params, use_tqdm=False)  # type: ignore[arg-type]


def _params(defaults: SamplingParams, max_tokens: int, seed: int) -> SamplingParams:
    return msgspec.structs.replace(defaults, max_tokens=max_tokens, seed=seed)


def _text(output: RequestOutput) -> str:
    return output.outputs[0].text.strip()
