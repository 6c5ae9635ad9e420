"""What fast steps need of a model, whatever its family: its sizes and its tensors.

Knows the decoder of `models`; what the kernels have against one is in `objections`.
"""

from collections import Counter, defaultdict
from math import isfinite
from weakref import WeakKeyDictionary

import torch

from pagedchat.jit.driver import gpu
from pagedchat.layers.attention import Attention
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.few_bits_linear import weight_of, weights_of
from pagedchat.layers.linear import Linear
from pagedchat.layers.norms import Norm as NormModule
from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.models.decoder import Decoder, scale_in_type
from pagedchat.models.decoder_layer import DecoderLayer
from pagedchat.models.native import NativeConfig
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.common.choices import Activation
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.common.model_sizes import MixtureSizes, ModelSizes
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.experts.mix_experts import Experts
from pagedchat.ops.products.model_tensors import FeedForward, LayerTensors, Mixture, ModelTensors, Product
from pagedchat.ops.quantized.weight import QuantizedWeight, form_of
from pagedchat.ops.quantized.weight_form import WeightForm
from pagedchat.ops.screening.screen import Screen, screen_of
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.foreign_model import OBJECTION, ForeignModel, StepModel, foreign_sizes
from pagedchat.runtime.graphs.objections import objection_to, objection_to_cache, objection_to_whole_steps
from pagedchat.runtime.graphs.step_facts import HEAD, VALUES, Setting

# --- from a config, without tensors -------------------------------------------------------------------


_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "relu2": "relu2", "silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
"""By the names that configs give them."""


def sizes_of(config: NativeConfig) -> ModelSizes:
    """How large a model is, and what its layers do."""
    rotary, head_dim, mixture = config.rotary, config.heads.head_dim, config.mixture
    turned = head_dim if rotary is None else rotary.turned(head_dim)
    return ModelSizes(
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        middle=config.ffn_size,
        num_heads=config.heads.num_heads,
        num_kv_heads=config.heads.num_kv_heads,
        head_dim=head_dim,
        vocab_size=config.num_vocabulary_rows,
        norm=config.norm.kind,
        gated=config.gated,
        activation=_ACTIVATIONS[config.activation],
        rotary=rotary is not None,
        all_turn=None not in config.rotaries or rotary is None,
        part_turned=None if turned == head_dim else turned,
        normed_heads=config.qk_norm is not None,
        normed_together=config.qk_norm is not None and config.qk_norm.over == "width",
        out_bias=config.out_bias,
        mlp_bias=config.mlp_bias,
        num_windowed=sum(window is not None for window in config.windows),
        score_scale=config.score_scale,
        score_cap=config.score_cap,
        sloped=config.alibi is not None,
        qkv_clip=config.qkv_clip,
        norm_places=config.norm_places,
        parallel=config.parallel,
        residual_scale=config.residual_scale,
        norm_weights=config.norm.weight,
        final_norm=config.final_norm,
        narrow=None if config.embedding_width == config.hidden_size else config.embedding_width,
        head_bias=config.head_bias,
        finishes_logits=config.logits_scale != 1 or config.logits_cap is not None,
        mixture=None if mixture is None else MixtureSizes(mixture.num_experts, mixture.per_token, mixture.width),
        is_part=config.part is not None,
    )


# --- from the modules ---------------------------------------------------------------------------------

_found: WeakKeyDictionary[NativeModel, dict[int, ModelTensors | None]] = WeakKeyDictionary()
"""What was found of models that are still there, by `model_len`."""
_screens: WeakKeyDictionary[NativeModel, Screen] = WeakKeyDictionary()
"""Of the same models, what was made of their heads."""


