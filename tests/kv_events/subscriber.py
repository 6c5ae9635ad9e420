"""A subscriber as a stranger writes it, from vLLM's published schema alone; it imports nothing of pagedchat.

`Tree` is what it knows of one engine's cache, and `Subscriber` keeps it right over ZeroMQ.
"""

from typing import Any

import msgspec
import zmq

Hash = int | bytes


class Stored(msgspec.Struct, tag="BlockStored", omit_defaults=True):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class Removed(msgspec.Struct, tag="BlockRemoved", omit_defaults=True):
    block_hashes: list[Hash]
    medium: str | None
    group_idx: int | None = None


class Cleared(msgspec.Struct, tag="AllBlocksCleared", omit_defaults=True):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[Stored | Removed | Cleared]
    data_parallel_rank: int | None = None


class OldStored(msgspec.Struct, tag="BlockStored", array_like=True, omit_defaults=True):
    """As the first releases had it: whatever came later is behind it, and passed over."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None


class OldRemoved(msgspec.Struct, tag="BlockRemoved", array_like=True, omit_defaults=True):
    block_hashes: list[Hash]


class OldCleared(msgspec.Struct, tag="AllBlocksCleared", array_like=True, omit_defaults=True):
    pass


class OldBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[OldStored | OldRemoved | OldCleared]


BATCHES = {"map": Batch, "array": OldBatch}


class Tree:
    """Blocks by hash, each with its parent and its tokens."""

    def __init__(self, encoding: str) -> None:
        self.decoder = msgspec.msgpack.Decoder(BATCHES[encoding])
        self.blocks: dict[Hash, tuple[Hash | None, tuple[int, ...]]] = {}
        self.num_clears = 0

    def take(self, payload: bytes) -> None:
        for event in self.decoder.decode(payload).events:
            match event:
                case Stored() | OldStored():
                    parent, size = event.parent_block_hash, event.block_size
                    assert len(event.token_ids) == size * len(event.block_hashes)
                    for i, block_hash in enumerate(event.block_hashes):
                        assert block_hash not in self.blocks
                        self.blocks[block_hash] = (parent, tuple(event.token_ids[i * size : (i + 1) * size]))
                        parent = block_hash
                case Removed() | OldRemoved():
                    for block_hash in event.block_hashes:
                        del self.blocks[block_hash]
                case Cleared() | OldCleared():
                    self.blocks.clear()
                    self.num_clears += 1


class Subscriber:
    """Follows one publisher; asks for what it missed, and for all there is at the beginning."""

    def __init__(
        self, endpoint: str, replay_endpoint: str, encoding: str = "map", topic: str = "", buffer: int = -1
    ) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.tree = Tree(encoding)
        self.topic = topic.encode()
        self.has_topic_in_replay = encoding == "map"
        self.live = self.context.socket(zmq.SUB)
        self.live.setsockopt(zmq.SUBSCRIBE, self.topic)
        self.live.setsockopt(zmq.RCVBUF, buffer)
        self.live.setsockopt(zmq.RCVHWM, 1 if buffer > 0 else 1000)
        self.live.connect(endpoint)
        self.replay = self.context.socket(zmq.DEALER)
        self.replay.connect(replay_endpoint)
        self.next = 0
        self.num_replayed = 0

    def close(self) -> None:
        self.context.destroy(linger=0)

    def receive(self, seconds: float = 10.0) -> int:
        """The next live batch, after what was missed before it; returns its number."""
        assert self.live.poll(seconds * 1000), "nothing came"
        topic, seq_bytes, payload = self.live.recv_multipart()
        assert topic == self.topic
        assert len(seq_bytes) == 8
        seq = int.from_bytes(seq_bytes, "big")
        if seq > self.next:
            self.catch_up()
        if seq == self.next:
            self.take(seq, payload)
        return seq

    def take_live(self) -> int:
        """Live batches until no more come; how many there were."""
        count = 0
        while self.live.poll(200):
            self.receive()
            count += 1
        return count

    def catch_up(self) -> None:
        """All that is kept from the next one on."""
        self.replay.send_multipart([b"", self.next.to_bytes(8, "big")])
        while True:
            assert self.replay.poll(10_000), "no replay came"
            empty, *head, seq_bytes, payload = self.replay.recv_multipart()
            assert empty == b""
            if not payload:
                assert seq_bytes == (-1).to_bytes(8, "big", signed=True)
                assert head == [b""] * self.has_topic_in_replay
                return
            assert head == [self.topic] * self.has_topic_in_replay
            self.take(int.from_bytes(seq_bytes, "big"), payload)
            self.num_replayed += 1

    def take(self, seq: int, payload: bytes) -> None:
        assert seq == self.next
        self.next += 1
        self.tree.take(payload)

    def follow_to(self, last: int) -> None:
        """Until the batch of this number was taken."""
        while self.next <= last:
            self.receive()
