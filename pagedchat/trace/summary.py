"""What is in a recording, in figures."""

from dataclasses import dataclass

from pagedchat.trace.format import VERSION, Kind
from pagedchat.trace.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Of a whole file."""

    format: int
    program: str
    """Version of pagedchat that recorded it."""
    recorded_at: float
    """When recording began, in seconds since 1970."""
    model: str
    device: str
    dtype: str
    num_blocks: int
    block_size: int
    first_step: int
    last_step: int
    num_reports: int
    """Steps, and commands reported between them."""
    seconds: float
    """From the first report to the last, by the engine's clock."""
    chats: dict[int, str]
    """Label of every sequence at the end."""
    prefill_tokens: int
    decode_tokens: int
    num_texts: int
    """Tokens whose text is known."""
    num_keyframes: int
    num_bytes: int
    bytes_per_step: float
    """Of everything in the file."""
    whole: bool
    """Whether the recording ended of its own will."""
    damage: str
    """What is missing, in one sentence; empty if nothing is."""


def summarize(recording: Recording, num_bytes: int) -> TraceSummary:
    """Read the first report and the last one, and count the rest.

    Args:
        recording: of a file.
        num_bytes: the file's size.

    Raises:
        TraceError: the first or the last report is damaged.
    """
    info = recording.start.info
    empty = recording.end == recording.first
    first = None if empty else recording.report(recording.first + 1)
    last = None if empty else recording.report(recording.end)
    num_steps = recording.last_step - recording.first_step
    return TraceSummary(
        format=VERSION,
        program=recording.start.program,
        recorded_at=recording.start.time,
        model=info.model,
        device=info.device,
        dtype=info.dtype,
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        first_step=recording.first_step,
        last_step=recording.last_step,
        num_reports=recording.end - recording.first,
        seconds=round(last.time - first.time, 6) if first and last else 0.0,
        chats=dict(recording.labels_at(recording.end)),
        prefill_tokens=last.counters.prefill_tokens if last else 0,
        decode_tokens=last.counters.decode_tokens if last else 0,
        num_texts=len(recording.token_texts),
        num_keyframes=sum(chunk.header.kind == Kind.KEYFRAME for chunk in recording.chunks),
        num_bytes=num_bytes,
        bytes_per_step=round(num_bytes / num_steps, 1) if num_steps else 0.0,
        whole=recording.ended and not recording.damage,
        damage=recording.damage,
    )