def setting_of(model: StepModel, backend: CudaAttention) -> Setting:
    """What all steps of a model have in common, for `which_step`.

    Args:
        model: what is to run.
        backend: has the cache.
    """
    device = backend.device
    if isinstance(model, ForeignModel):
        sizes, objection, whole_objection = foreign_sizes(model, backend.shape), OBJECTION, OBJECTION
    else:
        config = _config(model)
        sizes, objection = sizes_of(config), objection_to(config)
        whole_objection = objection_to_whole_steps(config)
    kind = backend.shape.kind or ""
    return Setting(
        sizes=sizes,
        objection=objection,
        whole_objection=whole_objection or objection_to_cache(kind),
        element=element_name(backend.shape.dtype),
        block_size=backend.shape.block_size,
        gpu=gpu(device.index) if device.type == "cuda" else None,
        cache_kind=kind,
        batch_invariant=backend.batch_invariant,
        forms=forms_of(model),
        layers_differ=layers_differ(model),
    )


def forms_of(model: StepModel) -> dict[str, WeightForm]:
    """In which forms the weights of few bits are, by the names of products and `HEAD`; of products those of most
    layers. Empty: all are whole."""
    found = _counted_forms(model)
    if not any(form.few for counted in found.values() for form in counted):
        return {}
    return {name: counted.most_common(1)[0][0] for name, counted in found.items()}


def layers_differ(model: StepModel) -> bool:
    """Whether some layers have weights of other forms than most."""
    return any(len(counted) > 1 for counted in _counted_forms(model).values())


def _counted_forms(model: StepModel) -> dict[str, Counter[WeightForm]]:
    """Of the head, of the products of all layers by their names, and of the values in them."""
    if isinstance(model, ForeignModel):
        return {}
    decoder = _decoder(model)
    found: dict[str, Counter[WeightForm]] = defaultdict(Counter)
    found[HEAD][form_of(weight_of(decoder.head))] += 1
    for layer in decoder.layers:
        assert isinstance(layer, DecoderLayer)  # noqa: S101 - a decoder has no others
        for name, linear in layer.products.items():
            weights = [weight for weight, _ in weights_of(linear)]
            found[name][form_of(weights[0])] += 1
            if name == "qkv":
                found[VALUES][form_of(weights[-1])] += 1
    return found


def tensors_of(model: StepModel, model_len: int) -> ModelTensors | None:
    """The tensors of a model, those that it has itself; None if the kernels have something against it.

    Args:
        model: of a family that is known here, or a stranger, which has none.
        model_len: tokens of a sequence, at most.
    """
    if isinstance(model, ForeignModel):
        return None
    found = _found.setdefault(model, {})  # decodes and prompts ask for the same, and the rotations are large
    if model_len not in found:
        found[model_len] = _find(model, model_len)
    return found[model_len]


def screen_of_model(model: StepModel) -> Screen:
    """The head with its copy in 8-bit integers, which all steps of a model read.

    Raises:
        TypeError: a model that is not ours, or a head that is not whole; neither is screened.
    """
    if isinstance(model, ForeignModel):
        raise TypeError("a model of transformers has no head of ours")
    if model not in _screens:
        head = weight_of(_decoder(model).head)
        if isinstance(head, QuantizedWeight):
            raise TypeError("its head has few bits already")
        _screens[model] = screen_of(head)
    return _screens[model]


def _config(model: NativeModel) -> NativeConfig:
    """What it was built from."""
    return _decoder(model).config


def _decoder(model: NativeModel) -> Decoder:
    if isinstance(model, Decoder):
        return model
    raise TypeError(f"{type(model).__name__} is no model whose sizes are known")


