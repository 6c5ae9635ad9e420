"""Which step serves a bucket, captured at first use. A bucket that cannot be captured is served by nobody."""

import logging
from collections.abc import Iterable
from functools import partial

import torch

from pagedchat.errors import PagedChatError
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.ops.common.launch import has_warpgroups
from pagedchat.ops.products.small_batch_linear import can_multiply, has_kernels_for
from pagedchat.ops.products.small_batch_plan import plan_product
from pagedchat.ops.products.warpgroup_linear import has_plan
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.plan import MAX_TOKENS
from pagedchat.ops.whole_step.screened_head import ScreenedHead, screen_head
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import GraphRecorder, Replayable
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.fused_step import FusedStep
from pagedchat.runtime.graphs.decode.library_step import LibraryStep
from pagedchat.runtime.graphs.decode.persistent_step import one_turn_len, persistent_step
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers, no_rows
from pagedchat.runtime.graphs.decode.steps import DrawnStep, ModuleStep, Step
from pagedchat.runtime.graphs.decode.warpgroup_step import WarpgroupStep
from pagedchat.runtime.graphs.kernels_ahead import build_kernels_of
from pagedchat.runtime.graphs.token_choice import Choice
from pagedchat.runtime.graphs.weights import FusedModel, fused_model

log = logging.getLogger(__name__)

MAX_FUSED = 8
"""Rows up to which the chain of fused kernels is faster than one with products by warpgroups, or by cuBLAS."""

MAX_FUSED_ELSEWHERE = 16
"""The same on a GPU without warpgroup products."""

MAX_WARPGROUPED = 256
"""Rows up to which products by warpgroups are faster than those of cuBLAS."""


class StepStore:
    """Captured steps by bucket.

    Args:
        model: a `NativeModel`.
        backend: has the cache.
        buffers: the steps' memory.
        model_len: tokens of a sequence, at most.
    """

    def __init__(
        self, model: torch.nn.Module, backend: CudaAttention, buffers: StateBuffers, model_len: int
    ) -> None:
        self._model = model
        self._backend = backend
        self._buffers = buffers
        self._recorder = GraphRecorder(backend.device)
        self._parts = fused_model(model, model_len)
        self._on_tensor_cores = has_kernels_for(backend.cache)
        self._one_turn = [one_turn_len(self._parts, backend, count + 1) for count in range(MAX_TOKENS)]
        self._max_fused = MAX_FUSED if has_warpgroups(backend.cache) else MAX_FUSED_ELSEWHERE
        self._steps: dict[tuple[Bucket, Choice], Replayable | None] = {}
        self._made_mirror: ScreenedHead | None = None

    def one_turn(self, num_seqs: int) -> int:
        """See `persistent_step.one_turn_len`."""
        return self._one_turn[min(num_seqs, MAX_TOKENS) - 1]

    def has(self, bucket: Bucket, choice: Choice) -> bool:
        """Whether `get` would have the bucket's step at once."""
        return self._steps.get((bucket, choice)) is not None

    def get(self, bucket: Bucket, choice: Choice) -> Replayable | None:
        """The bucket's step; None if it cannot be captured.

        Where it has to be captured, what is in the buffers is lost.

        Args:
            bucket: sizes.
            choice: drawn tokens are drawn as the buffers' sampling rows say, others are the most likely ones.
        """
        key = bucket, choice
        if key not in self._steps:
            self._steps[key] = self._record(*key)
        return self._steps[key]

    def build_ahead(self, bucket: Bucket, choices: Iterable[Choice]) -> BuildAhead | None:
        """Begin to build the kernels of steps that are not captured yet, in the background; None where none are.

        What is in the buffers is lost.
        """
        missing = {(bucket, choice) for choice in choices} - self._steps.keys()
        self._buffers.upload(bucket, no_rows(), 0)
        return build_kernels_of([partial(self._step, *key) for key in missing], self._backend.device)

    def _record(self, bucket: Bucket, choice: Choice) -> Replayable | None:
        self._buffers.upload(bucket, no_rows(), 0)
        try:
            return self._recorder.record(self._step(bucket, choice))
        except (RuntimeError, PagedChatError) as error:  # torch says all that can go wrong with RuntimeError
            log.warning("Steps of %d sequences are not captured: %s", bucket.num_seqs, error)
            return None

    def _step(self, bucket: Bucket, choice: Choice) -> Step:
        state = self._buffers.state(bucket)
        screened = self._screened_step(bucket, state) if choice == "greedy" else None
        if screened is not None:
            return screened
        step = self._greedy_step(bucket, state)
        if choice == "greedy":
            return step
        return DrawnStep(step, state, self._buffers.sampling(bucket), self._buffers.counts)

    def _screened_step(self, bucket: Bucket, state: DecodeState) -> Step | None:
        """One without logits, where there is such a step."""
        parts = self._parts
        if parts is None or not self._may_be_one_launch(bucket):
            return None
        return persistent_step(parts, self._backend, state, bucket.context_len, lambda: self._mirror(parts))

    def _mirror(self, parts: FusedModel) -> ScreenedHead:
        """Of all steps, made for the first one."""
        if self._made_mirror is None:
            self._made_mirror = screen_head(parts.head, parts.norm)
        return self._made_mirror

    def _may_be_one_launch(self, bucket: Bucket) -> bool:
        return self._on_tensor_cores and bucket.num_seqs <= MAX_TOKENS and not bucket.num_groups

    def _greedy_step(self, bucket: Bucket, state: DecodeState) -> Step:
        attention, parts = DecodeAttention(self._backend, self._buffers, bucket), self._parts
        if parts is None:
            return ModuleStep(self._model, attention, state)
        if self._may_be_one_launch(bucket):
            step = persistent_step(parts, self._backend, state, bucket.context_len)
            if step is not None:
                return step
        if self._on_tensor_cores and bucket.num_seqs <= self._max_fused and _multiplies(parts, bucket.num_seqs):
            return FusedStep(parts, self._backend, attention, state)
        if bucket.num_seqs <= MAX_WARPGROUPED and _has_plans(parts, bucket.num_seqs):
            return WarpgroupStep(parts, attention, state)
        return LibraryStep(parts, attention, state)


def _multiplies(model: FusedModel, num_seqs: int) -> bool:
    """Whether the fused kernels do every product of the model."""
    return all(
        plan_product(layer.attention.qkv.in_features, num_seqs, True) is not None
        and can_multiply(layer.attention.out.in_features, layer.attention.out.out_features, num_seqs)
        and can_multiply(layer.up.in_features, layer.down.in_features, num_seqs, normed=True, paired=layer.paired)
        and can_multiply(layer.down.in_features, layer.down.out_features, num_seqs)
        for layer in model.layers
    )


def _has_plans(model: FusedModel, num_seqs: int) -> bool:
    """Whether warpgroups do every product of the layers."""
    return all(
        has_plan(layer.up.weight, num_seqs, paired=layer.paired)
        and all(
            has_plan(linear.weight, num_seqs) for linear in (layer.attention.qkv, layer.attention.out, layer.down)
        )
        for layer in model.layers
    )
