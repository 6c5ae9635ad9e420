"""What a grid of a decode kernel is estimated to cost, by itself and in captured steps. Arithmetic only."""

from dataclasses import dataclass

from pagedchat.ops.attention.decode_grid import TILE_TOKENS, DecodeShape, SplitPlan


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds that parts of a launch take; see `estimate`."""

    launch: float
    wave: float
    turn: float
    """Of a warp that waits for a tile by itself; with each busy warp it is longer by `crowding`."""
    crowding: float
    terabytes_s: float
    power: float
    """How waiting and reading overlap: their sum with 1, the longer of them with many."""
    merging: float
    merging_part: float
    gathering: float
    """In place of merging, in a cluster."""
    gathering_part: float
    gathering_round: float
    """For the pieces that a thread sends."""
    gathering_block: float
    """For each thread block that a multiprocessor has."""
    hidden_turns: float
    """Whose tiles are on their way before the launch has all it waits for."""
    lengths: tuple[float, ...] = (1.0,)
    """Times the mean: for which a plan is to be good, where lengths are only known to be below a limit."""

    @property
    def any_lengths(self) -> bool:
        """Whether lengths are what they may be, and not what they are."""
        return len(self.lengths) > 1


ALONE = Costs(1.482, 1.247, 0.897, 0.0863, 4.5, 2.412, 1.603, 0.0243, 0.3, 0.04, 0.4, 0.0, 0.0)
"""These fit 444 timings on an H200 (1 to 256 sequences of 64 to 32768 tokens, heads of 64 and 128); the plans that
are picked among those are 0.6 % slower than the best on average, 8 % at worst. Those of clusters were chosen with
4,648 timings of 294 shapes (1 to 32 sequences of 96 to 8192 tokens): 1.8 % and 19 %."""
IN_STEPS = Costs(0.0, 0.85, 1.21, 0.038, 5.49, 2.64, 1.367, 0.05, 0.05, 0.05, 0.66, 0.14, 0.465, (0.8, 1.0, 1.3))
"""Chosen with 4,032 timings there of whole layers of four models, of one over fp8 too (1 to 32 sequences of 100 to
30000 tokens): layers take 0.5 % longer than with the best plan on average, 5 % at worst."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be done, and where."""

    num_seqs: int
    columns: int
    """`DecodeShape.columns` of them."""
    max_len: int
    resident: int
    num_multiprocessors: int

    def thread_blocks(self, plan: SplitPlan, num_tokens: int) -> int:
        """That have something to do; of shared out sequences all."""
        most = plan.num_splits * self.columns
        if plan.is_even:
            return most
        return max(self.columns, -(-most * num_tokens // max(1, self.num_seqs * self.max_len)))

    def tiles(self, plan: SplitPlan, num_tokens: int) -> int:
        """Of a thread block."""
        if not plan.is_even:
            return plan.tiles_per_split
        each = -(-num_tokens // (self.num_seqs * TILE_TOKENS))
        return max(plan.tiles_per_split, -(-each // plan.num_splits))


def estimate(shape: DecodeShape, plan: SplitPlan, load: Load, num_tokens: int, costs: Costs) -> float:
    """Microseconds: a launch, waves of thread blocks that wait for tile after tile, and the time of the memory."""
    num_thread_blocks = load.thread_blocks(plan, num_tokens)
    waves = -(-num_thread_blocks // (load.resident * load.num_multiprocessors))
    turns = -(-load.tiles(plan, num_tokens) // plan.num_warps)
    on_one = min(load.resident, -(-num_thread_blocks // load.num_multiprocessors))
    crowd = on_one * plan.num_warps * shape.head_size * shape.element_bytes / 128
    turn = costs.turn * (1 + costs.crowding * crowd)
    waiting = waves * costs.wave + turn * (waves * turns - costs.hidden_turns)
    num_bytes = 2 * shape.element_bytes * num_tokens * shape.num_kv_heads * shape.row_blocks * shape.head_size
    reading = num_bytes / (1e6 * costs.terabytes_s)
    both = float((waiting**costs.power + reading**costs.power) ** (1 / costs.power))
    return costs.launch + _merging(shape, plan, on_one, costs) + both


def _merging(shape: DecodeShape, plan: SplitPlan, on_one: int, costs: Costs) -> float:
    if plan.num_splits == 1:
        return 0.0
    if not plan.gathers:
        return costs.merging + costs.merging_part * plan.num_splits
    rounds = -(-shape.rows * shape.head_size // (4 * 32 * plan.num_warps))
    each = costs.gathering_part * plan.num_splits + costs.gathering_round * rounds
    return costs.gathering + each + costs.gathering_block * on_one
