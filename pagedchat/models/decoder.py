"""The one decoder that our own modules have, over a paged cache: a flat batch of tokens in, logits out.

What makes it an OPT or a Gemma is its description. Knows no family.
"""

from functools import cache

import torch
from torch import nn

from pagedchat.layers.embedding import Embedding, over_ranks
from pagedchat.layers.linear import Linear
from pagedchat.layers.norms import Norm
from pagedchat.layers.paged import PagedAttention
from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.layers.weights import Places
from pagedchat.models.checkpoint_layout import Joined, Orders
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.decoder_layer import DecoderLayer, are_few_rows
from pagedchat.models.native_model import NativeModel
from pagedchat.models.parts.tensor_cuts import Cuts, cuts_of
from pagedchat.ops.ranks.company import ALONE, Ranks


class Decoder(NativeModel):
    """The whole model.

    Args:
        config: what it is like.
        ranks: who has the other parts, where this is one.
    """

    def __init__(self, config: DecoderConfig, ranks: Ranks = ALONE) -> None:
        super().__init__()
        narrow, width = config.embedding_width, config.hidden_size
        self.config = config
        self.ranks = ranks
        self.tied = config.tied
        self.vocab_size = config.vocab_size
        self.embedding = Embedding(config.num_vocabulary_rows, narrow)
        self.embedding_norm = Norm(config.norm, narrow) if config.embedding_norm else None
        offset = config.position_offset
        self.positions = None if offset is None else Embedding(config.max_len, width, offset=offset)
        self.project_in = Linear(narrow, width, bias=False) if narrow != width else None
        kinds = list(dict.fromkeys(rotary for rotary in config.rotaries if rotary is not None))
        self.rotaries = nn.ModuleList(RotaryEmbedding(kind, config.heads.head_dim) for kind in kinds)
        self.turned_by = [None if rotary is None else kinds.index(rotary) for rotary in config.rotaries]
        """For each layer which of `rotaries` turns its queries and keys."""
        self.layers = nn.ModuleList(
            DecoderLayer(config, layer_idx, ranks) for layer_idx in range(config.num_layers)
        )
        self.norm = Norm(config.norm, width) if config.final_norm else None
        self.project_out = Linear(width, narrow, bias=False) if narrow != width else None
        head_weight = self.embedding.weight if config.tied else None
        self.head = Linear(narrow, config.num_vocabulary_rows, bias=config.head_bias, weight=head_weight)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, paged: PagedAttention, last_rows: torch.Tensor
    ) -> torch.Tensor:
        """See `NativeModel`."""
        hidden = self.embed(token_ids, positions)
        rotations = [rotary(positions, hidden.dtype) for rotary in self.rotaries]
        wanted = last_rows if are_few_rows(len(last_rows), len(token_ids)) else None
        for layer_idx, (layer, turned_by) in enumerate(zip(self.layers, self.turned_by, strict=True)):
            rotation = None if turned_by is None else rotations[turned_by]
            hidden = layer(hidden, paged, rotation, wanted if layer_idx == len(self.layers) - 1 else None)
        return self.logits(hidden[last_rows] if wanted is None else hidden)

    def embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """`[num_tokens]` each -> `[num_tokens, hidden_size]`."""
        hidden: torch.Tensor
        if self.config.part is None:
            hidden = self.embedding(token_ids)
        else:
            hidden = over_ranks(self.embedding, token_ids, self.ranks)
        if self.config.embedding_scale != 1:
            hidden = hidden * scale_in_type(self.config, hidden.dtype)
        if self.embedding_norm is not None:
            hidden = self.embedding_norm(hidden)
        if self.project_in is not None:
            hidden = self.project_in(hidden)
        return hidden if self.positions is None else hidden + self.positions(positions)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[num_rows, hidden_size]` -> `[num_rows, vocab_size]`."""
        if self.norm is not None:
            hidden = self.norm(hidden)
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        logits: torch.Tensor = self.head(hidden)
        if self.config.part is not None:
            logits = self.ranks.side_by_side(logits)[:, : self.config.vocab_size]
        scale, cap = self.config.logits_scale, self.config.logits_cap
        if scale != 1:
            logits = logits * scale
        if cap is not None:
            logits = self.arithmetic.apply(torch.tanh, logits.float() / cap).mul_(cap).to(logits.dtype)
        return logits

    # --- what checkpoints call it ---

    @property
    def prefixes(self) -> tuple[str, ...]:
        """See `NativeModel`."""
        return self.config.layout.prefixes

    @property
    def embedding_name(self) -> str:
        """See `NativeModel`."""
        return f"{self.config.layout.embedding}.weight"

    @property
    def head_name(self) -> str:
        """See `NativeModel`."""
        return f"{self.config.layout.head}.weight"

    def places(self) -> Places:
        """See `NativeModel`."""
        layout = self.config.layout
        places = self.embedding.places(layout.embedding)
        for layer_idx, layer in enumerate(self.layers):
            places |= layer.places(f"{layout.layer}.{layer_idx}")  # type: ignore[operator]
        named = (
            (self.embedding_norm, layout.embedding_norm), (self.positions, layout.positions),
            (self.norm, layout.norm),
            (self.project_in, layout.project_in), (self.project_out, layout.project_out),
        )  # fmt: skip
        for module, name in named:
            places |= {} if module is None else module.places(name)
        head = self.head.places(layout.head)
        if self.tied:
            del head[self.head_name]
        return places | head

    def orders(self) -> Orders:
        """See `NativeModel`."""
        config, rotary = self.config, self.config.rotary
        turned = 0 if rotary is None else rotary.turned(config.heads.head_dim)
        heads = config.heads if config.part is None else config.part.whole.heads
        of_layer = config.layout.orders(heads, turned)
        names = (f"{config.layout.layer}.{layer_idx}" for layer_idx in range(config.num_layers))
        return {f"{layer}.{name}": order for layer in names for name, order in of_layer.items()}

    def cuts(self) -> Cuts:
        """See `NativeModel`."""
        return {} if self.config.part is None else cuts_of(self.config, self.config.part)

    def joined(self) -> Joined:
        """See `NativeModel`."""
        config, joined = self.config, Joined()
        for layer_idx in range(config.num_layers):
            mixture = config.mixture_of(layer_idx)
            if mixture is not None:
                joined |= config.layout.joined(f"{config.layout.layer}.{layer_idx}", mixture.num_experts)
        return joined


def scale_in_type(config: DecoderConfig, dtype: torch.dtype) -> float:
    """What token embeddings of a type are multiplied by."""
    return _rounded(config.embedding_scale, dtype) if config.rounds_embedding_scale else config.embedding_scale


@cache
def _rounded(value: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(value, dtype=dtype, device="cpu"))
