"""What larger models expect next at every token of the corpus: soft labels for a small model to learn from.

Knowledge distillation (Hinton, Vinyals, Dean 2015, arXiv:1503.02531) from an ensemble, which pays most where text
is scarce (BabyLlama, Timiryasov and Tastet 2023, arXiv:2308.02019). Only the `k` likeliest tokens are kept.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import OPTForCausalLM

from tools.toy_model.corpus import Corpus

_TOKENS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class SoftLabels:
    """The likeliest next tokens after every token of a corpus."""

    ids: npt.NDArray[np.int16]
    """`[num_tokens, k]`"""
    probabilities: npt.NDArray[np.float16]
    """`[num_tokens, k]`, each row sums to one."""

    def ids_on(self, device: torch.device) -> Tensor:
        """`ids` as a tensor."""
        return torch.from_numpy(self.ids).to(device)

    def probabilities_on(self, device: torch.device) -> Tensor:
        """`probabilities` as a tensor."""
        return torch.from_numpy(self.probabilities).to(device)

    def save(self, path: Path) -> None:
        """Write `PATH.ids.npy` and `PATH.p.npy`."""
        np.save(path.with_suffix(".ids.npy"), self.ids)
        np.save(path.with_suffix(".p.npy"), self.probabilities)


def load_soft_labels(paths: Sequence[Path]) -> SoftLabels:
    """Read parts of a corpus, in order."""
    ids = np.concatenate([np.load(path.with_suffix(".ids.npy")) for path in paths])
    return SoftLabels(ids, np.concatenate([np.load(path.with_suffix(".p.npy")) for path in paths]))


@torch.inference_mode()
def label(
    teachers: Sequence[OPTForCausalLM],
    corpus: Corpus,
    first: int,
    last: int,
    k: int,
    on_batch: Callable[[int], None],
) -> SoftLabels:
    """Label the conversations `first` to `last` (excluded), each read by itself.

    Args:
        teachers: on one device; their expectations are averaged.
        corpus: the text.
        first: conversation to begin with.
        last: conversation to end before.
        k: likeliest tokens to keep.
        on_batch: told how many conversations are done.
    """
    offset, end = int(corpus.starts[first]), int(corpus.starts[last])
    ids = np.zeros((end - offset, k), np.int16)
    probabilities = np.zeros((end - offset, k), np.float16)
    done = 0
    for batch, inputs in batches_by_length(corpus, first, last):
        top_p, top_ids = _expect(teachers, torch.from_numpy(inputs), k)
        for row, index in enumerate(batch):
            begin, size = int(corpus.starts[index]) - offset, int(corpus.starts[index + 1] - corpus.starts[index])
            ids[begin : begin + size] = top_ids[row, :size]
            probabilities[begin : begin + size] = top_p[row, :size]
        done += len(batch)
        on_batch(done)
    return SoftLabels(ids, probabilities)


def batches_by_length(corpus: Corpus, first: int, last: int) -> Iterator[tuple[list[int], npt.NDArray[np.int64]]]:
    """Conversations `first` to `last` (excluded), shortest first, in padded batches `[conversations, tokens]`."""
    lengths = corpus.lengths.tolist()
    order = sorted(range(first, last), key=lengths.__getitem__)
    done = 0
    while done < len(order):
        batch = _next_batch(lengths, order, done)
        inputs = np.zeros((len(batch), lengths[batch[-1]]), np.int64)
        for row, index in enumerate(batch):
            inputs[row, : lengths[index]] = corpus.tokens[corpus.starts[index] : corpus.starts[index + 1]]
        yield batch, inputs
        done += len(batch)


def _next_batch(lengths: list[int], order: list[int], done: int) -> list[int]:
    """Conversations of about one length; the order is by length, so the last is the longest."""
    batch = order[done : done + max(1, _TOKENS_AT_ONCE // lengths[order[done]])]
    while len(batch) > 1 and len(batch) * lengths[batch[-1]] > 1.5 * _TOKENS_AT_ONCE:
        batch = batch[: len(batch) // 2]
    return batch


def _expect(
    teachers: Sequence[OPTForCausalLM], inputs: Tensor, k: int
) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.int16]]:
    device = teachers[0].device
    inputs = inputs.to(device)
    mean: Tensor | None = None
    for teacher in teachers:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = teacher(input_ids=inputs, use_cache=False).logits
        share = torch.softmax(logits.float(), dim=-1)
        mean = share if mean is None else mean.add_(share)
    assert mean is not None  # noqa: S101 - there is a teacher
    top, ids = mean.topk(min(k, mean.shape[-1]), dim=-1)
    top = top / top.sum(-1, keepdim=True)
    return top.half().cpu().numpy(), ids.to(torch.int16).cpu().numpy()
