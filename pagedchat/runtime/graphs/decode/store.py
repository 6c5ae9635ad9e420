"""Builds the step that `which_step` names for a bucket, and captures it at first use. Chooses nothing itself.

A bucket that cannot be captured is served by nobody.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from pagedchat.errors import PagedChatError
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.products.model_tensors import ModelTensors
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.model import PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import MAX_TOKENS
from pagedchat.ops.whole_step.screened_head import ScreenedHead, screen_head
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import GraphRecorder, Replayable, build_kernels_of
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.fused_step import FusedStep
from pagedchat.runtime.graphs.decode.library_step import LibraryStep
from pagedchat.runtime.graphs.decode.persistent_step import PersistentStep
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers, no_rows
from pagedchat.runtime.graphs.decode.steps import DrawnStep, ModuleStep, Step
from pagedchat.runtime.graphs.decode.warpgroup_step import WarpgroupStep
from pagedchat.runtime.graphs.model_tensors import setting_of, tensors_of
from pagedchat.runtime.graphs.step_facts import DecodeFacts
from pagedchat.runtime.graphs.which_step import FUSED, LIBRARY, MODULES, WARPGROUPS, which_decode
from pagedchat.runtime.graphs.whole_steps import WHOLE_STEPS, one_turn_len, whole_step_plan
from pagedchat.runtime.step.sampler import Choice

log = logging.getLogger(__name__)


class StepStore:
    """Captured steps by bucket.

    Args:
        model: whose steps.
        backend: has the cache.
        buffers: the steps' memory.
        model_len: tokens of a sequence, at most.
    """

    def __init__(self, model: NativeModel, backend: CudaAttention, buffers: StateBuffers, model_len: int) -> None:
        self._model = model
        self._backend = backend
        self._buffers = buffers
        self._recorder = GraphRecorder(backend.device)
        self._tensors = tensors_of(model, model_len)
        self._whole = None if self._tensors is None else _whole_model(self._tensors, backend)
        self._setting = setting_of(model, backend, is_aligned=self._whole is None or self._whole.is_aligned)
        self._one_turn = [one_turn_len(self._setting, count + 1) for count in range(MAX_TOKENS)]
        self._steps: dict[tuple[Bucket, Choice], Replayable | None] = {}
        self._made_quantized: ScreenedHead | None = None
        self._names: dict[tuple[Bucket, Choice], str] = {}
        self._without_trust: frozenset[str] = frozenset()

    def one_turn(self, num_seqs: int) -> int:
        """See `whole_steps.one_turn_len`."""
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

    def distrust(self, bucket: Bucket, choice: Choice) -> str:
        """Serve nobody any more by the kind of step that the bucket's is; nothing may be under way.

        Returns:
            Its name; empty if it is the last of all, in whose place there is none.
        """
        name = self._names[bucket, choice]
        if name == MODULES:
            return ""
        self._without_trust |= {name}
        self._steps.clear()
        return name

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
        step = self._without_draw(self._facts(bucket, choice), bucket, state)
        if choice == "greedy":
            return step
        return DrawnStep(step, state, self._buffers.sampling(bucket), self._buffers.counts)

    def _facts(self, bucket: Bucket, choice: Choice) -> DecodeFacts:
        return DecodeFacts(
            setting=self._setting,
            rows=bucket.num_seqs,
            context_len=bucket.context_len,
            choice=choice,
            shares=bucket.num_groups > 0,
            without_trust=self._without_trust,
        )

    def _without_draw(self, facts: DecodeFacts, bucket: Bucket, state: DecodeState) -> Step:
        """What `which_step` says, asked again where the GPU turns out to have no room for that."""
        name = self._names[bucket, facts.choice] = which_decode(facts).name
        if name not in WHOLE_STEPS:
            return self._chain(name, bucket, state)
        step = self._whole_step(name, facts, state)
        if step is None:
            return self._without_draw(replace(facts, without_room=facts.without_room | {name}), bucket, state)
        return step

    def _chain(self, name: str, bucket: Bucket, state: DecodeState) -> Step:
        attention, tensors = DecodeAttention(self._backend, self._buffers, bucket), self._tensors
        if name == FUSED and tensors is not None:
            return FusedStep(tensors, self._backend, attention, state)
        if name == WARPGROUPS and tensors is not None:
            return WarpgroupStep(tensors, attention, state)
        if name == LIBRARY and tensors is not None:
            return LibraryStep(tensors, attention, state)
        return ModuleStep(self._model, attention, state)

    def _whole_step(self, name: str, facts: DecodeFacts, state: DecodeState) -> PersistentStep | None:
        plan, whole = whole_step_plan(name, facts), self._whole
        if plan is None or whole is None:
            return None
        screened = plan.screened_tiles > 0
        decode = PersistentDecode(
            whole, len(state.token_ids), plan, self._quantized_head(whole) if screened else None
        )
        if not decode.fits_at_once():
            return None
        return PersistentStep(decode, state, whole.tensors.head, screened=screened)

    def _quantized_head(self, whole: PersistentModel) -> ScreenedHead:
        """Of all steps, made for the first one."""
        if self._made_quantized is None:
            self._made_quantized = screen_head(whole.tensors.head, whole.tensors.norm)
        return self._made_quantized


def _whole_model(tensors: ModelTensors, backend: CudaAttention) -> PersistentModel:
    return PersistentModel(tensors, [backend.layer_cache(layer.layer_idx) for layer in tensors.layers])
