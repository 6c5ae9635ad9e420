"""A layer of a decoder: attention and feed-forward, each added to what came in. Built from a description."""

import torch
from torch import nn

from pagedchat.layers.attention import Attention, Scores
from pagedchat.layers.experts import SparseMlp, in_turns
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import GatedMlp, Mlp
from pagedchat.layers.norms import Norm
from pagedchat.layers.paged import PagedAttention
from pagedchat.layers.rotary import Rotation
from pagedchat.layers.weights import Places
from pagedchat.models.checkpoint_layout import MERGED, CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.ops.ranks.company import ALONE, Ranks


def are_few_rows(num_wanted: int, num_rows: int) -> bool:
    """Whether the last layer had better take those that are wanted from all rows before they go on, which is a
    copy of them."""
    return 2 * num_wanted <= num_rows


class DecoderLayer(nn.Module):
    """Attention and feed-forward, with norms where the description has them.

    Args:
        config: of the model.
        layer_idx: which layer.
        ranks: who has the other parts, where this is one.
    """

    def __init__(self, config: DecoderConfig, layer_idx: int, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.ranks = ranks
        places, width = config.norm_places, config.hidden_size
        first, last = places in ("before", "around"), places != "before"
        self.config = config
        self.attention = _attention(config, layer_idx, ranks)
        self.attention_norm = Norm(config.norm, width) if first else None
        self.attention_end_norm = Norm(config.norm, width) if last else None
        self.mlp = _mlp(config, layer_idx)
        self.mlp_norm = Norm(config.norm, width) if first and config.parallel != "one norm" else None
        self.mlp_end_norm = Norm(config.norm, width) if last else None

    def forward(
        self,
        hidden: torch.Tensor,
        paged: PagedAttention,
        rotation: Rotation | None,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape, or `[num_wanted, hidden_size]`.

        Args:
            hidden, paged: of the tokens.
            rotation: see `Attention`.
            wanted: `[num_wanted]`, int64: the rows that anyone reads, which the last layer goes on with behind its
                attention; None: all.
        """
        normed = _maybe(self.attention_norm, hidden)
        attended = self.attention(normed, paged, rotation, wanted)
        if wanted is not None:
            hidden = hidden[wanted]
            if not len(wanted):
                return hidden
        if self.config.parallel:
            return self._side_by_side(hidden, normed if wanted is None else normed[wanted], attended)
        update = self.ranks.sum(attended)
        mlp_norm = self.mlp_norm
        if self.config.norm_places == "before" and self.config.residual_scale == 1 and mlp_norm is not None:
            hidden, rows = mlp_norm.of_sum(hidden, update)
        else:
            hidden = self._add(hidden, update, self.attention_end_norm)
            rows = _maybe(mlp_norm, hidden)
        update = self.ranks.sum(self.mlp(rows))
        return self._add(hidden, update, self.mlp_end_norm)

    def _side_by_side(self, hidden: torch.Tensor, rows: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Both halves from the same rows, which attention has read."""
        fed: torch.Tensor = self.mlp(rows if self.mlp_norm is None else self.mlp_norm(hidden))
        return self._add(hidden, self.ranks.sum(fed + attended), None)

    def _add(self, hidden: torch.Tensor, update: torch.Tensor, end_norm: Norm | None) -> torch.Tensor:
        if self.config.norm_places == "after sum":
            return _maybe(end_norm, hidden + update)
        update = _maybe(end_norm, update)
        scale = self.config.residual_scale
        return hidden + update if scale == 1 else hidden + update * scale

    @property
    def products(self) -> dict[str, Linear]:
        """By the names that fast steps have for them; a mixture's are not among them."""
        found, mlp = {"qkv": self.attention.qkv, "out": self.attention.out}, self.mlp
        if isinstance(mlp, SparseMlp):
            return found
        return found | {"up": mlp.gate_up if isinstance(mlp, GatedMlp) else mlp.up, "down": mlp.down}

    def places(self, name: str) -> Places:
        """For a checkpoint that has this layer as `name`."""
        layout, heads, attention = self.config.layout, self.attention.heads, self.attention
        transposed, widths = layout.transposed, (heads.query_width, heads.kv_width, heads.kv_width)
        norms = (
            (self.attention_norm, layout.attention_norm), (self.attention_end_norm, layout.attention_end_norm),
            (self.mlp_norm, layout.mlp_norm), (self.mlp_end_norm, layout.mlp_end_norm),
        )  # fmt: skip
        places = {
            **attention.qkv.part_places(_parts(name, layout.qkv, widths), transposed=transposed),
            **attention.out.places(f"{name}.{layout.out}", transposed=transposed),
            **_mlp_places(self.mlp, name, layout),
        }
        if attention.sinks is not None:
            places[f"{name}.{layout.sinks}"] = attention.sinks
        for norm, its_name, first_head in (
            (attention.q_norm, layout.q_norm, self.config.first_head),
            (attention.k_norm, layout.k_norm, self.config.first_kv_head),
        ):
            places |= {} if norm is None else norm.places(f"{name}.{its_name}", first_head)
        for norm, its_name in norms:
            places |= {} if norm is None else norm.places(f"{name}.{its_name}")
        return places


def _attention(config: DecoderConfig, layer_idx: int, ranks: Ranks) -> Attention:
    heads, width = config.heads, config.hidden_size
    over_all_heads = config.qk_norm is not None and config.qk_norm.over == "width"
    return Attention(
        layer_idx,
        heads,
        Linear(width, heads.query_width + 2 * heads.kv_width, bias=config.qkv_bias),
        Linear(heads.query_width, width, bias=config.out_bias),
        _scores(config, layer_idx),
        norms=_qk_norms(config),
        clip=config.qkv_clip,
        ranks=ranks if over_all_heads else ALONE,
    )


def _scores(config: DecoderConfig, layer_idx: int) -> Scores:
    return Scores(
        scale=config.scale,
        sliding_window=config.windows[layer_idx],
        cap=config.score_cap,
        alibi=config.alibi,
        sinks=config.sinks,
    )


def _qk_norms(config: DecoderConfig) -> tuple[Norm, Norm] | None:
    qk_norm, heads = config.qk_norm, config.heads
    if qk_norm is None:
        return None
    if qk_norm.over == "head":
        return Norm(qk_norm.norm, heads.head_dim), Norm(qk_norm.norm, heads.head_dim)
    if qk_norm.over == "width":
        return Norm(qk_norm.norm, heads.query_width), Norm(qk_norm.norm, heads.kv_width)
    return (
        Norm(qk_norm.norm, heads.num_heads, heads.head_dim),
        Norm(qk_norm.norm, heads.num_kv_heads, heads.head_dim),
    )


def _mlp(config: DecoderConfig, layer_idx: int) -> Mlp | GatedMlp | SparseMlp:
    width, middle, bias = config.hidden_size, config.ffn_size, config.mlp_bias
    mixture = config.mixture_of(layer_idx)
    if mixture is not None:
        return SparseMlp(mixture, width)
    down = Linear(middle, width, bias=bias)
    if config.gated:
        return GatedMlp(Linear(width, 2 * middle, bias=bias), down, config.activation)
    return Mlp(Linear(width, middle, bias=bias), down, config.activation)


def _mlp_places(mlp: Mlp | GatedMlp | SparseMlp, layer: str, layout: CheckpointLayout) -> Places:
    if isinstance(mlp, SparseMlp):
        return _mixture_places(mlp, layer, layout)
    up = mlp.gate_up if isinstance(mlp, GatedMlp) else mlp.up
    middles = (up.out_features // len(layout.up),) * len(layout.up)
    return {
        **up.part_places(_parts(layer, layout.up, middles), transposed=layout.transposed),
        **mlp.down.places(f"{layer}.{layout.down}", transposed=layout.transposed),
    }


def _mixture_places(mlp: SparseMlp, layer: str, layout: CheckpointLayout) -> Places:
    places = mlp.router.places(f"{layer}.{layout.router}")
    if layout.merged_experts:
        return places | _merged_places(mlp, layer, layout)
    for expert, names in enumerate(layout.expert_names(layer, mlp.config.num_experts)):
        places |= mlp.experts.places(expert, *names)
    if mlp.gate_up_bias is not None and mlp.down_bias is not None:
        gate, up, down, _ = layout.stacked_names(layer)
        gates, values = mlp.gate_up_bias.chunk(2, dim=1)
        places |= {f"{gate}.bias": gates, f"{up}.bias": values, f"{down}.bias": mlp.down_bias}
    if mlp.shared is not None:
        (gate, up, down), middle = layout.shared_names(layer), mlp.shared.down.in_features
        places |= mlp.shared.gate_up.part_places({gate: middle, up: middle})
        places |= mlp.shared.down.places(down)
    return places if mlp.shared_gate is None else places | mlp.shared_gate.places(f"{layer}.{layout.shared_gate}")


def _merged_places(mlp: SparseMlp, layer: str, layout: CheckpointLayout) -> Places:
    places: Places = {}
    for expert, names in enumerate(layout.merged_names(layer, mlp.config.num_experts)):
        places |= mlp.experts.merged_places(expert, *names)
    if mlp.gate_up_bias is not None and mlp.down_bias is not None:
        places[f"{layer}.{MERGED}.gate_up_proj_bias"] = in_turns(mlp.gate_up_bias)
        places[f"{layer}.{MERGED}.down_proj_bias"] = mlp.down_bias
    return places


def _parts(layer: str, names: tuple[str, ...], widths: tuple[int, ...]) -> dict[str, int]:
    """Name and rows of each product that a checkpoint has; one alone has all rows."""
    if len(names) == 1:
        return {f"{layer}.{names[0]}": sum(widths)}
    return {f"{layer}.{name}": width for name, width in zip(names, widths, strict=True)}


def _maybe(norm: Norm | None, rows: torch.Tensor) -> torch.Tensor:
    if norm is None:
        return rows
    normed: torch.Tensor = norm(rows)
    return normed
