"""When tokens came, of several streams that began together, and what that says of them. Knows no engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from pagedchat.bench.table import percentile


@dataclass(slots=True)
class Stream:
    """One reply; times in seconds from when it was asked for."""

    num_tokens: int = 0
    times: list[float] = field(default_factory=list)
    """Of everything that came, one token or several."""

    @property
    def first(self) -> float:
        """When the first token came."""
        return self.times[0]

    @property
    def per_token(self) -> float:
        """Seconds from one token to the next, in the mean."""
        return (self.times[-1] - self.times[0]) / max(1, self.num_tokens - 1)

    @property
    def longest_gap(self) -> float:
        """In which nothing came."""
        return max((after - before for before, after in zip(self.times, self.times[1:], strict=False)), default=0.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all streams of one run; seconds."""

    first: float
    """Until the first token, of the median stream."""
    first_worst: float
    """The same of 99 in a hundred streams."""
    per_token: float
    """From one token to the next, of the median stream."""
    per_token_worst: float
    """The same of the slowest one."""
    longest_gap: float
    """In which a stream that had begun got nothing."""
    pieces: float
    """In which a token came; below 1 several came together."""
    host: float = 0.0
    """Processor time of whoever stands between engine and clients, for each token."""
    host_share: float = 0.0
    """The same as a part of the time until the last stream ended."""
    client_share: float = 0.0
    """Of the busiest process of clients, as such a part."""


def figures(streams: Sequence[Stream], host_seconds: float = 0.0, client_seconds: float = 0.0) -> Figures:
    """Of one run."""
    firsts, per_token = [stream.first for stream in streams], [stream.per_token for stream in streams]
    num_tokens = sum(stream.num_tokens for stream in streams)
    whole = max(stream.times[-1] for stream in streams)
    return Figures(
        first=median(firsts),
        first_worst=percentile(firsts, 99),
        per_token=median(per_token),
        per_token_worst=max(per_token),
        longest_gap=max(stream.longest_gap for stream in streams),
        pieces=sum(len(stream.times) for stream in streams) / num_tokens,
        host=host_seconds / num_tokens,
        host_share=host_seconds / whole,
        client_share=client_seconds / whole,
    )


def median_run(runs: Sequence[Figures]) -> Figures:
    """Of each figure the median."""
    return Figures(*(median(getattr(run, name) for run in runs) for name in Figures.__dataclass_fields__))
