"""The training loop: one model, windows of joined conversations, two phases. Knows no files and no sources.

The first phase learns every token, the last one the assistant's words only. With soft labels (`soft_labels.py`) a
part of the loss is the distance to what larger models expect.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import OPTForCausalLM

from tools.toy_model.bpe import SYSTEM
from tools.toy_model.corpus import Corpus
from tools.toy_model.mixture import Phase, draws, goes_on, is_own
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
    own_soft_share: float | None = None
    """The same for our own texts and drills; None is the same share."""
    seconds: float | None = None
    """End after so many seconds, loading onto the device and compiling included, in place of `steps`."""
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
    schedule, step = Schedule(settings), 0
    torch.manual_seed(settings.seed)
    model.to(device).train()
    loss_of = _loss
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        for layer in model.model.decoder.layers:
            layer.compile()
        loss_of = torch.compile(_loss)
    data = _Data(corpus, soft, settings, device)
    optimizer = _optimizer(model, settings, device)
    total, counted, since, tokens = torch.zeros((), device=device), 0, time.perf_counter(), 0
    for step, (places, phase) in enumerate(_batches(corpus, settings, schedule), 1):
        rate = schedule.learning_rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        replies_only = phase != "all" and not settings.every_token
        inputs, targets, weights, labels, shares = data.batch(torch.from_numpy(places), replies_only)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            hidden = model.model.decoder(input_ids=inputs, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden)
            loss = loss_of(logits, targets, weights, labels, shares)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        counted, tokens = counted + 1, tokens + inputs.numel()
        if step == 1:
            float(total)  # everything is compiled when the first step is done
            schedule.begin()
        if step % settings.log_every == 0 or schedule.is_over:
            with as_written(model):
                log(step, float(total) / counted, tokens / (time.perf_counter() - since))
            total.zero_()
            counted, since, tokens = 0, time.perf_counter(), 0
    if counted:  # the clock ran out between two looks at it
        with as_written(model):
            log(step, float(total) / counted, tokens / (time.perf_counter() - since))
    model.eval()


class Schedule:
    """How far a training is, by its steps or, where `seconds` are given, by the clock."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.perf_counter) -> None:
        self._settings = settings
        self._clock = clock
        self._end = clock() + (settings.seconds or 0.0)
        self._begun: float | None = None
        self._num_taken = 0

    def begin(self) -> None:
        """The first step is done: from here to the end the clock is even."""
        self._begun = self._clock()

    def take(self) -> None:
        """One more step is on its way."""
        self._num_taken += 1

    @property
    def done(self) -> float:
        """Share of the training that is behind, from 0; 1 or more is its end."""
        if self._settings.seconds is None:
            return self._num_taken / self._settings.steps
        now = self._clock()
        if self._begun is None:
            return 1.0 if now >= self._end and self._num_taken else 0.0
        return (now - self._begun) / max(1e-6, self._end - self._begun)

    @property
    def is_over(self) -> bool:
        """Whether there is no further step."""
        return self.done >= 1

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine down to zero; steps count from 1."""
        settings = self._settings
        by_clock = settings.seconds is not None
        warm_up = settings.warm_up if by_clock else min(settings.warm_up, settings.steps // 10)
        rising = step / max(1, warm_up)
        if by_clock:
            done = min(1.0, self.done)
            return settings.learning_rate * min(1.0, rising) * 0.5 * (1 + math.cos(math.pi * done))
        if step <= warm_up:
            return settings.learning_rate * rising
        done = (step - warm_up) / max(1, settings.steps - warm_up)
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


@contextmanager
def as_written(model: OPTForCausalLM) -> Iterator[None]:
    """In evaluation mode and without the compiled layers, which would be compiled anew for every other shape."""
    layers = model.model.decoder.layers
    compiled = [layer._compiled_call_impl for layer in layers]
    for layer in layers:
        layer._compiled_call_impl = None
    model.eval()
    yield
    model.train()
    for layer, call in zip(layers, compiled, strict=True):
        layer._compiled_call_impl = call


class _Data:
    """The corpus on the device, and batches of it."""

    def __init__(self, corpus: Corpus, soft: SoftLabels | None, settings: Settings, device: torch.device) -> None:
        self._device = device
        self._tokens = torch.from_numpy(corpus.tokens.astype(np.int32)).to(device)
        self._spoken = torch.from_numpy(corpus.spoken).to(device)
        self._soft = None if soft is None else (soft.ids_on(device), soft.probabilities_on(device))
        self._shares = torch.from_numpy(_soft_shares(corpus, settings)).to(device)

    def batch(
        self, places: Tensor, replies_only: bool
    ) -> tuple[Tensor, Tensor, Tensor, Labels | None, Tensor | None]:
        """Inputs, targets, weights `[windows, context]`, soft labels `[windows, context, k]` and their shares."""
        places = places.to(self._device, non_blocking=True)
        here, following = places[:, :-1], places[:, 1:]
        inputs = self._tokens[here.clamp(min=0)].masked_fill(here < 0, 0)
        targets = self._tokens[following.clamp(min=0)].long()
        # A target counts where it follows its input in the same conversation.
        weights = (following == here + 1) & (here >= 0)
        if replies_only:
            weights &= self._spoken[following.clamp(min=0)]
        labels = shares = None
        if self._soft is not None:
            ids, probabilities = self._soft
            labels = ids[here.clamp(min=0)].int(), probabilities[here.clamp(min=0)]
            shares = self._shares[here.clamp(min=0)]
        return inputs.int(), targets, weights.float(), labels, shares


def _soft_shares(corpus: Corpus, settings: Settings) -> npt.NDArray[np.float32]:
    """`[num_tokens]` the share of the loss that comes from soft labels."""
    own = settings.soft_share if settings.own_soft_share is None else settings.own_soft_share
    shares = [own if is_own(source) else settings.soft_share for source in corpus.sources]
    return np.repeat(np.array(shares, np.float32), corpus.lengths)


def _loss(logits: Tensor, targets: Tensor, weights: Tensor, labels: Labels | None, shares: Tensor | None) -> Tensor:
    """Cross entropy with the text, mixed with cross entropy with the soft labels."""
    log_probabilities = torch.log_softmax(logits.float(), dim=-1)
    loss = -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if labels is not None and shares is not None:
        ids, probabilities = labels
        expected = -(log_probabilities.gather(-1, ids.long()) * probabilities.float()).sum(-1)
        loss = (1 - shares) * loss + shares * expected
    return (loss * weights).sum() / weights.sum().clamp(min=1)


def _batches(
    corpus: Corpus, settings: Settings, schedule: Schedule
) -> Iterator[tuple[npt.NDArray[np.int32], Phase]]:
    """Round after round of windows; a round belongs to one phase."""
    rng = np.random.default_rng(settings.seed)
    can_join = corpus.tokens[np.minimum(corpus.starts[:-1] + 1, len(corpus.tokens) - 1)] != SYSTEM
    can_join &= np.array([goes_on(source) for source in corpus.sources])
    first_part = 1 - settings.reply_share
    if settings.seconds is None:
        first_part = round(settings.steps * first_part) / settings.steps
    phases: list[tuple[Phase, float]] = [("all", first_part), ("reply", 1.0)]
    with ThreadPoolExecutor(1) as ahead:  # the next round is filled while this one is learned
        for phase, end in [("polish", 1.0)] if settings.polish else phases:
            expected = np.array([draws(source, phase) for source in corpus.sources])  # type: ignore[arg-type]
            fill = partial(round_of_windows, corpus, expected, can_join, settings.context + 1, rng)
            coming = ahead.submit(fill)
            while schedule.done < end:
                windows, coming = coming.result(), ahead.submit(fill)
                while len(windows) < settings.windows:  # a toy corpus gives less than a batch
                    windows = np.concatenate([windows, windows])
                for begin in range(0, len(windows) - settings.windows + 1, settings.windows):
                    if schedule.done >= end:
                        break
                    schedule.take()
                    yield windows[begin : begin + settings.windows], phase  # type: ignore[misc]


def _optimizer(model: torch.nn.Module, settings: Settings, device: torch.device) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=device.type == "cuda")
