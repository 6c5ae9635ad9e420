"""The ops that move the keys and values of tokens: into the cache, and out of it."""

from collections.abc import Sequence

import torch

from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work, copy_error
from pagedchat.bench.kernels.random_cache import DEVICE, RandomCache, num_rotated_sets, random_tensor
from pagedchat.bench.kernels.shapes import BLOCK_SIZE, GATHER, WRITE, GatherShape, WriteShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.cache.gather_cached_kv import gather_cached_kv
from pagedchat.ops.cache.layout import to_token_major
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache

_GATHERED_SEQUENCES = 8


def measure_writes(bench: Bench, shapes: Sequence[WriteShape] = WRITE) -> list[Figure]:
    """`reshape_and_cache`: the new tokens of a step into their slots; its peer is `index_copy_`, token-major."""
    return [figure for shape in shapes for figure in _measure_write(bench, shape)]


def measure_gather(bench: Bench, shapes: Sequence[GatherShape] = GATHER) -> list[Figure]:
    """`gather_cached_kv`: the cached tokens of a few sequences, contiguous."""
    return [figure for shape in shapes for figure in _measure_gather(bench, shape)]


def _measure_write(bench: Bench, shape: WriteShape) -> list[Figure]:
    inputs = WriteInputs(shape)
    contenders = [Contender(name=OURS, prepare=inputs.calls, check=inputs.check)]
    if "torch" in bench.peers:
        contenders.append(Contender(name="torch index_copy_", prepare=inputs.torch_calls, check=inputs.check_torch))
    return bench.run(_work(bench, "write", shape), contenders)


def _measure_gather(bench: Bench, shape: GatherShape) -> list[Figure]:
    per_sequence = shape.num_tokens // _GATHERED_SEQUENCES
    cache = RandomCache(
        num_rotated_sets(shape.moved_bytes),
        _GATHERED_SEQUENCES,
        per_sequence // BLOCK_SIZE,
        num_kv_heads=shape.num_kv_heads,
        head_size=shape.head_size,
    )
    starts = torch.arange(_GATHERED_SEQUENCES + 1, device=DEVICE, dtype=torch.int32) * per_sequence

    def call_on(block_tables: torch.Tensor) -> Call:
        return lambda: gather_cached_kv(cache.key_cache, cache.value_cache, block_tables, starts, shape.num_tokens)

    def torch_call_on(block_tables: torch.Tensor) -> Call:
        blocks = block_tables.flatten()
        return lambda: (cache.key_pages.index_select(0, blocks), cache.value_pages.index_select(0, blocks))

    def check(calls: Sequence[Call]) -> float:
        gathered = calls[0]()
        expected = cache.gathered(cache.block_tables[0].flatten())
        assert isinstance(gathered, tuple)  # noqa: S101 - what the op returns
        return copy_error(
            (result.view_as(wanted), wanted) for result, wanted in zip(gathered, expected, strict=True)
        )

    contenders = [
        Contender(name=OURS, prepare=lambda: [call_on(tables) for tables in cache.block_tables], check=check)
    ]
    if "torch" in bench.peers:
        contenders.append(
            Contender(
                name="torch index_select",
                prepare=lambda: [torch_call_on(tables) for tables in cache.block_tables],
                check=check,
            )
        )
    return bench.run(_work(bench, "gather", shape), contenders)


def _work(bench: Bench, section: str, shape: GatherShape | WriteShape) -> Work:
    return Work(section=section, shape=str(shape), moved_bytes=shape.moved_bytes, limit_gb_s=bench.limits.copy)


class WriteInputs:
    """Several sets of new tokens, each sequence somewhere in blocks of its own, and a cache of these blocks."""

    def __init__(self, shape: WriteShape) -> None:
        num_sets, num_sequences = num_rotated_sets(shape.moved_bytes), shape.num_tokens // shape.per_sequence
        num_blocks = -(-shape.per_sequence // BLOCK_SIZE)
        self.cache = RandomCache(
            num_sets, num_sequences, num_blocks, num_kv_heads=shape.num_kv_heads, head_size=shape.head_size
        )
        num_spare = num_blocks * BLOCK_SIZE - shape.per_sequence
        first = torch.arange(num_sequences, device=DEVICE) % (num_spare + 1)
        position = first[:, None] + torch.arange(shape.per_sequence, device=DEVICE)  # in the sequence's blocks
        blocks = self.cache.block_tables.long().gather(2, (position // BLOCK_SIZE).expand(num_sets, -1, -1))
        self.slots = (blocks * BLOCK_SIZE + position % BLOCK_SIZE).view(num_sets, shape.num_tokens)
        new = (num_sets, shape.num_tokens, shape.num_kv_heads, shape.head_size)
        self.key, self.value = random_tensor(*new), random_tensor(*new)

    def calls(self) -> list[Call]:
        """Into the layout of the kernels."""
        return self._calls_into(self.cache.key_cache, self.cache.value_cache)

    def torch_calls(self) -> list[Call]:
        """Into a cache that holds token after token."""
        return self._calls_into(self.cache.key_pages, self.cache.value_pages)

    def _calls_into(self, key_cache: torch.Tensor, value_cache: torch.Tensor) -> list[Call]:
        return [
            lambda key=key, value=value, slots=slots: reshape_and_cache(  # type: ignore[misc]
                key, value, key_cache, value_cache, slots
            )
            for key, value, slots in zip(self.key, self.value, self.slots, strict=True)
        ]

    def check(self, calls: Sequence[Call]) -> float:
        """0 if the first set of tokens lies in its slots."""
        calls[0]()
        return self._error(*to_token_major(self.cache.key_cache, self.cache.value_cache))

    def check_torch(self, calls: Sequence[Call]) -> float:
        """The same for `torch_calls`."""
        calls[0]()
        return self._error(self.cache.key_pages, self.cache.value_pages)

    def _error(self, key_pages: torch.Tensor, value_pages: torch.Tensor) -> float:
        slots = self.slots[0]
        return copy_error(
            [(key_pages.flatten(0, 1)[slots], self.key[0]), (value_pages.flatten(0, 1)[slots], self.value[0])]
        )
