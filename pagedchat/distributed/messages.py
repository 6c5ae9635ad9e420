"""What ranks say to each other beside their sums: typed structs with a stable binary encoding. Knows no process."""

import msgspec

from pagedchat.config import EngineConfig
from pagedchat.engine.output import BlockOp
from pagedchat.engine.sampling_params import SamplingParams


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message; the tag says which."""


# --- from rank 0 ------------------------------------------------------------------------------------


class Join(_Message, frozen=True):
    """Load a part of a model."""

    config: EngineConfig
    streams: bool
    """See `runtime.loading.build.load_model`."""
    rank: int
    size: int
    folder: str
    """Of nobody else's, where ranks find each other."""


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence's part in a batch, and what has changed of the sequence since it was told of last."""

    seq_id: int
    start: int
    num_tokens: int
    samples: bool
    is_row: bool
    kept_tokens: int
    """So many of those that were told before are still the first ones."""
    token_ids: list[int]
    """What comes behind them."""
    kept_blocks: int
    block_ids: list[int]
    """The same of its block table."""
    num_prompt_tokens: int
    seed: int
    writable_len: int
    stop_length: int
    sampling_params: SamplingParams | None
    """None: as before."""


class NewBatch(_Message, frozen=True):
    """Run a batch."""

    number: int
    parts: list[Part]
    block_ops: list[BlockOp]
    searches: bool
    forgotten: list[int]
    """Sequences of which nothing told before is referred to any more."""


class NextOfRun(_Message, frozen=True):
    """Run the batch before once more, every sequence one token further."""

    number: int
    token_ids: list[int]
    """The last token of each."""
    grown: dict[int, list[int]]
    """Indices in the batch, and the blocks that have come to the ends of their block tables."""
    room: int
    """See `engine.output.DecodeRun`."""
    writable_lens: list[int]
    block_ops: list[BlockOp]


class PrepareMore(_Message, frozen=True):
    """Make ready one more thing that later batches may use; see `runtime.loading.loaded.LoadedModel`."""

    number: int
    """As of a batch."""


ToWorker = Join | NewBatch | NextOfRun | PrepareMore


# --- to rank 0 --------------------------------------------------------------------------------------


class Arrived(_Message, frozen=True):
    """It is about to connect with the others."""


class Loaded(_Message, frozen=True):
    """The part is there, and the rank waits for batches."""

    device: str
    """For people."""
    memory: int
    """Bytes of its blocks."""


class Beat(_Message, frozen=True):
    """It lives."""

    seconds: float
    """For how long it has been at the present batch; 0 while it waits."""


class Done(_Message, frozen=True):
    """A batch is computed, or whatever else was to be done."""

    number: int
    seconds: float


class Failed(_Message, frozen=True):
    """It ends, and why, in sentences for people."""

    message: str
    hint: str = ""


FromWorker = Arrived | Loaded | Beat | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encoded(message: ToWorker | FromWorker) -> bytes:
    """As it goes through a pipe."""
    return _encoder.encode(message)


def to_worker(data: bytes) -> ToWorker:
    """What rank 0 has said."""
    return _to_worker.decode(data)


def from_worker(data: bytes) -> FromWorker:
    """What another rank has said."""
    return _from_worker.decode(data)
