"""Logits -> token ids: penalties, temperature, top-k, top-p, one draw per sequence.

A row's result depends on its own logits, parameters, seed and position only, never on its neighbours: whether a
short list of the most likely tokens is enough is decided row by row, and the draw inverts the cumulative
probability at one number of a counter-based generator.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.randomness import uniform

SHORTLIST = 256
"""Most likely tokens looked at first: sorting a whole vocabulary is slow, and most nuclei end in here."""


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """Whose next token is to be chosen."""

    params: SamplingParams
    token_ids: list[int]
    """All tokens so far, prompt and reply."""
    seed: int

    @property
    def filtered(self) -> bool:
        """Whether some tokens are ruled out."""
        return self.params.top_p < 1 or self.params.top_k > 0


def sample(logits: torch.Tensor, rows: Rows[SamplingRow]) -> list[int]:
    """Choose one token per row.

    Args:
        logits: `[num_rows, vocab_size]`, any float type; not changed.
        rows: one for each row of `logits`.

    Returns:
        The token ids.
    """
    penalised = [i for i, row in enumerate(rows) if row.params.repetition_penalty != 1]
    if penalised:
        logits = _penalise(logits.float(), penalised, rows)
    drawn = [i for i, row in enumerate(rows) if not row.params.greedy]
    if len(drawn) == len(rows):
        return _draw(logits.float(), rows)
    token_ids: list[int] = logits.max(dim=-1).indices.tolist()  # three times as fast as argmax on a CPU
    if drawn:
        chosen = _draw(logits[_index(drawn, logits.device)].float(), [rows[i] for i in drawn])
        for i, token_id in zip(drawn, chosen, strict=True):
            token_ids[i] = token_id
    return token_ids


def _penalise(logits: torch.Tensor, penalised: list[int], rows: Rows[SamplingRow]) -> torch.Tensor:
    """Tokens already in the sequence become less likely: positive logits are divided, negative ones multiplied."""
    logits = logits.clone()
    vocab_size = logits.shape[1]
    seen = [(i * vocab_size, set(rows[i].token_ids), rows[i].params.repetition_penalty) for i in penalised]
    cells = _index([start + token_id for start, tokens, _ in seen for token_id in tokens], logits.device)
    penalties = torch.tensor([penalty for _, tokens, penalty in seen for _ in tokens], device=logits.device)
    flat = logits.view(-1)
    values = flat[cells]
    flat[cells] = torch.where(values > 0, values / penalties, values * penalties)
    return logits


def _draw(logits: torch.Tensor, rows: Rows[SamplingRow]) -> list[int]:
    """One draw per row from the filtered distribution; no row is greedy. Logits are float32."""
    device = logits.device
    temperatures = torch.tensor([row.params.temperature for row in rows], device=device)
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperatures[:, None]  # no overflow for tiny ones
    draws = torch.tensor(
        [uniform(row.seed, len(row.token_ids)) for row in rows], dtype=torch.float64, device=device
    )
    token_ids = [0] * len(rows)
    for members, filtered in _by_filter(rows):
        index = _index(members, device)
        choose = _invert_filtered if filtered else _invert
        chosen = choose(logits[index], draws[index], [rows[i].params for i in members])
        for i, token_id in zip(members, chosen.tolist(), strict=True):
            token_ids[i] = token_id
    return token_ids


def _by_filter(rows: Rows[SamplingRow]) -> list[tuple[list[int], bool]]:
    free = [i for i, row in enumerate(rows) if not row.filtered]
    filtered = [i for i, row in enumerate(rows) if row.filtered]
    return [(members, kind) for members, kind in ((free, False), (filtered, True)) if members]


def _invert(logits: torch.Tensor, draws: torch.Tensor, _params: list[SamplingParams]) -> torch.Tensor:
    """Invert the cumulative distribution over the vocabulary in its own order: `[num_rows]`."""
    cumulative = torch.softmax(logits, dim=-1).double().cumsum(dim=-1)
    return _search(cumulative, draws * cumulative[:, -1])


def _invert_filtered(logits: torch.Tensor, draws: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """The same over the tokens that the filters leave, most likely first: `[num_rows]`.

    The shortlist is enough for a row if the filters end inside it; the others are sorted whole.
    """
    token_ids = torch.empty(len(params), dtype=torch.int64, device=logits.device)
    pending = list(range(len(params)))
    for width in (min(SHORTLIST, logits.shape[1]), logits.shape[1]):
        index = _index(pending, logits.device)
        chosen, complete = _invert_top(logits[index], draws[index], [params[i] for i in pending], width)
        token_ids[index] = chosen
        pending = [i for i, done in zip(pending, complete, strict=True) if not done]
        if not pending:
            break
    return token_ids


def _invert_top(
    logits: torch.Tensor, draws: torch.Tensor, params: list[SamplingParams], width: int
) -> tuple[torch.Tensor, list[bool]]:
    """Filter and invert among the `width` most likely tokens; tells for each row whether that was enough."""
    vocab_size = logits.shape[1]
    top_k = torch.tensor([p.top_k if p.top_k > 0 else vocab_size for p in params], device=logits.device)[:, None]
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=logits.device)[:, None]
    values, order = logits.topk(width, dim=-1)  # [num_rows, width], most likely first
    ranks = torch.arange(width, device=logits.device)
    normaliser = torch.logsumexp(logits, dim=-1, keepdim=True)
    mass = torch.exp(values - normaliser).double().masked_fill(ranks >= top_k, 0)
    cumulative = mass.cumsum(dim=-1)
    # Nucleus: top-p counts within what top-k leaves, and the token that crosses it is in.
    total = torch.where(top_k < vocab_size, cumulative[:, -1:], 1.0)
    kept = (cumulative - mass < top_p * total) & (ranks < top_k)
    last = kept.sum(dim=-1, keepdim=True) - 1
    short = (top_k <= width) | ((top_k >= vocab_size) & (cumulative[:, -1:] >= top_p))
    ranks_drawn = torch.minimum(_search(cumulative, draws * cumulative.gather(1, last)[:, 0]), last[:, 0])
    complete = [True] * len(params) if width == vocab_size else short[:, 0].tolist()
    return order.gather(1, ranks_drawn[:, None])[:, 0], complete


def _search(cumulative: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """First column whose cumulative probability is above the row's target: `[num_rows]`."""
    columns = torch.searchsorted(cumulative, targets[:, None], right=True)[:, 0]
    return columns.clamp(max=cumulative.shape[1] - 1)


def _index(values: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
