"""Random sequences in the cache layout of PagedAttention, and their attention computed densely in float64.

Whatever a kernel must not look at is poisoned: slots of no sequence hold NaN, padding entries of the block tables
are addresses far away.
"""

import random
from dataclasses import dataclass

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.cache.layout import from_token_major

HEAD_SIZES = [64, 80, 96, 112, 128, 256]
BLOCK_SIZES = [8, 16, 32]
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
GROUP_SIZES = [1, 2, 3, 4, 8]
PADDING_BLOCKS = [2**31 - 1, -1, -(2**31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCase:
    """The arguments of an attention op, and the texts they were made from."""

    query: torch.Tensor
    """`[num_tokens, num_heads, head_size]`: a part of a wider tensor, so not contiguous."""
    key_cache: torch.Tensor
    """`[num_blocks, num_kv_heads, head_size / x, block_size, x]`"""
    value_cache: torch.Tensor
    """`[num_blocks, num_kv_heads, head_size, block_size]`"""
    block_tables: torch.Tensor
    """`[num_seqs, max_blocks_per_seq]`, int32."""
    seq_lens: torch.Tensor
    """`[num_seqs]`, int32."""
    cu_seqlens_q: torch.Tensor
    """`[num_seqs + 1]`, int32."""
    max_query_len: int
    keys: list[torch.Tensor]
    """For each sequence `[seq_len, num_kv_heads, head_size]`."""
    values: list[torch.Tensor]

    def call(self, options: AttentionOptions) -> AttentionCall:
        """Into poisoned tensors, log-sum-exps too."""
        tensors = (self.query, self.key_cache, self.value_cache, self.block_tables, self.seq_lens)
        return AttentionCall(*tensors, options, self.poisoned_output(), self.poisoned_lse())

    def attend(self, options: AttentionOptions, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Every step in `dtype`: output `[num_tokens, num_heads, head_size]` and lse `[num_tokens, num_heads]`."""
        queries = self.query.split(self.cu_seqlens_q.diff().tolist())
        parts = zip(queries, self.keys, self.values, strict=True)
        results = [dense(q.to(dtype), k.to(dtype), v.to(dtype), options) for q, k, v in parts]
        return torch.cat([output for output, _ in results]), torch.cat([lse for _, lse in results])

    def poisoned_output(self) -> torch.Tensor:
        """Where an op is to write: like the query, all NaN."""
        return torch.full_like(self.query, float("nan"), memory_format=torch.contiguous_format)

    def poisoned_lse(self) -> torch.Tensor:
        """`[num_tokens, num_heads]`, float32, all NaN."""
        return torch.full(self.query.shape[:2], float("nan"), device=self.query.device)


def results(call: AttentionCall) -> tuple[torch.Tensor, torch.Tensor]:
    """What an op has written: output and lse."""
    assert call.lse is not None
    return call.output, call.lse


def make_layout_case(
    seq_lens: list[int],
    query_lens: list[int] | None = None,
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> LayoutCase:
    """Texts of `seq_lens` tokens of which the last `query_lens` (one each without it) are queries.

    A length of 0 with one query is a padding row: there is nothing to look at.
    """
    generator = torch.Generator().manual_seed(seed)
    query_lens = [1] * len(seq_lens) if query_lens is None else query_lens

    def normal(num_tokens: int, heads: int) -> torch.Tensor:
        return torch.randn(num_tokens, heads, head_size, generator=generator).to(dtype)

    keys = [normal(length, num_kv_heads) for length in seq_lens]
    values = [normal(length, num_kv_heads) for length in seq_lens]
    tables, num_blocks = _shuffled_tables(seq_lens, block_size, generator)
    fused = normal(sum(query_lens), num_heads + 2 * num_kv_heads)  # as one product makes query, key and value
    key_cache, value_cache = from_token_major(
        _fill(keys, tables, num_blocks, block_size), _fill(values, tables, num_blocks, block_size)
    )
    return LayoutCase(
        query=fused.to(device)[:, :num_heads],
        key_cache=key_cache.to(device),
        value_cache=value_cache.to(device),
        block_tables=_padded(tables, generator).to(device),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32, device=device),
        cu_seqlens_q=torch.tensor([0, *query_lens]).cumsum(0).to(device, torch.int32),
        max_query_len=max(query_lens),
        keys=[key.to(device) for key in keys],
        values=[value.to(device) for value in values],
    )


def random_layout_case(
    seed: int,
    device: str,
    *,
    max_len: int = 700,
    max_query_len: int = 1,
    dtypes: list[torch.dtype] = DTYPES,
    head_sizes: list[int] = HEAD_SIZES,
) -> tuple[LayoutCase, AttentionOptions]:
    """A case of random shape, and random options; with `max_query_len` above 1 chunks of random length."""
    rng = random.Random(seed)
    num_seqs, num_kv_heads, group_size = rng.randint(1, 5), rng.randint(1, 3), rng.choice(GROUP_SIZES)
    query_lens = [rng.randint(1, max_query_len) for _ in range(num_seqs)]
    seq_lens = [rng.randint(query_len, max_len) for query_len in query_lens]
    if rng.random() < 0.5:
        seq_lens[0] = query_lens[0]  # nothing before the chunk; length 1 in decode
    case = make_layout_case(
        seq_lens,
        query_lens,
        num_heads=num_kv_heads * group_size,
        num_kv_heads=num_kv_heads,
        head_size=rng.choice(head_sizes),
        block_size=rng.choice(BLOCK_SIZES),
        dtype=rng.choice(dtypes),
        device=device,
        seed=seed,
    )
    return case, random_options(rng, num_kv_heads * group_size, device)


def random_options(rng: random.Random, num_heads: int, device: str) -> AttentionOptions:
    """Each option there or not."""
    slopes = [2.0 ** (-8 * (head + 1) / num_heads) for head in range(num_heads)]
    return AttentionOptions(
        scale=rng.choice([0.05, 0.125, 0.2]),
        sliding_window=rng.choice([None, None, 1, 7, 100, 300]),
        cap=rng.choice([None, None, 5.0, 50.0]),
        alibi_slopes=rng.choice([None, torch.tensor(slopes, device=device)]),
        sinks=rng.choice([None, make_sinks(num_heads, device)]),
    )


def make_sinks(num_heads: int, device: str = "cpu") -> torch.Tensor:
    """`[num_heads]`: some take hardly anything, some most of the weights, the last one nothing at all."""
    sinks = torch.linspace(6.0, -6.0, num_heads, device=device)
    sinks[-1] = float("-inf") if num_heads > 1 else 1.0
    return sinks


def make_options(rule: dict[str, float], device: str) -> AttentionOptions:
    """For four heads; with "alibi" and "sinks" in the rule there are some."""
    plain = {name: value for name, value in rule.items() if name not in ("alibi", "sinks")}
    return AttentionOptions(
        scale=0.3,
        alibi_slopes=torch.tensor([0.5, 0.25, 0.1, 0.01], device=device) if "alibi" in rule else None,
        sinks=make_sinks(4, device) if "sinks" in rule else None,
        **plain,  # type: ignore[arg-type]
    )


def _shuffled_tables(
    seq_lens: list[int], block_size: int, generator: torch.Generator
) -> tuple[list[list[int]], int]:
    """Block ids of every sequence out of a pool with some to spare, and the size of the pool."""
    counts = [-(-length // block_size) for length in seq_lens]
    num_blocks = sum(counts) + 3
    order = torch.randperm(num_blocks, generator=generator).tolist()
    return [[order.pop() for _ in range(count)] for count in counts], num_blocks


def _fill(
    texts: list[torch.Tensor], tables: list[list[int]], num_blocks: int, block_size: int
) -> torch.Tensor:  # [num_blocks, block_size, num_kv_heads, head_size]
    cache = texts[0].new_full((num_blocks, block_size, *texts[0].shape[1:]), float("nan"))
    for table, text in zip(tables, texts, strict=True):
        for block_id, tokens in zip(table, text.split(block_size), strict=False):
            cache[block_id, : len(tokens)] = tokens
    return cache


def _padded(tables: list[list[int]], generator: torch.Generator) -> torch.Tensor:
    width = max(map(len, tables)) + 2
    which = torch.randint(len(PADDING_BLOCKS), (len(tables), width), generator=generator)
    padded = torch.tensor(PADDING_BLOCKS)[which].int()
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = torch.tensor(table, dtype=torch.int32)
    return padded


def dense(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """The last `len(query)` tokens of a text attend to all before them and themselves, in plain torch.

    Args:
        query: `[query_len, num_heads, head_size]`.
        key, value: `[seq_len, num_kv_heads, head_size]`, of the query's type.

    Returns:
        Output `[query_len, num_heads, head_size]` and natural log-sum-exp `[query_len, num_heads]`.
    """
    sinks = query.new_full(query.shape[1:2], float("-inf")) if options.sinks is None else options.sinks.to(query)
    if not len(key):
        return torch.zeros_like(query), sinks.expand(query.shape[:2])
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * options.scale
    if options.cap is not None:
        scores = options.cap * torch.tanh(scores / options.cap)
    positions = torch.arange(len(key), device=key.device)
    own = positions[len(key) - len(query) :, None]
    if options.alibi_slopes is not None:
        scores = scores + (options.alibi_slopes[:, None, None] * (positions - own)).to(scores.dtype)
    seen = positions <= own
    if options.sliding_window is not None:
        seen &= positions > own - options.sliding_window
    scores = scores.masked_fill(~seen, float("-inf"))
    scores = torch.cat((scores, sinks[:, None, None].expand(*scores.shape[:2], 1)), dim=-1)
    output = torch.einsum("hqk,khd->qhd", torch.softmax(scores, dim=-1)[..., :-1], value)
    return output, torch.logsumexp(scores, dim=-1).transpose(0, 1)


def check_attention(
    case: LayoutCase,
    options: AttentionOptions,
    output: torch.Tensor,
    lse: torch.Tensor | None = None,
    *,
    lse_atol: float = 2e-5,
) -> None:
    """Assert that `output` and `lse` are right, the former as right as plain torch in the same type makes it."""
    expected, expected_lse = case.attend(options, torch.float64)
    plain, _ = case.attend(options, case.query.dtype)
    assert output.dtype == case.query.dtype
    check_as_close_as_torch(output, plain, expected)
    if lse is not None:
        torch.testing.assert_close(lse.double(), expected_lse, atol=lse_atol, rtol=1e-5)


def check_as_close_as_torch(output: torch.Tensor, plain: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that the errors of `output`, in norm and at worst, are at most twice those of `plain`.

    Where torch happens to be exact (one key, say), an error as small as rounding to the type makes it will do; of a
    single number, whose error is a matter of luck, two units in its last place.
    """
    rounding = torch.finfo(output.dtype).eps
    error, allowed = output.double() - expected, plain.double() - expected
    norm_limit = max(2 * allowed.norm().item(), rounding * expected.norm().item())
    worst_limit = max(2 * allowed.abs().max().item(), 2 * rounding * expected.abs().max().item())
    norm, worst = error.norm().item(), error.abs().max().item()
    assert norm <= norm_limit, f"error {norm:.3g} in norm, expected at most {norm_limit:.3g}"
    assert worst <= worst_limit, f"error {worst:.3g} at worst, expected at most {worst_limit:.3g}"
