"""What decodes are to the device: the bucket and the captured step that serve them, and where each of them is in
these. New ones, those that go on after others in a bucket of their own, and newcomers behind prompts.
"""

from collections.abc import Callable
from operator import sub

from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.ahead import RunningStep
from pagedchat.runtime.graphs.decode.buckets import Bucket, bucket_of, shared_bucket, verify_bucket
from pagedchat.runtime.graphs.decode.sharing import share_rows
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, StateBuffers
from pagedchat.runtime.graphs.decode.store import Serving, StepStore
from pagedchat.runtime.graphs.decode.told import keeps_logits
from pagedchat.runtime.step.logprobs import asked_of
from pagedchat.runtime.step.sampler import Choice, any_ruled, choice_for
from pagedchat.runtime.step.sizes import StepSizes


class NewSteps:
    """Finds steps for decodes.

    Args:
        store: what is captured.
        buffers: the steps' memory.
        backend: the cache.
        sizes: of a batch, at most.
    """

    def __init__(self, store: StepStore, buffers: StateBuffers, backend: CudaAttention, sizes: StepSizes) -> None:
        self._store, self._buffers, self._backend = store, buffers, backend
        self._max_num_seqs, self._model_len = sizes.num_seqs, sizes.model_len

    def find(
        self,
        sequences: list[Sequence],
        starts: list[int],
        find: Callable[[Bucket, Choice], Serving | None],
        *,
        reads_rows: bool = False,
    ) -> RunningStep | None:
        """What decodes of tokens at these positions are to the device, by what `find` has for a bucket; None if
        they are too many for it, or if nothing serves them, by now or at all."""
        tables = [sequence.block_table for sequence in sequences]
        lens = [start + 1 for start in starts]
        bucket = self.bucket(len(sequences), max(lens), reads_rows=reads_rows)
        if bucket is None:
            return None
        sharing = None if reads_rows else self._backend.sharing
        shared = share_rows(tables, lens, self._backend.shape.block_size, sharing)
        if shared is not None:
            longest_own = max(map(sub, lens, shared.own_starts))
            bucket = shared_bucket(bucket, shared.num_groups, longest_own)
        serving = find(bucket, choice_for(sequences))
        wants_logits = any_ruled(sequences) or asked_of(sequences)
        if serving is not None and wants_logits and not keeps_logits(serving.step):
            serving = find(bucket, "drawn")
        if serving is None:
            return None
        if serving.bucket.num_groups == 0:
            shared = None
        return RunningStep(
            bucket=serving.bucket,
            step=serving.step,
            number=self._buffers.next_number(),
            choice=serving.choice,
            asked_rows=bucket.num_seqs,
            rows=list(range(len(sequences))) if shared is None else shared.rows,
            sequences=sequences,
            params=[sequence.sampling_params for sequence in sequences],
            seeds=[sequence.seed for sequence in sequences],
            starts=starts,
            tables=[table.copy() for table in tables],
            shared=shared,
            own_starts=[] if shared is None else shared.own_starts,
        )

    def bucket(self, num_seqs: int, longest: int, *, reads_rows: bool = False) -> Bucket | None:
        """For so many sequences, the longest of so many tokens.

        Args:
            num_seqs, longest: these.
            reads_rows: these are rows, of sequences that have drafts.
        """
        if reads_rows:
            return verify_bucket(num_seqs, longest, self._max_num_seqs, self._model_len)
        one_turn = self._store.one_turn(num_seqs)
        return bucket_of(num_seqs, longest, self._max_num_seqs, self._model_len, one_turn)

    def following(
        self, before: RunningStep | None, going: list[int], newcomers: list[Sequence]
    ) -> RunningStep | None:
        """The step of those that go on after another one, and of newcomers; None where there is none by now.

        Args:
            before: that step.
            going: which of its sequences.
            newcomers: their prompts are computed beside it.
        """
        sequences, starts = [*newcomers], [len(sequence.token_ids) for sequence in newcomers]
        if before is not None:
            sequences = [before.sequences[i] for i in going] + sequences
            starts = [before.starts[i] + 1 for i in going] + starts
        if any(sequence.sampling_params.follows_tokens for sequence in sequences):
            return None
        # Beside decodes nobody waits for first tokens alone: the next batch captures, or waits for, what it lacks.
        find = self._store.at_hand if before is None else self._store.own
        following = self.find(sequences, starts, find)
        if following is None or before is None:
            return following
        following.taken = going
        for _ in range(HISTORY_LEN):
            if not self._buffers.share_history(before.bucket, before.number, following.bucket, following.number):
                return following
            following.number = self._buffers.next_number()
        return None  # its tokens would be lost to those of this one
