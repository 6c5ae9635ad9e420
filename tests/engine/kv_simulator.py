"""A model runner that keeps a symbolic KV cache and checks every read.

What a real model writes into a slot depends on the whole prefix up to that token, so the simulator writes the
prefix's fingerprint there. Before it answers it reads every slot of every scheduled sequence back through the
block table: one block copied too late, shared too long or evicted too early, and a fingerprint differs. The next
token is a function of the prefix, so what a sequence generates cannot depend on how it was scheduled.
"""

from collections.abc import Callable, Set

from pagedchat.engine.output import BlockOp, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sequence import Sequence


def fingerprint(previous: int, token: int) -> int:
    """61 bits that depend on all tokens so far; the same in every process, as these are numbers."""
    return hash((previous, token)) & (1 << 61) - 1


def next_token(prefix: int, vocab: int) -> int:
    return prefix % vocab


def expected_reply(prompt: list[int], vocab: int, max_tokens: int, stop: Set[int] = frozenset()) -> list[int]:
    """What any scheduling must generate."""
    return reply_of(prompt, lambda state: next_token(state, vocab), max_tokens, stop)


def reply_of(prompt: list[int], choose: Callable[[int], int], max_tokens: int, stop: Set[int]) -> list[int]:
    """The same where `choose` makes a token of a prefix's fingerprint."""
    state = 0
    for token in prompt:
        state = fingerprint(state, token)
    reply: list[int] = []
    while len(reply) < max_tokens:
        token = choose(state)
        reply.append(token)
        if token in stop:
            break
        state = fingerprint(state, token)
    return reply


class KVSimulator:
    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0, vocab: int = 5) -> None:
        self.block_size = block_size
        self.vocab = vocab
        self.device: list[list[int | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.host: list[list[int | None]] = [[None] * block_size for _ in range(num_host_blocks)]
        self.batch_sizes: list[int] = []
        self.at: Callable[[str, SchedulerOutput], None] = lambda place, batch: None
        """Called at every place of a step at which a runner may break off."""
        self._known: dict[int, tuple[list[int], list[int]]] = {}
        """Sequence -> its tokens when it ran last, and their prefixes' fingerprints."""

    def choose(self, prefix: int) -> int:
        """The token that follows a prefix with this fingerprint."""
        return next_token(prefix, self.vocab)

    def choose_all(self, prefixes: list[int]) -> list[int]:
        """The same for all that a step chooses for."""
        return [self.choose(prefix) for prefix in prefixes]

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        assert batch.num_tokens == sum(item.num_tokens for item in batch.scheduled)
        self.batch_sizes.append(batch.num_tokens)
        self.at("begun", batch)
        for op in batch.block_ops.copy():
            source = self.host if op.kind == "swap_in" else self.device
            target = self.host if op.kind == "swap_out" else self.device
            target[op.dst] = source[op.src].copy()
            self.also_move(op)
            self.at("in a move", batch)
            batch.block_ops.remove(op)
        self.at("moved", batch)
        # In some steps, like a runner that is done with its part before the device is; in some not at all.
        if batch.meanwhile is not None and batch.step % 4 == 0:
            batch.meanwhile()
        self._write_all(batch)
        if batch.meanwhile is not None and batch.step % 4 == 2:
            batch.meanwhile()
        self.at("written", batch)
        prefixes = [self._read(item) for item in batch.scheduled]
        chosen = iter(self.choose_all([prefix for prefix in prefixes if prefix is not None]))
        return ModelRunnerOutput([[] if prefix is None else [next(chosen)] for prefix in prefixes])

    def also_move(self, op: BlockOp) -> None:
        """For whoever keeps more of a block than symbols."""

    def also_write(self, item: ScheduledSequence, states: list[int]) -> None:
        """Fingerprints of the tokens that this step computes."""

    def also_read(self, item: ScheduledSequence, states: list[int]) -> None:
        """Fingerprints of all tokens so far, as the symbols have them."""

    def check(self) -> None:
        """It never breaks for good."""

    def _write_all(self, batch: SchedulerOutput) -> None:
        written: set[tuple[int, int]] = set()
        for item in batch.scheduled:
            self.at("writing", batch)
            slots = self._write(item)
            assert written.isdisjoint(slots), "two sequences write to one slot"
            written.update(slots)

    def _write(self, item: ScheduledSequence) -> list[tuple[int, int]]:
        end = item.start + item.num_tokens
        assert item.num_tokens > 0
        assert item.samples == (end == len(item.sequence.token_ids))
        states, table, size = self._states(item.sequence), item.sequence.block_table, self.block_size
        slots = [(table[i // size], i % size) for i in range(item.start, end)]
        for (block_id, offset), state in zip(slots, states[item.start : end], strict=True):
            self.device[block_id][offset] = state
        self.also_write(item, states[item.start : end])
        return slots

    def _read(self, item: ScheduledSequence) -> int | None:
        """The prefix that a token is to be chosen for, if one is."""
        seq, end = item.sequence, item.start + item.num_tokens
        states, size = self._states(seq), self.block_size
        for index in range(-(-end // size)):
            wanted = states[index * size : min(end, (index + 1) * size)]
            found = self.device[seq.block_table[index]][: len(wanted)]
            assert found == wanted, f"{seq} reads another's KV in block {seq.block_table[index]}, entry {index}"
        self.also_read(item, states[:end])
        return states[end - 1] if item.samples else None

    def _states(self, seq: Sequence) -> list[int]:
        tokens, states = self._known.get(seq.seq_id, ([], []))
        known = len(tokens)
        if seq.token_ids[:known] != tokens:
            tokens, states, known = [], [], 0
        if known < len(seq.token_ids):
            tokens += seq.token_ids[known:]
            state = states[-1] if states else 0
            for token in tokens[known:]:
                state = fingerprint(state, token)
                states.append(state)
            self._known[seq.seq_id] = (tokens, states)
        return states


class SmallerModel(KVSimulator):
    """A draft model over a cache of its own: it says what the other says, but for one prefix in five."""

    def choose(self, prefix: int) -> int:
        return next_token(prefix, self.vocab) if prefix % 5 else prefix % 7 % self.vocab
