"""What the other ranks put together from what they are told is the batch that rank 0 runs."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pagedchat.distributed import batches
from pagedchat.distributed.batches import Listener, Teller, num_common
from pagedchat.distributed.messages import encoded, to_worker
from pagedchat.engine.output import BlockOp, DecodeRun, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence

TOKENS = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=6)
BLOCKS = st.lists(st.integers(0, 500), max_size=4)


class Telling(RuleBasedStateMachine):
    """Sequences that are extended, rewound and forked; runs of decodes; rows of drafts; ranks that forget."""

    @initialize()
    def begin(self) -> None:
        self.teller, self.listener = Teller(), Listener()
        self.sequences: list[Sequence] = []
        self.last: list[ScheduledSequence] = []
        self.run: DecodeRun | None = None
        self.number = 0
        batches.MOST_KNOWN = 3

    def tell(self, batch: SchedulerOutput) -> None:
        self.number += 1
        heard = self.listener.hear(to_worker(encoded(self.teller.tell(batch, self.number))))  # type: ignore[arg-type]
        self.last = batch.scheduled
        assert heard.block_ops == batch.block_ops
        assert (heard.num_tokens, heard.searches) == (batch.num_tokens, batch.searches)
        assert (heard.run is None) == (batch.run is None)
        for told, part in zip(heard.scheduled, batch.scheduled, strict=True):
            assert (told.start, told.num_tokens, told.samples) == (part.start, part.num_tokens, part.samples)
            for name in ("seq_id", "token_ids", "block_table", "sampling_params", "seed", "writable_len",
                         "stop_length", "num_prompt_tokens"):  # fmt: skip
                assert getattr(told.sequence, name) == getattr(part.sequence, name), name

    @rule(tokens=TOKENS, blocks=BLOCKS, seed=st.integers(0, 9))
    def opens(self, tokens: list[int], blocks: list[int], seed: int) -> None:
        seq = Sequence(len(self.sequences))
        seq.token_ids, seq.block_table, seq.seed = tokens, blocks, seed
        seq.sampling_params = SamplingParams(top_k=seed, stop=["x"] * (seed % 2))
        seq.num_prompt_tokens, seq.writable_len, seq.stop_length = len(tokens), seed, 50
        self.sequences.append(seq)

    @rule(data=st.data(), tokens=TOKENS, blocks=BLOCKS)
    def rewinds_and_goes_on(self, data: st.DataObject, tokens: list[int], blocks: list[int]) -> None:
        if self.sequences:
            seq = data.draw(st.sampled_from(self.sequences))
            seq.token_ids[data.draw(st.integers(0, len(seq.token_ids))) :] = tokens
            seq.block_table[data.draw(st.integers(0, len(seq.block_table))) :] = blocks
            self.run = None

    @rule(data=st.data(), searches=st.booleans())
    def runs_some(self, data: st.DataObject, searches: bool) -> None:
        some = data.draw(st.lists(st.sampled_from(self.sequences), unique_by=id)) if self.sequences else []
        if not some:
            return
        parts = [ScheduledSequence(seq, len(seq.token_ids) - 1, 1, True) for seq in some]
        batch = SchedulerOutput(1, parts, [BlockOp("copy", 1, 2)], len(parts))
        batch.searches = searches
        self.tell(batch)
        self.run = None if searches else DecodeRun()

    @rule(data=st.data())
    def goes_on_in_a_run(self, data: st.DataObject) -> None:
        if self.run is None:
            return
        parts = [ScheduledSequence(part.sequence, part.start + 1, 1, True) for part in self.last]
        for part in parts:
            part.sequence.token_ids.append(data.draw(st.integers(0, 99)))
            part.sequence.writable_len += 1
        self.run.grown = data.draw(st.lists(st.integers(0, len(parts) - 1), unique=True))
        for i in self.run.grown:
            parts[i].sequence.block_table.append(self.number)
        self.tell(SchedulerOutput(1, parts, [], len(parts), self.run))

    @rule(data=st.data(), draft=TOKENS)
    def runs_rows_of_a_draft(self, data: st.DataObject, draft: list[int]) -> None:
        if not self.sequences:
            return
        seq, rows = data.draw(st.sampled_from(self.sequences)), []
        for i in range(len(draft)):
            row = Sequence(seq.seq_id)
            row.token_ids, row.block_table = seq.token_ids + draft[:i], seq.block_table
            row.sampling_params, row.seed, row.stop_length = seq.sampling_params, seq.seed, seq.stop_length
            rows.append(ScheduledSequence(row, len(seq.token_ids) - 1 + i, 1, True, is_row=True))
        self.tell(SchedulerOutput(1, rows, [], len(rows)))
        self.run = None


TestTelling = Telling.TestCase
TestTelling.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_a_batch_that_was_not_told_whole_is_told_anew() -> None:
    """After a batch has failed, its parts are run one by one; a run may then go on."""
    teller, seqs = Teller(), [Sequence(0), Sequence(1)]
    for seq in seqs:
        seq.token_ids, seq.block_table = [5, 6], [seq.seq_id]
    parts = [ScheduledSequence(seq, 1, 1, True) for seq in seqs]
    teller.tell(SchedulerOutput(1, parts, [], 2), 1)
    teller.tell(SchedulerOutput(1, parts[1:], [], 1), 2)
    for seq in seqs:
        seq.token_ids.append(7)
    run = SchedulerOutput(2, [ScheduledSequence(seq, 2, 1, True) for seq in seqs], [], 2, DecodeRun())
    message = teller.tell(run, 3)
    assert [part.token_ids for part in message.parts] == [[7], [7]]  # type: ignore[union-attr]


def test_common_beginnings() -> None:
    assert num_common([], [1]) == 0
    assert num_common([1, 2, 3], [1, 2]) == 2
    assert num_common([1, 2, 3, 4], [1, 2, 9, 4]) == 2
    assert num_common([*range(1000)], [*range(999), 5, 6]) == 999
