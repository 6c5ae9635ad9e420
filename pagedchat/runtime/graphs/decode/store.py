"""Builds the step that `which_step` names for a bucket, and finds what serves a batch. Chooses no kind of step.

A bucket whose own step is not there is served by a roomier one; where there is none, by nobody.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.ops.all_layers.streamed_layers import is_aligned
from pagedchat.ops.products.model_tensors import ModelTensors
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.model import PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.screened_head import ScreenedHead, screen_head
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import Replayable
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.decode.buckets import Bucket, has_room_for
from pagedchat.runtime.graphs.decode.fused_step import FusedStep
from pagedchat.runtime.graphs.decode.layers_step import LayersStep
from pagedchat.runtime.graphs.decode.library_step import LibraryStep
from pagedchat.runtime.graphs.decode.persistent_step import PersistentStep
from pagedchat.runtime.graphs.decode.screened_end import ScreenedEnd
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers, no_rows
from pagedchat.runtime.graphs.decode.steps import DrawnStep, ModuleStep, Step
from pagedchat.runtime.graphs.decode.warpgroup_step import WarpgroupStep
from pagedchat.runtime.graphs.foreign_model import StepModel
from pagedchat.runtime.graphs.model_tensors import screen_of_model, setting_of, tensors_of
from pagedchat.runtime.graphs.shelf import Shelf
from pagedchat.runtime.graphs.step_facts import DecodeFacts
from pagedchat.runtime.graphs.which_step import (
    FUSED,
    LAYERS,
    MODULES,
    SCREENED_HEAD,
    WARPGROUPS,
    is_screened,
    which_decode,
)
from pagedchat.runtime.graphs.whole_steps import WHOLE_STEPS, layers_plan, one_turn_len, whole_step_plan
from pagedchat.runtime.step.sampler import Choice

Key = tuple[Bucket, Choice]
_SERVED_BY: dict[Choice, tuple[Choice, ...]] = {
    "greedy": ("greedy", "shortlist", "drawn"),
    "shortlist": ("shortlist", "drawn"),
    "drawn": ("drawn",),
}
"""What else a step can be for; the last one keeps all logits."""


class Serving(NamedTuple):
    """A step for a batch."""

    bucket: Bucket
    """That of the step: no smaller than the batch's own."""
    choice: Choice
    step: Replayable


