"""How far logits of 16 bits are from those of float32, and through which kinds of steps they were made."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat.models.config import describe_model
from pagedchat.models.decoder import Decoder
from pagedchat.models.loader import load_weights
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.ahead import RunningStep
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.which_step import DECODES, MODULES, PREFILLS

KINDS = frozenset(rule.name for rule in DECODES)
PREFILL_KINDS = frozenset(rule.name for rule in PREFILLS)


_FEWEST_TOKENS = 20
"""Of a mixture of experts, whose errors say anything."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What some texts are followed by, says transformers."""

    exact: torch.Tensor
    """`[num_texts, length, vocab_size]`, in float32."""
    rounded: torch.Tensor
    """The same, computed in 16 bits."""
    dtype: torch.dtype
    """Of those."""
    mixes: bool = False
    """Tokens have experts, and rounding gives one another now and then, which is nobody's mistake."""

    def complaint(self, ours: torch.Tensor, where: Any) -> str:
        """What is wrong with logits of ours for the part `where` of the texts; empty if nothing.

        Args:
            ours: `exact[where]` of ours, from the same weights in the same 16 bits.
            where: indices.
        """
        exact, rounded = self.exact[where], self.rounded[where]
        differences = ours.float() - exact, rounded - exact
        if self.mixes:  # the token in the middle: the mean by square would be that of a few
            if differences[0][..., 0].numel() < _FEWEST_TOKENS:
                return ""
            error, theirs = (each.norm(dim=-1).median() for each in differences)
        else:
            error, theirs = (each.norm() for each in differences)
        return "" if error <= 1.5 * theirs else f"off by {error:.3g}, transformers by {theirs:.3g}"

    def wrong_choices(self, chosen: torch.Tensor, where: Any) -> list[int]:
        """Of chosen tokens for the part `where`: places of those that are not the most likely ones, though the two
        best logits are too far apart for rounding to have put another in front."""
        if self.mixes:
            return []
        exact = self.exact[where].flatten(0, -2)
        short = exact.max(dim=-1).values - exact.gather(-1, chosen.to(exact.device).flatten()[:, None])[:, 0]
        return (short > self.gap).nonzero().flatten().tolist()

    @property
    def gap(self) -> float:
        """Between two logits, what rounding can close: each may be off by 1.5 times transformers' worst one."""
        return 2 * 1.5 * float((self.rounded - self.exact).abs().max())

    @property
    def share_decided(self) -> float:
        """How much of all texts has its two best logits further apart than that."""
        best, second = self.exact.topk(2, dim=-1).values.unbind(-1)
        return float((best - second > self.gap).float().mean())


@torch.inference_mode()
def truth_of(model: Any, token_ids: torch.Tensor, dtype: torch.dtype) -> Truth:
    """Of a model of transformers in float32, which is in 16 bits afterwards.

    Args:
        model: through the attention of plain products.
        token_ids: `[num_texts, length]`.
        dtype: of 16 bits.
    """
    exact = model(token_ids, use_cache=False).logits.float()
    for parameter in model.parameters():  # their angles stay as they are, as when it is loaded in that type
        parameter.data = parameter.data.to(dtype)
    mixes = hasattr(model.config, "num_experts_per_tok")
    return Truth(exact, model(token_ids, use_cache=False).logits.float(), dtype, mixes)


def load_ours(folder: Path, dtype: torch.dtype, device: str) -> Decoder:
    """The same model in 16 bits, of our own modules."""
    description = describe_model("tiny", folder)
    model = load_weights(description, attention="", dtype=dtype, device=torch.device(device))
    assert isinstance(model, Decoder)
    return model


def force(runner: CapturedRunner, decode: Iterable[str] = KINDS, prefill: Iterable[str] = PREFILL_KINDS) -> None:
    """Let batches be run by these kinds of steps alone, and by modules where none of them may. What was captured
    stays if it is for the same kinds: a walk over all kinds of decodes captures its prompts' steps once."""
    runner.decodes.forget_ahead()
    assert runner.prefills is not None
    for store, kinds, some in (
        (runner.decodes.store, KINDS, decode),
        (runner.prefills.store, PREFILL_KINDS, prefill),
    ):
        others = kinds - {MODULES, *some}
        if others != store._without_trust:  # type: ignore[attr-defined]
            store.forget()
            store._without_trust = others  # type: ignore[attr-defined]


@contextmanager
def kinds_noted() -> Iterator[set[tuple[str, int]]]:
    """Fills a set with the kind and the rows of every decode that is run."""
    noted: set[tuple[str, int]] = set()
    replay = DecodeSteps._replay

    def noting(steps: DecodeSteps, running: RunningStep) -> None:
        bucket = running.bucket
        noted.add((steps.store._names[bucket, running.choice], bucket.num_seqs))
        replay(steps, running)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeSteps, "_replay", noting)
        yield noted
