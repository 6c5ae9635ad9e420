"""Makes the pass that `which_step` names for a bucket, and finds what serves chunks: it, or a roomier one."""

from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import Replayable
from pagedchat.runtime.graphs.foreign_model import StepModel
from pagedchat.runtime.graphs.model_tensors import setting_of, tensors_of
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from pagedchat.runtime.graphs.prefill.forward import Forward, MergedForward, ModuleForward
from pagedchat.runtime.graphs.prefill.step import PrefillOutputs, PrefillStep
from pagedchat.runtime.graphs.shelf import Shelf
from pagedchat.runtime.graphs.step_facts import PrefillFacts
from pagedchat.runtime.graphs.which_step import MERGED, which_prefill

_FEW_TOKENS = 64
"""Up to here, reading the weights takes most of the time of a pass, however many tokens there are."""


class PrefillStore(Shelf[PrefillBucket]):
    """Captured passes by bucket.

    Args:
        model: whose passes.
        model_len: tokens of a sequence, at most.
        backend: has the cache.
        buffers: what the passes read.
        outputs: what they write.
        at_first_use: see `Shelf`.
    """

    def __init__(
        self,
        model: StepModel,
        model_len: int,
        backend: CudaAttention,
        buffers: PrefillBuffers,
        outputs: PrefillOutputs,
        *,
        at_first_use: bool = True,
    ) -> None:
        super().__init__(backend.device, at_first_use=at_first_use)
        self._backend = backend
        self._buffers, self._outputs = buffers, outputs
        self._setting = setting_of(model, backend)
        self._modules = ModuleForward(model)
        self._tensors = tensors_of(model, model_len)
        self._without_trust: frozenset[str] = frozenset()

    def get(self, bucket: PrefillBucket) -> tuple[PrefillBucket, Replayable] | None:
        """What serves a bucket: its own pass, or one with room for it; None if nothing does, by now or at all.

        Where it is captured for that, what is in the buffers is lost.
        """
        larger = None if bucket in self else self._with_more_room(bucket)
        if larger is not None:
            return larger
        step = self.find(bucket)
        return None if step is None else (bucket, step)

    def there(self, bucket: PrefillBucket) -> tuple[PrefillBucket, Replayable] | None:
        """The smallest pass that is there by now and has room, however much of it stays empty."""
        return min(self._roomy(bucket), default=None, key=lambda found: found[0])

    def most_tokens(self, context_len: int) -> int:
        """Of a chunk of a sequence of such a length, for which there is a pass by now; 0 where there is none."""
        there = [bucket for bucket, step in self._steps.items() if step is not None]
        return max([bucket.num_tokens for bucket in there if bucket.context_len >= context_len], default=0)

    def distrust(self) -> str:
        """Serve nobody any more by merged launches, as they were not right; nothing may be under way.

        Returns:
            Their name; empty if none of the captured passes is of that kind.
        """
        if all(self._chosen(bucket) != MERGED for bucket in self._steps):
            return ""
        self._without_trust |= {MERGED}
        self.forget()
        return MERGED

    def _with_more_room(self, bucket: PrefillBucket) -> tuple[PrefillBucket, Replayable] | None:
        """Of those that are captured the one with the fewest tokens that is about as fast."""
        most = max(bucket.num_tokens, _FEW_TOKENS)
        fast = [found for found in self._roomy(bucket) if found[0].num_tokens <= most]
        return min(fast, default=None, key=lambda found: found[0])

    def _roomy(self, bucket: PrefillBucket) -> list[tuple[PrefillBucket, Replayable]]:
        return [
            (other, step)
            for other, step in self._steps.items()
            if step is not None and all(has >= wants for has, wants in zip(other, bucket, strict=True))
        ]

    def build_ahead(self, bucket: PrefillBucket, *, quietly: bool = False) -> BuildAhead | None:
        """Begin to build the kernels of a pass in the background; None where it has none.

        What is in the buffers is lost.
        """
        return self.kernels_of([bucket], quietly=quietly)

    def _make(self, key: PrefillBucket) -> PrefillStep:
        return self._pass(key)

    def _kind(self, key: PrefillBucket) -> str:
        return f"{self._chosen(key)}, {key.num_tokens} tokens"

    def _clear(self, key: PrefillBucket) -> None:
        self._buffers.upload(key, [])

    def _what(self, key: PrefillBucket) -> str:
        return f"Prefills of {key.num_tokens} tokens"

    def _pass(self, bucket: PrefillBucket) -> PrefillStep:
        rows = self._buffers.rows(bucket)
        attention = PrefillAttention(self._backend, rows, bucket)
        return PrefillStep(self._forward(bucket), attention, rows, self._outputs)

    def _forward(self, bucket: PrefillBucket) -> Forward:
        if self._tensors is None or self._chosen(bucket) != MERGED:
            return self._modules
        by_warpgroups = not self._setting.missing_warpgroups
        return MergedForward(self._tensors, bucket.num_tokens, by_warpgroups=by_warpgroups)

    def _chosen(self, bucket: PrefillBucket) -> str:
        facts = PrefillFacts(
            setting=self._setting,
            num_tokens=bucket.num_tokens,
            num_blocks=bucket.num_blocks(self._setting.block_size),
            without_trust=self._without_trust,
        )
        return which_prefill(facts).name
