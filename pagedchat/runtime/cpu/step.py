"""A decode step of a model on a CPU as one call into compiled code: a table of jobs from the tokens' vectors to the
logits, for each number of rows. Sums are in float32 throughout, whatever the type of weights and cache; a row's
numbers follow from its own sequence, bit for bit.

Knows the model's modules and the cache by token; knows no scheduler. What it does not know of a model is in
`objections`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.models.decoder import Decoder
from pagedchat.ops.cache.byte_cache import elements_bytes, is_byte_cache
from pagedchat.ops.cpu.attention import MOST_QUERIES, MOST_TOGETHER
from pagedchat.ops.cpu.dense_elements import RUN
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.mixture import Mixed
from pagedchat.ops.cpu.product import ProductInputs, RowNorm, Rows, float_bits, product_jobs
from pagedchat.runtime.attention.backend import AttentionBatch
from pagedchat.runtime.cpu.layer_parts import (
    ALL_TOKENS,
    FeedForwardParts,
    LayerParts,
    MixtureParts,
    Products,
    layers_of,
    norm_of,
    parts_of,
    products_of,
)
from pagedchat.runtime.cpu.likeliest import Likeliest, LikeliestTokens, objection_to
from pagedchat.runtime.cpu.mixture_rooms import MixtureRooms
from pagedchat.runtime.loading.device import available_memory

PART_TOKENS = 1024
"""Of a sequence, that a thread attends to at a time: of one long chat all threads have some."""

_ATTENTION = "attention"
_CACHES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int8: "int8", torch.float8_e4m3fn: "fp8"}


class Caches(NamedTuple):
    """Keys and values of a layer, `[num_blocks, block_size, num_kv_heads, head_dim]` each."""

    key: torch.Tensor
    value: torch.Tensor

    @property
    def page_arguments(self) -> tuple[int, ...]:
        """Of kernels: bytes of a page, and where its scales begin; none where there are no scales."""
        return (self.key.stride(0), elements_bytes(*self.key.shape[1:])) if is_byte_cache(self.key) else ()


class _Made(NamedTuple):
    """A program, and which of its jobs are attention."""

    program: Program
    attention: list[int]


class CpuStep:
    """Decodes of one model over one cache.

    Args:
        kernels: of this process.
        model: to which there is no objection, with all its linear layers on kernels (`products_of`).
        caches: of its layers.
        block_size: token slots in a block.
        logits: float32 `[most_rows, vocab_size]`, memory that another step may have too.
    """

    def __init__(
        self, kernels: CpuKernels, model: Decoder, caches: list[Caches], block_size: int, logits: torch.Tensor
    ) -> None:
        self._kernels, self._model, self._caches, self._block_size = kernels, model, caches, block_size
        self._logits = logits
        self._layers = [parts_of(model, index, layer) for index, layer in enumerate(layers_of(model))]
        self._final_norm = None if model.norm is None else norm_of(model.norm)
        self._head = products_of(model.head)
        self._programs: dict[tuple[int, ...], _Made] = {}
        self._likeliest: LikeliestTokens | None = None
        self._has_tried_likeliest = False
        self._rotaries = [rotary for rotary in model.rotaries if isinstance(rotary, RotaryEmbedding)]
        self._parts = 1
        self._of_parts, self._statistics = torch.empty(0), torch.empty(0)
        self.most_rows = kernels.most_rows
        """Of a step."""
        self._take_memory(self.most_rows)
        self._lens = torch.zeros(self.most_rows, dtype=torch.int64)
        self._runs = torch.zeros(self.most_rows, 2, dtype=torch.int64)
        self._num_runs = 1
        heads = model.config.heads
        self._most_together = min(MOST_TOGETHER, MOST_QUERIES * heads.num_kv_heads // heads.num_heads)
        self._tables = torch.zeros(self.most_rows, 64, dtype=torch.int64)

    def _take_memory(self, most_rows: int) -> None:
        """For as many rows, at least as many as have logits; programs have its addresses."""
        config, heads = self._model.config, self._model.config.heads
        self._most_rows = most_rows
        up = max(layer.widest_middle for layer in self._layers)
        widest = max(layer.widest for layer in self._layers)
        self._hidden = torch.empty(most_rows, config.hidden_size)
        self._qkv = torch.empty(most_rows, heads.query_width + 2 * heads.kv_width)
        self._attended = torch.empty(most_rows, heads.query_width)
        self._middle = torch.empty(most_rows, up)
        self._inputs = ProductInputs.for_rows(most_rows, widest)
        self._mixtures = MixtureRooms(most_rows, [layer.feed_forward for layer in self._layers])
        self._turns = [torch.empty(most_rows * 2 * len(rotary.frequencies)) for rotary in self._rotaries]
        self._slots = torch.zeros(most_rows, dtype=torch.int64)
        self._programs.clear()

    def run(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch) -> torch.Tensor:
        """Logits of all rows, `[num_rows, vocab_size]`, float32, until the next step.

        Args:
            token_ids, positions: `[num_rows]`, int64; at most `most_rows`.
            batch: the sequences, with one token each.
        """
        num_rows = self._lay_out(token_ids, positions, batch)
        self._run(self._made((num_rows, self._parts), lambda: self.jobs(num_rows)))
        return self._logits[:num_rows]

    def run_for_likeliest(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch
    ) -> Likeliest | torch.Tensor:
        """Tokens among which the most likely ones are, and their logits; or all logits, where that is quicker.
        Arguments as those of `run`."""
        tokens = self._likeliest_tokens()
        if tokens is None or not tokens.is_ready():
            return self.run(token_ids, positions, batch)
        num_rows = self._lay_out(token_ids, positions, batch)
        self._run(self._made((num_rows, self._parts, 1), lambda: self._jobs_for_likeliest(tokens, num_rows)))
        found = tokens.find(num_rows)
        if found is not None:
            return found
        self._made((num_rows,), lambda: self._head_jobs(num_rows)).program.run()
        return self._logits[:num_rows]

    def _lay_out(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch) -> int:
        """All that jobs read; -> the number of rows."""
        num_rows = len(token_ids)
        self._write_rows(token_ids, positions, batch.slot_mapping)
        self._lens[:num_rows] = torch.tensor(batch.seq_lens)
        self._write_tables(batch.block_tables)
        self._write_runs(batch)
        self._take_parts(num_rows, max(batch.seq_lens))
        return num_rows

    def _run(self, made: _Made) -> None:
        for index in made.attention:
            made.program.set_units(index, self._attend_units())
        made.program.run()

    def _likeliest_tokens(self) -> LikeliestTokens | None:
        """Made when they are first wanted; None where that is not worth while."""
        if not self._has_tried_likeliest:
            self._has_tried_likeliest = True
            if not objection_to(self._head, self._kernels, available_memory()):
                memory = _rows(self._hidden), self._inputs, self._logits
                self._likeliest = LikeliestTokens(self._kernels, self._head[0], self._final_norm, *memory)
        return self._likeliest

    def _made(self, key: tuple[int, ...], jobs: Callable[[], list[tuple[str, Job]]]) -> _Made:
        """Of what does not change while the memory stays, once."""
        if key not in self._programs:
            named = jobs()
            attention = [i for i, (name, _) in enumerate(named) if name == _ATTENTION]
            self._programs[key] = _Made(Program(self._kernels.pool, [job for _, job in named]), attention)
        return self._programs[key]

    def _write_rows(self, token_ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        num_rows = len(token_ids)
        self._hidden[:num_rows] = self._model.embed(token_ids, positions)
        for rotary, turns in zip(self._rotaries, self._turns, strict=True):
            cos, sin = rotary.turns(positions)
            torch.stack((cos, sin), dim=1, out=turns[: 2 * cos.numel()].view(num_rows, 2, -1))
        self._slots[:num_rows] = slots

    def _take_parts(self, num_rows: int, longest: int) -> None:
        """So many are the parts of the longest sequence; there is memory for what becomes of them."""
        self._parts = -(-longest // PART_TOKENS)
        heads, num_parts = self._model.config.heads, num_rows * self._parts
        if self._parts > 1 and num_parts * heads.query_width > len(self._of_parts):
            self._of_parts = torch.empty(2 * num_parts * heads.query_width)
            self._statistics = torch.empty(4 * num_parts * heads.num_heads)
            self._programs.clear()  # which have their addresses

    def _write_tables(self, block_tables: list[list[int]]) -> None:
        longest = max(map(len, block_tables))
        if longest > self._tables.shape[1]:
            self._tables = torch.zeros(self.most_rows, 2 * longest, dtype=torch.int64)
            self._programs.clear()  # which have its address
        for row, table in enumerate(block_tables):
            self._tables[row, : len(table)] = torch.tensor(table)

    def _write_runs(self, batch: AttentionBatch) -> None:
        """Rows of one sequence, each a token longer than the one before, attend together, unless a window hides
        from some what others see."""
        longest = max(batch.seq_lens)
        together = 1 if any(layer.window < longest for layer in self._layers) else self._most_together
        runs = runs_of(batch.block_tables, batch.seq_lens, together)
        self._num_runs = len(runs)
        self._runs[: len(runs)] = torch.tensor(runs)

    # --- jobs ---------------------------------------------------------------------------------------

    def jobs(self, num_rows: int) -> list[tuple[str, Job]]:
        """What a step of so many rows does, in order, each with a name for what is done."""
        return [*self._layers_jobs(num_rows), *self._head_jobs(num_rows)]

    def _jobs_for_likeliest(self, tokens: LikeliestTokens, num_rows: int) -> list[tuple[str, Job]]:
        return [*self._layers_jobs(num_rows), *(("likeliest tokens", job) for job in tokens.jobs(num_rows))]

    def _layers_jobs(self, num_rows: int) -> list[tuple[str, Job]]:
        jobs: list[tuple[str, Job]] = []
        for layer, caches in zip(self._layers, self._caches, strict=True):
            jobs += self._until_cache_jobs(layer, caches, num_rows)
            jobs += self._behind_cache_jobs(layer, caches, num_rows)
        return jobs

    def _head_jobs(self, num_rows: int) -> list[tuple[str, Job]]:
        return self._product_jobs("head", self._head, self._hidden, self._logits, num_rows, norm=self._final_norm)

    def weight_bytes(self, num_rows: int) -> int:
        """That a step of so many rows reads, at most, the table of the tokens' vectors left out."""
        return sum(each.nbytes for each in self._head) + sum(each.weight_bytes(num_rows) for each in self._layers)

    def _until_cache_jobs(self, layer: LayerParts, caches: Caches, num_rows: int) -> list[tuple[str, Job]]:
        """Of a layer: its queries, keys and values, the latter two kept."""
        norm = layer.attention_norm
        return [
            *self._product_jobs("queries, keys, values", layer.qkv, self._hidden, self._qkv, num_rows, norm=norm),
            *self._norm_jobs(layer, num_rows),
            ("heads into the cache", self._heads_job(layer, caches, num_rows)),
        ]

    def _behind_cache_jobs(self, layer: LayerParts, caches: Caches, num_rows: int) -> list[tuple[str, Job]]:
        """The rest of the layer."""
        return [
            *self._attend_jobs(layer, caches, num_rows),
            *self._product_jobs("way out", layer.out, self._attended, self._hidden, num_rows, adds=True),
            *self._feed_forward_jobs(layer, num_rows),
        ]

    def _feed_forward_jobs(self, layer: LayerParts, num_rows: int) -> list[tuple[str, Job]]:
        parts, norm = layer.feed_forward, layer.mlp_norm
        if isinstance(parts, MixtureParts):
            return self._mixture_jobs(parts, norm, num_rows)
        return self._up_and_down_jobs(parts, norm, self._hidden, num_rows, adds=True)

    def _up_and_down_jobs(
        self, parts: FeedForwardParts, norm: RowNorm, output: torch.Tensor, num_rows: int, *, adds: bool
    ) -> list[tuple[str, Job]]:
        return [
            *self._product_jobs("up", parts.up, self._hidden, self._middle, num_rows, norm=norm),
            *self._product_jobs(
                "down", parts.down, self._middle, output, num_rows, source=parts.activation, adds=adds
            ),
        ]

    def _mixture_jobs(self, parts: MixtureParts, norm: RowNorm, num_rows: int) -> list[tuple[str, Job]]:
        """What is added to the rows comes last: until then all of it reads them."""
        rooms, hidden = self._mixtures, self._hidden
        memory = rooms.of(parts)
        jobs = self._product_jobs("router", parts.router, hidden, memory.logits, num_rows, norm=norm)
        shared = logits = 0
        if parts.shared is not None:
            shared = rooms.shared.data_ptr()
            jobs += self._up_and_down_jobs(parts.shared, norm, rooms.shared, num_rows, adds=False)
        if parts.shared_gate:
            logits = rooms.shared_logits.data_ptr()
            jobs += self._product_jobs(
                "gate of the shared expert", parts.shared_gate, hidden, rooms.shared_logits, num_rows, norm=norm
            )
        mixed = Mixed(_rows(hidden), adds=True, shared=shared, shared_logits=logits)
        return jobs + parts.experts.jobs(self._kernels, memory, _rows(hidden), num_rows, mixed, norm=norm)

    def _product_jobs(
        self,
        name: str,
        products: Products,
        rows: torch.Tensor,
        output: torch.Tensor,
        num_rows: int,
        *,
        source: str = "plain",
        norm: RowNorm | None = None,
        adds: bool = False,
    ) -> list[tuple[str, Job]]:
        jobs = product_jobs(
            self._kernels, products, _rows(rows), _rows(output), num_rows, self._inputs,
            source=source, norm=norm, adds=adds,
        )  # fmt: skip
        return [(f"input of {name}" if makes_inputs else name, job) for makes_inputs, job in jobs]

    def _norm_jobs(self, layer: LayerParts, num_rows: int) -> list[tuple[str, Job]]:
        """All queries of a row by one norm, where they are, and all keys by another."""
        jobs, place, stride = [], self._qkv.data_ptr(), self._qkv.shape[1]
        for norm in layer.width_norms or ():
            width = len(norm.weight)
            arguments = (place, place, width, stride, stride, norm.weight.data_ptr(), 0, float_bits(norm.eps), RUN)
            jobs.append(("heads normed", Job(self._kernels.address(f"{norm.kind}_f32"), num_rows, 1, arguments)))
            place += self._qkv.itemsize * width
        return jobs

    def _heads_job(self, layer: LayerParts, caches: Caches, num_rows: int) -> Job:
        heads, turned_by = self._model.config.heads, layer.turned_by
        turns = None if turned_by is None else self._turns[turned_by]
        query_norm, key_norm = layer.head_norms or (None, None)
        units = num_rows * (heads.num_heads + 2 * heads.num_kv_heads)
        arguments = (
            self._qkv.data_ptr(), caches.key.data_ptr(), caches.value.data_ptr(), self._slots.data_ptr(),
            0 if turns is None else turns.data_ptr(), heads.num_heads, heads.num_kv_heads, heads.head_dim,
            0 if turns is None else len(turns) // (2 * self._most_rows),
            0 if query_norm is None else query_norm.weight.data_ptr(),
            0 if key_norm is None else key_norm.weight.data_ptr(),
            float_bits(0.0 if query_norm is None else query_norm.eps), float_bits(layer.scale), self._block_size,
            *caches.page_arguments,
        )  # fmt: skip
        address = self._kernels.address(f"heads_{cache_name(caches.key)}")
        return Job(address, units, max(1, units // (2 * self._kernels.pool.num_threads)), arguments)

    def _attend_jobs(self, layer: LayerParts, caches: Caches, num_rows: int) -> list[tuple[str, Job]]:
        heads, parts = self._model.config.heads, self._parts
        output = self._attended if parts == 1 else self._of_parts
        arguments = (
            *self._attention_arguments(layer, caches, output, self._lens),
            parts, ALL_TOKENS if parts == 1 else PART_TOKENS, num_rows, self._statistics.data_ptr(),
            self._runs.data_ptr(), *(caches.page_arguments or (0, 0)), address_of(layer.sinks),
        )  # fmt: skip
        address = self._kernels.address(f"attention_{cache_name(caches.key)}")
        attend = Job(address, self._attend_units(), 1, arguments)
        if parts == 1:
            return [(_ATTENTION, attend)]
        units = num_rows * heads.num_heads
        arguments = (
            output.data_ptr(), self._statistics.data_ptr(), self._attended.data_ptr(), parts, units, heads.head_dim,
        )  # fmt: skip
        merge = Job(self._kernels.address("merge_attention"), units, 1, arguments)
        return [(_ATTENTION, attend), ("parts of attention together", merge)]

    def _attend_units(self) -> int:
        """Of a layer's attention, in this step."""
        return self._num_runs * self._model.config.heads.num_kv_heads * self._parts

    def _attention_arguments(
        self, layer: LayerParts, caches: Caches, output: torch.Tensor, rows: torch.Tensor
    ) -> tuple[int, ...]:
        """What kernels of attention have in common; `rows` is what they know of each row."""
        heads = self._model.config.heads
        return (
            self._qkv.data_ptr(), output.data_ptr(), caches.key.data_ptr(), caches.value.data_ptr(),
            self._tables.data_ptr(), rows.data_ptr(), heads.num_heads, heads.num_kv_heads, heads.head_dim,
            self._block_size, self._tables.shape[1], self._qkv.shape[1], layer.window,
        )  # fmt: skip


def runs_of(tables: list[list[int]], lengths: list[int], most: int) -> list[tuple[int, int]]:
    """Rows of one block table, the very same one, whose lengths go up by one: the first of each run, and how many.

    Args:
        tables, lengths: of each row.
        most: rows of a run.
    """
    runs: list[tuple[int, int]] = []
    first = 0
    for row in range(1, len(lengths) + 1):
        if (
            row < len(lengths)
            and row - first < most
            and tables[row] is tables[first]
            and lengths[row] == lengths[row - 1] + 1
        ):
            continue
        runs.append((first, row - first))
        first = row
    return runs


def address_of(tensor: torch.Tensor | None) -> int:
    """0: there is none."""
    return 0 if tensor is None else tensor.data_ptr()


def cache_name(cache: torch.Tensor) -> str:
    """What kernels call its type."""
    return _CACHES[cache.dtype]


def _rows(buffer: torch.Tensor) -> Rows:
    return Rows(buffer.data_ptr(), buffer.shape[1])
