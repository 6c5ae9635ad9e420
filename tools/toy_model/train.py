"""The training loop: one model, windows of joined conversations, two phases. Knows no files and no sources.

The first phase learns every token, the last one the assistant's words only. With soft labels (`soft_labels.py`) a
part of the loss is the distance to what larger models expect.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import OPTForCausalLM

from tools.toy_model.bpe import SYSTEM
from tools.toy_model.corpus import Corpus
from tools.toy_model.mixture import Phase, draws
from tools.toy_model.soft_labels import SoftLabels
from tools.toy_model.windows import round_of_windows

Labels = tuple[Tensor, Tensor]
"""Token ids and their probabilities, `[windows, context, k]`."""
Log = Callable[[int, float, float], None]
"""Told of `(step, mean loss since the last call, tokens per second)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to train."""

    steps: int
    windows: int
    """Windows in a step."""
    context: int
    """Tokens in a window."""
    learning_rate: float
    weight_decay: float
    reply_share: float
    """Share of the steps, at the end, that draw by the weights of the phase "reply"."""
    polish: bool = False
    """One phase only, "polish", in place of the two."""
    every_token: bool = False
    """Learn every token in that phase too, not only the assistant's (for teachers)."""
    soft_share: float = 0.0
    """Share of the loss that comes from soft labels."""
    warm_up: int = 200
    log_every: int = 250
    seed: int = 1


def train(
    model: OPTForCausalLM,
    corpus: Corpus,
    settings: Settings,
    soft: SoftLabels | None,
    device: torch.device,
    log: Log,
) -> None:
    """Train `model` in place.

    Args:
        model: with float32 weights; moved to `device`.
        corpus: what to learn.
        settings: how.
        soft: for `settings.soft_share`; parallel to the corpus.
        device: bfloat16 autocast and compiled layers on "cuda", plain float32 elsewhere.
        log: told how it goes, every `log_every` steps and after the last, with the model in evaluation mode.
    """
    torch.manual_seed(settings.seed)
    model.to(device).train()
    loss_of = _loss
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        for layer in model.model.decoder.layers:
            layer.compile()
        loss_of = torch.compile(_loss)
    data = _Data(corpus, soft, device)
    optimizer = _optimizer(model, settings, device)
    total, counted, since, tokens = torch.zeros((), device=device), 0, time.perf_counter(), 0
    for step, (places, phase) in enumerate(_batches(corpus, settings), 1):
        rate = _learning_rate(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        replies_only = phase != "all" and not settings.every_token
        inputs, targets, weights, labels = data.batch(torch.from_numpy(places), replies_only)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            hidden = model.model.decoder(input_ids=inputs, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden)
            loss = loss_of(logits, targets, weights, labels, settings.soft_share)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        counted, tokens = counted + 1, tokens + inputs.numel()
        if step % settings.log_every == 0 or step == settings.steps:
            mean = float(total) / counted
            speed = tokens / (time.perf_counter() - since)
            model.eval()
            log(step, mean, speed)
            model.train()
            total.zero_()
            counted, since, tokens = 0, time.perf_counter(), 0
    model.eval()


class _Data:
    """The corpus on the device, and batches of it."""

    def __init__(self, corpus: Corpus, soft: SoftLabels | None, device: torch.device) -> None:
        self._device = device
        self._tokens = torch.from_numpy(corpus.tokens.astype(np.int32)).to(device)
        self._spoken = torch.from_numpy(corpus.spoken).to(device)
        self._soft = None if soft is None else (soft.ids_on(device), soft.probabilities_on(device))

    def batch(self, places: Tensor, replies_only: bool) -> tuple[Tensor, Tensor, Tensor, Labels | None]:
        """Inputs, targets, weights `[windows, context]`, and soft labels `[windows, context, k]`."""
        places = places.to(self._device, non_blocking=True)
        here, following = places[:, :-1], places[:, 1:]
        inputs = self._tokens[here.clamp(min=0)].masked_fill(here < 0, 0)
        targets = self._tokens[following.clamp(min=0)].long()
        # A target counts where it follows its input in the same conversation.
        weights = (following == here + 1) & (here >= 0)
        if replies_only:
            weights &= self._spoken[following.clamp(min=0)]
        labels = None
        if self._soft is not None:
            ids, probabilities = self._soft
            labels = ids[here.clamp(min=0)].int(), probabilities[here.clamp(min=0)]
        return inputs.int(), targets, weights.float(), labels


def _loss(logits: Tensor, targets: Tensor, weights: Tensor, labels: Labels | None, soft_share: float) -> Tensor:
    """Cross entropy with the text, mixed with cross entropy with the soft labels."""
    log_probabilities = torch.log_softmax(logits.float(), dim=-1)
    loss = -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if labels is not None:
        ids, probabilities = labels
        expected = -(log_probabilities.gather(-1, ids.long()) * probabilities.float()).sum(-1)
        loss = (1 - soft_share) * loss + soft_share * expected
    return (loss * weights).sum() / weights.sum().clamp(min=1)


def _batches(corpus: Corpus, settings: Settings) -> Iterator[tuple[npt.NDArray[np.int32], Phase]]:
    """Round after round of windows; a round belongs to one phase."""
    rng = np.random.default_rng(settings.seed)
    can_join = corpus.tokens[np.minimum(corpus.starts[:-1] + 1, len(corpus.tokens) - 1)] != SYSTEM
    first_steps = round(settings.steps * (1 - settings.reply_share))
    phases: list[tuple[Phase, int]] = [("all", first_steps), ("reply", settings.steps - first_steps)]
    for phase, steps in [("polish", settings.steps)] if settings.polish else phases:
        expected = np.array([draws(source, phase) for source in corpus.sources])  # type: ignore[arg-type]
        done = 0
        while done < steps:
            windows = round_of_windows(corpus, expected, can_join, settings.context + 1, rng)
            while len(windows) < settings.windows:  # a toy corpus gives less than a batch
                windows = np.concatenate([windows, windows])
            for begin in range(0, len(windows) - settings.windows + 1, settings.windows):
                if done == steps:
                    break
                yield windows[begin : begin + settings.windows], phase  # type: ignore[misc]
                done += 1


def _optimizer(model: torch.nn.Module, settings: Settings, device: torch.device) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=device.type == "cuda")


def _learning_rate(step: int, settings: Settings) -> float:
    """Linear warm-up, then a cosine down to zero."""
    warm_up = min(settings.warm_up, settings.steps // 10)
    if step <= warm_up:
        return settings.learning_rate * step / max(1, warm_up)
    done = (step - warm_up) / max(1, settings.steps - warm_up)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
