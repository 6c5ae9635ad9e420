"""What an engine tells of its cache: `python -m tools.watch_kv_events [ENDPOINT] [--replay ENDPOINT]`.

An example for writing a subscriber, made from vLLM's schema alone, so it reads vLLM's events as well as ours. It
takes nothing of pagedchat; copy it. What it missed it asks for; a number that was there before means that another
engine has begun, so it begins anew.
"""

import argparse
import sys
import time
from typing import Any

import msgspec
import zmq

END = b"\xff" * 8
SECONDS_FOR_REPLAY = 2.0


class Tree:
    """Blocks by hash: parent and tokens of each."""

    def __init__(self) -> None:
        self.blocks: dict[int | bytes, tuple[int | bytes | None, list[int]]] = {}
        self.next_seq = 0

    def take(self, payload: bytes) -> str:
        """Fold one batch in; returns what it says, in a line."""
        _, events, *_ = msgspec.msgpack.decode(payload)
        return "; ".join(self._fold(*_named(event)) for event in events)

    def _fold(self, name: str, fields: dict[str, Any]) -> str:
        match name:
            case "BlockStored":
                first, size, tokens = fields["parent_block_hash"], fields["block_size"], fields["token_ids"]
                parent = first
                for i, block_hash in enumerate(fields["block_hashes"]):
                    self.blocks[block_hash] = (parent, tokens[i * size : (i + 1) * size])
                    parent = block_hash
                behind = (
                    "" if fields["parent_block_hash"] is None else f" behind {_short(fields['parent_block_hash'])}"
                )
                return f"+{len(fields['block_hashes'])} ({_short(parent)}){behind}"
            case "BlockRemoved":
                for block_hash in fields["block_hashes"]:
                    self.blocks.pop(block_hash, None)
                return f"-{len(fields['block_hashes'])}"
            case "AllBlocksCleared":
                self.blocks.clear()
                return "cleared"
        return f"{name}?"


_STORED = ("block_hashes", "parent_block_hash", "token_ids", "block_size")


def _named(event: Any) -> tuple[str, dict[str, Any]]:
    """A map of newer releases, or an array of those before vLLM 0.24, as name and fields."""
    if isinstance(event, dict):
        return event.pop("type"), event
    name, *values = event
    return name, dict(zip(_STORED, values, strict=False))


def _short(block_hash: int | bytes) -> str:
    data = block_hash if isinstance(block_hash, bytes) else block_hash.to_bytes(8, "big")
    return data.hex()[-8:]


def watch(endpoint: str, replay_endpoint: str | None, topic: str) -> None:
    """Print every batch until ^C."""
    context: zmq.Context[Any] = zmq.Context()
    live = context.socket(zmq.SUB)
    live.setsockopt(zmq.SUBSCRIBE, topic.encode())
    live.connect(endpoint)
    replay = None
    if replay_endpoint is not None:
        replay = context.socket(zmq.DEALER)
        replay.connect(replay_endpoint)
    tree = Tree()
    try:
        while True:
            _, seq_bytes, payload = live.recv_multipart()
            seq = int.from_bytes(seq_bytes, "big")
            if seq < tree.next_seq:  # another engine
                tree.blocks.clear()
                tree.next_seq = 0
            if seq > tree.next_seq and replay is not None:
                _catch_up(tree, replay, seq)
            if seq >= tree.next_seq:
                _show(tree, seq, payload, "missed some" if seq > tree.next_seq else "")
    finally:
        context.destroy(linger=0)


def _catch_up(tree: Tree, replay: "zmq.Socket[Any]", before: int) -> None:
    """What is still kept of what was missed; answers to an earlier question are passed over."""
    replay.send_multipart([b"", tree.next_seq.to_bytes(8, "big")])
    deadline = time.monotonic() + SECONDS_FOR_REPLAY
    while time.monotonic() < deadline:
        if not replay.poll(100):
            continue
        *_, seq_bytes, payload = replay.recv_multipart()  # vLLM 0.26 and later put the topic before them
        seq = int.from_bytes(seq_bytes, "big")
        if seq_bytes == END or seq >= before:
            return
        if seq >= tree.next_seq:
            _show(tree, seq, payload, "again")


def _show(tree: Tree, seq: int, payload: bytes, note: str) -> None:
    line = tree.take(payload)
    tree.next_seq = seq + 1
    print(f"{seq:6} {len(tree.blocks):6} blocks  {line}{f'  [{note}]' if note else ''}", flush=True)


def main() -> int:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.watch_kv_events")
    parser.add_argument("endpoint", nargs="?", default="tcp://127.0.0.1:5557")
    parser.add_argument("--replay", metavar="ENDPOINT", help="where to ask for what was missed")
    parser.add_argument("--topic", default="")
    args = parser.parse_args()
    try:
        watch(args.endpoint, args.replay, args.topic)
    except KeyboardInterrupt:
        return 0
    except zmq.ZMQError as error:
        print(f"{args.endpoint}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
