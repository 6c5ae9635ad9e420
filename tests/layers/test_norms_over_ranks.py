"""Norms over all heads of a token whose heads are on several ranks."""

import pytest
import torch

from pagedchat.layers.arithmetic import InvariantArithmetic, use_arithmetic
from pagedchat.layers.norms import Norm, NormConfig
from pagedchat.layers.norms_over_ranks import normed_with_others
from tests.rank_threads import RankThread, RankThreads

CONFIGS = {
    "rms": NormConfig(kind="rms", eps=1e-5),
    "exact rms": NormConfig(kind="rms", eps=1e-5, exact=True),
    "offset rms": NormConfig(kind="rms", eps=1e-5, offset=1.0),
    "no weights": NormConfig(kind="rms", eps=1e-5, weight=False),
    "layer": NormConfig(kind="layer", eps=1e-5),
    "layer with bias": NormConfig(kind="layer", eps=1e-5, bias=True, offset=1.0),
}
NUM_TOKENS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 5, 8, 2, 12


def norm(config: NormConfig, width: int) -> Norm:
    made = Norm(config, width)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(width))
    return made


def part(whole: Norm, start: int, width: int) -> Norm:
    made = Norm(whole.config, width)
    with torch.no_grad():
        for own, theirs in zip(made.parameters(), whole.parameters(), strict=True):
            own.copy_(theirs[start : start + width])
    return made


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("in_order", [False, True])
@torch.inference_mode()
def test_all_ranks_together_norm_as_one(kind: str, size: int, in_order: bool) -> None:
    torch.manual_seed(0)
    q_norm, k_norm = norm(CONFIGS[kind], NUM_HEADS * HEAD_DIM), norm(CONFIGS[kind], NUM_KV_HEADS * HEAD_DIM)
    query = torch.randn(NUM_TOKENS, NUM_HEADS, HEAD_DIM) + 0.3
    key = torch.randn(NUM_TOKENS, NUM_KV_HEADS, HEAD_DIM)
    num_heads, num_kv_heads = NUM_HEADS // size, max(1, NUM_KV_HEADS // size)

    @torch.inference_mode()
    def of_rank(ranks: RankThread) -> tuple[torch.Tensor, torch.Tensor]:
        first, first_kv = ranks.rank * num_heads, ranks.rank * NUM_KV_HEADS // size
        norms = (
            part(q_norm, first * HEAD_DIM, num_heads * HEAD_DIM),
            part(k_norm, first_kv * HEAD_DIM, num_kv_heads * HEAD_DIM),
        )
        if in_order:
            for each in norms:
                use_arithmetic(each, InvariantArithmetic())
        heads, kv_heads = query[:, first : first + num_heads], key[:, first_kv : first_kv + num_kv_heads]
        return normed_with_others(norms[0], heads, norms[1], kv_heads, ranks)

    queries, keys = zip(*RankThreads(size).run(of_rank), strict=True)
    torch.testing.assert_close(torch.cat(queries, dim=1).flatten(1), q_norm(query.flatten(1)))
    copies = size // NUM_KV_HEADS if size > NUM_KV_HEADS else 1
    torch.testing.assert_close(torch.cat(keys[::copies], dim=1).flatten(1), k_norm(key.flatten(1)))
