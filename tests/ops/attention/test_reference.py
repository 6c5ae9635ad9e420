"""The torch version of the attention ops on the layout of PagedAttention, chunks of several tokens included."""

import pytest

from pagedchat.ops.attention.reference import attend_texts
from tests.ops.cuda_layout_case import check_attention, random_layout_case, results
from tests.ops.paged_case import DEVICES


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(12))
def test_chunks_match_dense_attention(seed: int, device: str) -> None:
    case, options = random_layout_case(seed, device, max_len=200, max_query_len=60)
    query_lens = case.cu_seqlens_q.diff().tolist()
    call = case.call(options)
    attend_texts(call, query_lens)
    check_attention(case, options, *results(call))
