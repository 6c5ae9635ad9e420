"""The numbers an engine is built with, once the model and the machine are known."""

from dataclasses import dataclass, field

from pagedchat.bounds import INT32_MAX
from pagedchat.config import PreemptionMode, SpeculationConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What `EngineCore` needs to know; nothing in it changes while the engine lives."""

    num_blocks: int
    """Device blocks."""
    num_host_blocks: int = 0
    """Host blocks for swapping."""
    block_size: int = 16
    model_len: int = 2048
    """Tokens the model's positions allow in one sequence."""
    vocab_size: int = INT32_MAX
    """Token ids of the model are below it."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    preemption_mode: PreemptionMode = "recompute"
    eos_token_ids: frozenset[int] = frozenset()
    """Tokens with which the model ends a text."""
    seed: int = 0
    reserve_ahead: bool = False
    """Whether a sequence gets its next block at least one step before it writes there, where there are blocks to
    spare: a runner may then begin a step before it is asked for."""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    """Which drafts requests get that do not say."""
    most_draft_rows: int = 32
    """Tokens of a step that decodes with drafts, those included, that its runner is quick with."""

    @property
    def max_len(self) -> int:
        """Tokens one sequence may hold: what the model allows and the whole pool can store."""
        return min(self.model_len, self.num_blocks * self.block_size)
