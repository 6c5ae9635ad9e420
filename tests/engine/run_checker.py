"""A model runner that holds every batch of a run against the one before, and leaves the work to another runner."""

from itertools import pairwise

from pagedchat.engine.output import DecodeRun, ModelRunner, ModelRunnerOutput, SchedulerOutput


class RunChecker:
    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self.run: DecodeRun | None = None
        self.num_in_runs = 0
        """Batches that belonged to a run."""
        self._lens: list[tuple[int, int]] = []
        self._tables: list[list[int]] = []
        self.chooses_beams = getattr(runner, "chooses_beams", False)

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        parts = batch.scheduled
        assert batch.num_tokens == sum(part.num_tokens for part in parts)
        assert all(part.start == part.sequence.num_computed for part in parts)
        if batch.run is not None:
            self.check_run(batch, batch.run)
        self.run = batch.run
        self._lens = [(part.sequence.seq_id, len(part.sequence) + 1) for part in parts]
        self._tables = [part.sequence.block_table.copy() for part in parts]
        return self.runner.execute(batch)

    def check(self) -> None:
        self.runner.check()

    def check_run(self, batch: SchedulerOutput, run: DecodeRun) -> None:
        """The batch before is known, even if it was the first of the run, which does not say so yet."""
        self.num_in_runs += 1
        sequences = [part.sequence for part in batch.scheduled]
        beams = {id(sequence) for search in run.searches for sequence, _ in search.standing()}
        assert [len(sequence) for sequence in sequences] == [length for _, length in self._lens]
        assert all(part.num_tokens == 1 and part.samples for part in batch.scheduled)
        for i, (sequence, before) in enumerate(zip(sequences, self._tables, strict=True)):
            now = sequence.block_table
            if id(sequence) in beams:  # one that took this place has its own full blocks
                num_full = sequence.num_computed // self._block_size(run)
                assert now[num_full : len(before)] == before[num_full:]
            else:
                assert now[: len(before)] == before
                assert sequence.seq_id == self._lens[i][0]
            assert (len(now) > len(before)) == (i in run.grown)
            assert sequence.writable_len - sequence.num_computed >= run.room > 0

    def _block_size(self, run: DecodeRun) -> int:
        return next(
            seq.writable_len // len(seq.block_table) for search in run.searches for seq, _ in search.standing()
        )


def distinct(runs: list[DecodeRun | None]) -> int:
    """Runs among those of successive batches."""
    return sum(after is not None and after is not before for before, after in pairwise([None, *runs]))