class StepStore(Shelf[Key]):
    """Captured steps by bucket and choice.

    Args:
        model: whose steps.
        backend: has the cache.
        buffers: the steps' memory.
        model_len: tokens of a sequence, at most.
        at_first_use: see `Shelf`.
    """

    def __init__(
        self,
        model: StepModel,
        backend: CudaAttention,
        buffers: StateBuffers,
        model_len: int,
        *,
        at_first_use: bool = True,
    ) -> None:
        super().__init__(backend.device, at_first_use=at_first_use)
        self._model = model
        self._backend = backend
        self._buffers = buffers
        self._tensors = tensors_of(model, model_len)
        self._setting = setting_of(model, backend)
        usual = None if self._setting.whole_objection else self._tensors
        self._whole = _whole_model(usual, backend) if usual is not None and not self._setting.forms else None
        if self._whole is not None:
            self._setting = replace(self._setting, is_aligned=self._whole.is_aligned)
        elif usual is not None:
            caches = [backend.layer_cache(layer.layer_idx) for layer in usual.layers]
            self._setting = replace(self._setting, is_aligned=is_aligned(usual, caches))
        self._one_turn: dict[int, int | None] = {}
        self._made_quantized: ScreenedHead | None = None
        self._names: dict[tuple[Bucket, Choice], str] = {}
        self._short: dict[Bucket, bool] = {}
        """Whether a bucket has a step of its own that draws from few."""
        self._without_trust: frozenset[str] = frozenset()

    def one_turn(self, num_seqs: int) -> int | None:
        """See `whole_steps.one_turn_len`."""
        if num_seqs not in self._one_turn:
            self._one_turn[num_seqs] = one_turn_len(self._setting, num_seqs)
        return self._one_turn[num_seqs]

    def get(self, bucket: Bucket, choice: Choice) -> Serving | None:
        """What serves a bucket; None if nothing does, by now or at all.

        Where its step is captured for that, what is in the buffers is lost.

        Args:
            bucket: sizes.
            choice: drawn tokens are drawn as the buffers' sampling rows say, others are the most likely ones.
        """
        choice = self._own_choice(bucket, choice)
        step = self.find((bucket, choice))
        return self._by_now(bucket, choice) if step is None else Serving(bucket, choice, step)

    def distrust(self, bucket: Bucket, choice: Choice) -> str:
        """Serve nobody any more by the kind of step that the bucket's is, or at first by its end without logits;
        nothing may be under way.

        Returns:
            Its name; empty if it is the last of all, in whose place there is none.
        """
        name = self._names[bucket, choice]
        if is_screened(name, self._facts(bucket, choice)):
            name = SCREENED_HEAD
        if name == MODULES:
            return ""
        self._without_trust |= {name}
        self.forget()
        return name

    def forget(self) -> None:
        """See `Shelf`."""
        super().forget()
        self._short.clear()

    def at_hand(self, bucket: Bucket, choice: Choice) -> Serving | None:
        """What serves a bucket by now: its own step, or the smallest with room for it. Nothing is captured."""
        choice = self._own_choice(bucket, choice)
        self.note((bucket, choice))
        return self._by_now(bucket, choice)

    def there(self, bucket: Bucket, choice: Choice) -> Serving | None:
        """The same, without noting that somebody would have use for the bucket's own step."""
        return self._by_now(bucket, self._own_choice(bucket, choice))

    def _by_now(self, bucket: Bucket, choice: Choice) -> Serving | None:
        return self._own(bucket, choice) or self._roomier(bucket, choice)

    def own(self, bucket: Bucket, choice: Choice) -> Serving | None:
        """The step of a bucket and a choice themselves, if it is there. Nothing is captured."""
        choice = self._own_choice(bucket, choice)
        self.note((bucket, choice))
        return self._own(bucket, choice)

    def _own(self, bucket: Bucket, choice: Choice) -> Serving | None:
        step = self._steps.get((bucket, choice))
        return None if step is None else Serving(bucket, choice, step)

    def serves(self, bucket: Bucket, choice: Choice) -> bool:
        """Whether there is a step for a bucket, or will be when it is asked for. One that is missing is noted."""
        return self._at_first_use or self.at_hand(bucket, choice) is not None

    def choices(self, bucket: Bucket) -> tuple[Choice, ...]:
        """For which a bucket has steps that differ."""
        return ("greedy", "shortlist", "drawn") if self._draws_from_few(bucket) else ("greedy", "drawn")

    def _own_choice(self, bucket: Bucket, choice: Choice) -> Choice:
        """Whoever draws from few is served like others that draw where that is not quicker."""
        return "drawn" if choice == "shortlist" and not self._draws_from_few(bucket) else choice

    def _draws_from_few(self, bucket: Bucket) -> bool:
        if bucket not in self._short:
            facts = self._facts(bucket, "shortlist")
            self._short[bucket] = is_screened(which_decode(facts).name, facts)
        return self._short[bucket]

    def _roomier(self, bucket: Bucket, choice: Choice) -> Serving | None:
        """Rows that are padding cost little: what any of them takes is reading the weights, and starting kernels
        one by one, as it would be done without such a step, takes longer."""
        roomy = [
            Serving(other, drawn_or_not, step)
            for (other, drawn_or_not), step in self._steps.items()
            if step is not None and drawn_or_not in _SERVED_BY[choice] and has_room_for(other, bucket)
        ]
        return min(roomy, default=None, key=partial(_preference, choice))

    def build_ahead(self, bucket: Bucket, *, quietly: bool = False) -> BuildAhead | None:
        """Begin to build the kernels of steps that are not captured yet, in the background; None where none are.

        What is in the buffers is lost.
        """
        return self.kernels_of([(bucket, choice) for choice in self.choices(bucket)], quietly=quietly)

    def _make(self, key: Key) -> Step:
        return self._step(*key)

    def _kind(self, key: Key) -> str:
        return f"{self._names.get(key) or which_decode(self._facts(*key)).name}, {key[1]}"

    def _clear(self, key: Key) -> None:
        self._buffers.upload(key[0], no_rows(), 0)

    def _what(self, key: Key) -> str:
        return f"Steps of {key[0].num_seqs} sequences"

    def _step(self, bucket: Bucket, choice: Choice) -> Step:
        state = self._buffers.state(bucket)
        facts = self._facts(bucket, choice)
        step = self._without_draw(facts, bucket, state)
        if choice == "greedy" or is_screened(self._names[bucket, choice], facts):
            return step
        return DrawnStep(step, state, self._buffers.sampling(bucket), self._buffers.counts)

    def _facts(self, bucket: Bucket, choice: Choice) -> DecodeFacts:
        return DecodeFacts(
            setting=self._setting,
            rows=bucket.num_seqs,
            context_len=bucket.context_len,
            choice=choice,
            shares=bucket.num_groups > 0,
            reads_rows=bucket.reads_rows,
            without_trust=self._without_trust,
        )

    def _without_draw(self, facts: DecodeFacts, bucket: Bucket, state: DecodeState) -> Step:
        """What `which_step` says, asked again where the GPU turns out to have no room for that."""
        name = self._names[bucket, facts.choice] = which_decode(facts).name
        if name not in WHOLE_STEPS:
            return self._chain(name, facts, bucket, state)
        step = self._whole_step(name, facts, state)
        if step is None:
            return self._without_draw(replace(facts, without_room=facts.without_room | {name}), bucket, state)
        return step

    def _chain(self, name: str, facts: DecodeFacts, bucket: Bucket, state: DecodeState) -> Step:
        attention, tensors = DecodeAttention(self._backend, self._buffers, bucket), self._tensors
        plan = layers_plan(facts) if name == LAYERS else None
        if name == MODULES or tensors is None:
            return ModuleStep(self._model, attention, state)
        end = self._end(name, facts, bucket, state)
        if plan is not None:
            return LayersStep(tensors, self._backend, state, plan, end)
        if name == FUSED:
            return FusedStep(tensors, self._backend, attention, state, end)
        if name == WARPGROUPS:
            return WarpgroupStep(tensors, attention, state, end)
        return LibraryStep(tensors, attention, state, end)

    def _end(self, name: str, facts: DecodeFacts, bucket: Bucket, state: DecodeState) -> ScreenedEnd | None:
        if not is_screened(name, facts):
            return None
        screen = screen_of_model(self._model)
        if facts.choice == "greedy":
            return ScreenedEnd(screen, state)
        return ScreenedEnd(screen, state, self._buffers.sampling(bucket), self._buffers.counts)

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
        return PersistentStep(decode, state, whole.tensors.whole_head, screened=screened)

    def _quantized_head(self, whole: PersistentModel) -> ScreenedHead:
        """Of all steps, made for the first one."""
        if self._made_quantized is None:
            self._made_quantized = screen_head(whole.tensors.whole_head, whole.tensors.last_norm)
        return self._made_quantized


def _preference(choice: Choice, found: Serving) -> tuple[object, ...]:
    """Few rows first. A step that draws finds the most likely tokens too; beginnings are best read together."""
    return found.bucket.num_seqs, found.choice != choice, -found.bucket.num_groups, found.bucket


def _whole_model(tensors: ModelTensors, backend: CudaAttention) -> PersistentModel:
    return PersistentModel(tensors, [backend.layer_cache(layer.layer_idx) for layer in tensors.layers])
