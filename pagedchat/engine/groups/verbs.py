"""What groups ask of the engine: its verbs, as they are called between two steps. Knows not how they work."""

from collections.abc import Sequence as Items
from typing import Protocol

from pagedchat.cache_events import CacheEvent, FinishReason, FreeCause
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence


class Verbs(Protocol):
    """`engine.core.EngineCore`, as far as groups know it."""

    limits: EngineLimits
    sequences: dict[int, Sequence]
    failures: dict[int, BaseException]

    def open(self, seq_id: int | None = None, priority: int = 0, *, for_seq_id: int = -1) -> int:
        """A new sequence without tokens."""
        ...

    def extend(self, seq_id: int, token_ids: list[int], params: SamplingParams) -> None:
        """Append tokens and ask for generation."""
        ...

    def fork(
        self,
        seq_id: int,
        new_id: int | None = None,
        params: SamplingParams | None = None,
        *,
        length: int | None = None,
        token_ids: Items[int] = (),
        grouped: bool = False,
    ) -> int:
        """A second sequence over the same blocks."""
        ...

    def fork_into(self, seq_id: int, place_id: int, token_id: int, *, moved: bool) -> int:
        """A fork in the place of a sequence that is given up."""
        ...

    def stop(self, seq_id: int, reason: FinishReason = "abort") -> None:
        """End generation now and park the sequence."""
        ...

    def close(self, seq_id: int, cause: FreeCause = "") -> None:
        """Drop the sequence."""
        ...

    def tell(self, event: CacheEvent) -> None:
        """Have the next report say this."""
        ...