def _find(native: NativeModel, model_len: int) -> ModelTensors | None:
    model = _decoder(native)
    config = model.config
    if objection_to(config):
        return None
    sizes, positions, weight = sizes_of(config), model.positions, model.embedding.weight
    rotaries = [rotary for rotary in model.rotaries if isinstance(rotary, RotaryEmbedding)]
    tables = {rotary.config: _rotations(rotary, model_len) for rotary in rotaries}
    of_layers = [None if rotary is None else tables[rotary] for rotary in config.rotaries]
    layers = [layer for layer in model.layers if isinstance(layer, DecoderLayer)]
    return ModelTensors(
        sizes=sizes,
        token_vectors=weight,
        position_vectors=None if positions is None else positions.weight,
        position_offset=0 if positions is None else positions.offset,
        rotations=next((table for table in of_layers if table is not None), None),
        layers=[_layer(sizes, layer, table, weight) for layer, table in zip(layers, of_layers, strict=True)],
        norm=_norm(model.norm, weight),
        head=weight_of(model.head),
        head_bias=model.head.bias,
        embedding_scale=scale_in_type(config, weight.dtype),
        embedding_norm=_norm(model.embedding_norm, weight),
        project_in=None if model.project_in is None else weight_of(model.project_in),
        project_out=None if model.project_out is None else weight_of(model.project_out),
        logits_scale=config.logits_scale,
        logits_cap=config.logits_cap,
        ranks=model.ranks,
        vocab_size=config.vocab_size,
    )


def _layer(
    sizes: ModelSizes, layer: DecoderLayer, rotations: torch.Tensor | None, like: torch.Tensor
) -> LayerTensors:
    """`like`: of the type and on the device of what has no weights."""
    attention, products = layer.attention, layer.products
    qkv, *values = [Product(*each) for each in weights_of(products["qkv"])]
    return LayerTensors(
        layer_idx=attention.layer_idx,
        sizes=sizes,
        sliding_window=attention.scores.sliding_window,
        attention_norm=_norm(layer.attention_norm, like),
        qkv=qkv,
        out=_product(products["out"]),
        mlp_norm=_norm(layer.mlp_norm, like),
        feed=(
            _mixture(layer.mlp)
            if isinstance(layer.mlp, SparseMlp)
            else FeedForward(_product(products["up"]), _product(products["down"]))
        ),
        head_norms=_head_norms(attention, like),
        rotations=rotations,
        attention_end_norm=_norm(layer.attention_end_norm, like),
        mlp_end_norm=_norm(layer.mlp_end_norm, like),
        values=values[0] if values else None,
        alibi_slopes=attention.alibi_slopes,
        sinks=attention.sinks,
    )


def _mixture(mlp: SparseMlp) -> Mixture:
    experts, shared, config = mlp.experts, mlp.shared, mlp.config
    return Mixture(
        router=_product(mlp.router),
        experts=Experts(experts.gate_up, experts.down, mlp.gate_up_bias, mlp.down_bias),
        per_token=config.per_token,
        renormalised=config.renormalised,
        gate=config.gate,
        shared=None if shared is None else FeedForward(_product(shared.gate_up), _product(shared.down)),
        shared_gate=None if mlp.shared_gate is None else _product(mlp.shared_gate),
    )


def _product(linear: Linear) -> Product:
    return Product(weight_of(linear), linear.bias)


def _head_norms(attention: Attention, like: torch.Tensor) -> HeadNorms | None:
    query, key = _norm(attention.q_norm, like), _norm(attention.k_norm, like)
    return None if query is None or key is None else HeadNorms(query, key)


def _norm(norm: NormModule | None, like: torch.Tensor) -> Norm | None:
    """A norm without weights multiplies by ones; what a layer norm adds to its weights, it adds in their type."""
    if norm is None:
        return None
    kind, eps, offset = norm.config.kind, norm.config.eps, norm.config.offset
    if norm.weight is None:
        return Norm(kind, like.new_ones(norm.width), None, eps, largest=1.0)
    if kind == "layer":
        return Norm(kind, norm.weight + offset if offset else norm.weight, norm.bias, eps)
    is_exact, one_more = norm.config.exact or offset != 0, offset != 0
    return Norm(kind, norm.weight, None, eps, is_exact, one_more, _largest(norm.weight.float() + one_more))


def _largest(factors: torch.Tensor) -> float | None:
    """How far an element is from zero at most; None where that is no number."""
    largest = factors.abs().max().item()
    return largest if isfinite(largest) else None


def _rotations(rotary: RotaryEmbedding, model_len: int) -> torch.Tensor:
    positions = torch.arange(model_len, device=rotary.frequencies.device)
    return torch.stack(rotary.turns(positions), dim=-1).contiguous()
