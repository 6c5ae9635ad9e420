"""Captures the pass that `which_step` names for a bucket at first use. One that cannot be is served by nobody."""

import logging
from functools import partial

import torch

from pagedchat.errors import PagedChatError
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import GraphRecorder, Replayable, build_kernels_of
from pagedchat.runtime.graphs.model_tensors import setting_of, tensors_of
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from pagedchat.runtime.graphs.prefill.forward import Forward, MergedForward, ModuleForward
from pagedchat.runtime.graphs.prefill.step import PrefillOutputs, PrefillStep
from pagedchat.runtime.graphs.step_facts import PrefillFacts
from pagedchat.runtime.graphs.which_step import MERGED, which_prefill

log = logging.getLogger(__name__)

_FEW_TOKENS = 64
"""Up to here, reading the weights takes most of the time of a pass, however many tokens there are."""


class PrefillStore:
    """Captured passes by bucket.

    Args:
        model: whose passes.
        model_len: tokens of a sequence, at most.
        backend: has the cache.
        buffers: what the passes read.
        outputs: what they write.
    """

    def __init__(
        self,
        model: NativeModel,
        model_len: int,
        backend: CudaAttention,
        buffers: PrefillBuffers,
        outputs: PrefillOutputs,
    ) -> None:
        self._backend = backend
        self._buffers, self._outputs = buffers, outputs
        self._recorder = GraphRecorder(backend.device)
        self._setting = setting_of(model, backend)
        self._modules = ModuleForward(model)
        tensors = tensors_of(model, model_len)
        self._merged = None if tensors is None else MergedForward(tensors)
        self._captured: dict[PrefillBucket, Replayable | None] = {}
        self._has_failed = False
        self._without_trust: frozenset[str] = frozenset()

    def __contains__(self, bucket: PrefillBucket) -> bool:
        """Whether it has been captured, or tried in vain."""
        return bucket in self._captured

    def get(self, bucket: PrefillBucket) -> tuple[PrefillBucket, Replayable] | None:
        """What serves a bucket: its own pass, or another one with room for it; None if nothing does.

        Where it has to be captured, what is in the buffers is lost.
        """
        if bucket not in self._captured:
            larger = self._with_more_room(bucket)
            if larger is not None:
                return larger
            self._captured[bucket] = self._record(bucket)
        step = self._captured[bucket]
        return None if step is None else (bucket, step)

    def capture(self, bucket: PrefillBucket) -> bool:
        """See to it that a bucket has its own pass; false if it cannot be captured."""
        if bucket not in self._captured:
            self._captured[bucket] = self._record(bucket)
        return self._captured[bucket] is not None

    def distrust(self) -> str:
        """Serve nobody any more by merged launches, as they were not right; nothing may be under way.

        Returns:
            Their name; empty if none of the captured passes is of that kind.
        """
        if all(self._chosen(bucket) != MERGED for bucket in self._captured):
            return ""
        self._without_trust |= {MERGED}
        self._captured.clear()
        return MERGED

    def _with_more_room(self, bucket: PrefillBucket) -> tuple[PrefillBucket, Replayable] | None:
        """Of those that are captured the one with the fewest tokens that is about as fast."""
        roomy = [
            (other, step)
            for other, step in self._captured.items()
            if step is not None
            and bucket.num_tokens <= other.num_tokens <= max(bucket.num_tokens, _FEW_TOKENS)
            and other.num_seqs >= bucket.num_seqs
            and other.context_len >= bucket.context_len
        ]
        return min(roomy, default=None, key=lambda found: found[0])

    def build_ahead(self, bucket: PrefillBucket) -> BuildAhead | None:
        """Begin to build the kernels of a pass in the background; None where it has none.

        What is in the buffers is lost.
        """
        return build_kernels_of([partial(self._pass, bucket)], self._backend.device)

    def _pass(self, bucket: PrefillBucket) -> PrefillStep:
        self._buffers.upload(bucket, [])
        rows = self._buffers.rows(bucket)
        attention = PrefillAttention(self._backend, rows, bucket)
        return PrefillStep(self._forward(bucket), attention, rows, self._outputs)

    def _forward(self, bucket: PrefillBucket) -> Forward:
        return self._merged if self._merged is not None and self._chosen(bucket) == MERGED else self._modules

    def _chosen(self, bucket: PrefillBucket) -> str:
        facts = PrefillFacts(
            setting=self._setting,
            num_tokens=bucket.num_tokens,
            num_blocks=bucket.num_blocks(self._setting.block_size),
            without_trust=self._without_trust,
        )
        return which_prefill(facts).name

    def _record(self, bucket: PrefillBucket) -> Replayable | None:
        try:
            step = self._recorder.record(self._pass(bucket))
            step.replay()  # a graph's first start takes longer than those after it
            if self._backend.device.type == "cuda":
                torch.cuda.current_stream(self._backend.device).synchronize()
        except (RuntimeError, PagedChatError) as error:  # torch says all that can go wrong with RuntimeError
            level = logging.DEBUG if self._has_failed else logging.WARNING  # the others would say the same
            log.log(level, "Prefills of %d tokens are not captured: %s", bucket.num_tokens, error)
            self._has_failed = True
            return None
        return step
