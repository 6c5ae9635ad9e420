"""A whole decode step of up to four sequences in one launch; see kernels/whole_step/persistent_decode.cu.

Elsewhere than on a GPU the same step runs as a chain of the ops that do its parts.
"""

from itertools import chain
from typing import Any

import torch

from pagedchat.jit.kernel import Kernel
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import address, element_name, on_cuda, stream_of
from pagedchat.ops.products.model_tensors import LayerTensors
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.sampling.decode_state import DecodeState, state_addresses
from pagedchat.ops.whole_step.model import LayerCache, PersistentModel
from pagedchat.ops.whole_step.plan import MAX_LAYERS, PersistentPlan
from pagedchat.ops.whole_step.screened_head import ScreenedHead

NAME = "persistent_decode"


class PersistentDecode:
    """The step for a number of sequences, with the memory its thread blocks talk through.

    Args:
        model: up to `MAX_LAYERS` layers.
        num_tokens: rows of the states it will get.
        plan: of `plan_persistent` or `plan_clustered`.
        quantized: of the model's head, where the plan is a screened one: such steps have no logits.

    Raises:
        ValueError: more layers; a plan for a quantized head without one, or the other way round.
    """

    def __init__(
        self, model: PersistentModel, num_tokens: int, plan: PersistentPlan, quantized: ScreenedHead | None = None
    ) -> None:
        if (quantized is not None) != (plan.screened_tiles > 0):
            there_is = "there is none" if quantized is None else "there is one"
            raise ValueError(f"plan has {plan.screened_tiles} tiles of a quantized head, and {there_is}")
        if len(model.tensors.layers) > MAX_LAYERS:
            raise ValueError(f"model has {len(model.tensors.layers)} layers, expected at most {MAX_LAYERS}")
        self._model = model
        self._num_tokens = num_tokens
        self._plan = plan
        self._quantized = quantized
        device = model.tensors.whole_head.device
        self._folded = model.constants()  # kept: the kernel knows their addresses
        rows = model.addresses(self._folded)
        self._first = rows[0][:3]
        self._layers = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.int64, device=device)
        elements = plan.published_elements(model.shape, num_tokens) * len(model.tensors.layers)
        self._published = torch.full((2 * elements,), -1, dtype=torch.int16, device=device)
        self._best = torch.zeros(2 * plan.num_thread_blocks * num_tokens, dtype=torch.int64, device=device)
        self._launches = torch.zeros(1, dtype=torch.int32, device=device)

    def __call__(self, state: DecodeState, logits: torch.Tensor | None = None) -> None:
        """Compute one token of every row and move the state on by the most likely ones.

        Args:
            state: `num_tokens` rows; read and written. The context lies in the cache up to each row's position.
            logits: `[num_tokens, vocab_size]`, written; None for a screened step, and for nobody else.

        Raises:
            ValueError: shapes or types that do not go together.
        """
        model, plan = self._model.tensors, self._plan
        state.check()
        check_shape("token_ids", state.token_ids, self._num_tokens)
        if (logits is None) != (self._quantized is not None):
            raise ValueError("logits are missing" if logits is None else "a screened step makes no logits")
        if logits is not None:
            check_shape("logits", logits, self._num_tokens, len(model.whole_head))
            check_same_type("logits", logits, model.whole_head)
        if not on_cuda(model.whole_head):
            self._run_parts(state, logits)
            return
        args = (
            *state_addresses(state),
            address(logits),
            self._best.data_ptr(),
            self._launches.data_ptr(),
            self._published.data_ptr(),
            self._layers.data_ptr(),
            *self._first,
            model.token_vectors.data_ptr(),
            address(model.position_vectors),
            address(model.rotations),
            model.last_norm.weight.data_ptr(),
            address(model.last_norm.bias),
            model.whole_head.data_ptr(),
            state.block_tables.data_ptr(),
            i32(len(model.layers)),
            i32(len(model.whole_head)),
            i32(state.block_tables.shape[1]),
            i32(model.position_offset),
            i32(len(state.history)),
            f32(model.sizes.scale),
            f32(model.last_norm.eps),
            address(None if self._quantized is None else self._quantized.tiles),
            f32(0.0 if self._quantized is None else self._quantized.digit_scale),
        )
        kernel, shared = self._kernel()
        kernel.launch(
            plan.num_thread_blocks,
            plan.num_threads + 32,
            args,
            stream=stream_of(model.whole_head),
            shared_bytes=shared,
            cooperative=True,
        )

    def fits_at_once(self) -> bool:
        """Whether the GPU has room for all thread blocks at the same time: clusters need neighbours."""
        plan = self._plan
        if plan.cluster == 1:
            return True  # one for each multiprocessor
        kernel, shared = self._kernel()
        clusters = kernel.active_clusters(plan.cluster, plan.num_threads + 32, shared)
        return clusters * plan.cluster >= plan.num_thread_blocks

    def _kernel(self) -> tuple[Kernel, int]:
        """And how much shared memory a thread block of it has."""
        head = self._model.tensors.whole_head
        kernel = get_kernel(NAME, head.device.index, **self._constants(head.dtype))
        shared = self._plan.shared_bytes(self._model.shape, self._num_tokens)
        kernel.allow_shared(shared)
        return kernel, shared

    def _run_parts(self, state: DecodeState, logits: torch.Tensor | None) -> None:
        model = self._model.tensors
        if logits is None:
            logits = model.whole_head.new_empty(self._num_tokens, len(model.whole_head))
        hidden = model.embed(state.token_ids, state.positions)
        for layer, cache in zip(model.layers, self._model.caches, strict=True):
            _add_layer(layer, cache, model.rotations, state, hidden)
        logits_argmax(state, logits, hidden, model.whole_head, norm=model.norm, best=self._best[: self._num_tokens])

    def _constants(self, dtype: torch.dtype) -> dict[str, Any]:
        return {
            "ELEMENT": element_name(dtype),
            "NORM": self._model.tensors.last_norm.constant,
            "ROTARY": int(self._model.tensors.rotations is not None),
            "TOKENS": self._num_tokens,
            **self._model.shape.constants,
            **self._plan.constants,
        }


def _add_layer(
    layer: LayerTensors,
    cache: LayerCache,
    rotations: torch.Tensor | None,
    state: DecodeState,
    hidden: torch.Tensor,
) -> None:
    """Both halves of a layer, added to `hidden` `[num_tokens, hidden]`."""
    sizes, qkv, out, up, down = layer.sizes, layer.qkv, layer.out, layer.up, layer.down
    query = hidden.new_empty(len(hidden), sizes.num_heads, sizes.head_dim)
    tables = (state.block_tables, state.positions)
    norm = layer.attention_norm
    qkv_to_cache(query, *cache, hidden, qkv.weight, *tables, bias=qkv.bias, norm=norm, rotations=rotations)
    options = AttentionOptions(scale=sizes.scale)
    longest = state.block_tables.shape[1] * cache[1].shape[-1]
    call = AttentionCall.to_new(query, *cache, state.block_tables, state.seq_lens, options)
    attended = decode_split(call, max_seq_len=longest)
    small_batch_linear(attended.flatten(1), out.weight, bias=out.bias, residual=hidden, output=hidden)
    middle = small_batch_linear(
        hidden,
        up.weight,
        bias=up.bias,
        norm=layer.mlp_norm,
        activation=sizes.activation,
        paired=sizes.gated,
    )
    small_batch_linear(middle, down.weight, bias=down.bias, residual=hidden, output=hidden)
