"""How checkpoints name the tensors of a decoder, and in which order they have the rows of some. Knows no files."""

from dataclasses import dataclass

import torch

from pagedchat.layers.attention import Heads

Orders = dict[str, torch.Tensor]
"""Name in the checkpoint -> for each row of the place the tensor's row that goes there."""


Joined = dict[str, list[str]]
"""Name of a tensor that some checkpoints have instead of several -> their names, in the order of its rows."""
MERGED = "mlp.experts"
MERGED_ROUTER = "mlp.gate.weight"
"""What transformers 5 calls the experts of a layer, and their router, where it does not write what it has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLayout:
    """Names as most families have them. Those of a layer come behind `layer` and its number."""

    prefixes: tuple[str, ...] = ("", "model.")
    """What names may lack at their beginning, in a body saved without its head."""
    embedding: str = "model.embed_tokens"
    embedding_norm: str = ""
    """Behind the token embeddings."""
    positions: str = ""
    project_in: str = ""
    layer: str = "model.layers"
    attention_norm: str = "input_layernorm"
    """Before attention; before both halves where they have one norm together."""
    attention_end_norm: str = ""
    """Behind attention."""
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    """One name where queries, keys and values are one product."""
    q_norm: str = "self_attn.q_norm"
    """With `{}` in it, a norm for each head."""
    k_norm: str = "self_attn.k_norm"
    out: str = "self_attn.o_proj"
    sinks: str = "self_attn.sinks"
    """Of the heads of a layer; the whole name of the tensor."""
    mlp_norm: str = "post_attention_layernorm"
    mlp_end_norm: str = ""
    up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    """One name where gates and values are one product, and where there are no gates."""
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    experts: str = "mlp.experts.{expert}.{product}"
    """A product of an expert, by the expert's number."""
    expert_up: tuple[str, str] = ("gate_proj", "up_proj")
    """Gates and values of an expert."""
    expert_down: str = "down_proj"
    stacked: str = ""
    """A product of all experts of a layer, if they may be one tensor `[num_experts, rows, columns]`."""
    stacked_up: str = ""
    """And what that calls gates and values where they are one product."""
    merged_experts: bool = False
    """All of a layer are two tensors of three dimensions, named `MERGED`'s, and two of two for their biases: in a
    row of an expert gates and values take turns, and there is a row for each element of the input."""
    shared: str = "mlp.shared_expert.{product}"
    """The expert that all tokens have; its products are named as those of the others."""
    shared_gate: str = "mlp.shared_expert_gate"
    norm: str = "model.norm"
    """The last one."""
    project_out: str = ""
    head: str = "lm_head"
    transposed: bool = False
    """Weights of a layer's products are `[in_features, out_features]`."""
    by_group: bool = False
    """The one product for queries, keys and values has those of a KV head together: queries, key, value; then
    those of the next."""
    interleaved: bool = False
    """Elements of a head that turn together lie side by side. They are brought apart, which changes no score, since
    queries and keys are brought into the same order."""

    def orders(self, heads: Heads, turned: int) -> Orders:
        """Of a layer's tensors, by the rest of their names; those that stay as they are are left out.

        Args:
            heads: of the model.
            turned: elements of a head that are turned.
        """
        query, key, value = self._rows_by_kind(heads)
        if self.interleaved:
            order = _apart(heads.head_dim, turned)
            query, key = query[:, order], key[:, order]
            per_head = {self.q_norm: _rows(heads.num_heads, heads.head_dim)[:, order],
                        self.k_norm: _rows(heads.num_kv_heads, heads.head_dim)[:, order]}  # fmt: skip
        else:
            per_head = {}
        if len(self.qkv) == 1:
            products = {self.qkv[0]: torch.cat((query, key, value))} if self.by_group or self.interleaved else {}
        else:
            products = dict(zip(self.qkv, (query, key), strict=False)) if self.interleaved else {}
        orders = {name: rows.flatten() for name, rows in (products | per_head).items()}
        return {f"{name}.{part}": rows for name, rows in orders.items() for part in ("weight", "bias")}

    def expert_names(self, layer: str, num_experts: int) -> list[tuple[str, str, str]]:
        """Gates, values and the way out of each expert of a layer; without a layer what comes behind its name."""
        return [self._products(layer, self.experts, expert) for expert in range(num_experts)]

    def shared_names(self, layer: str) -> tuple[str, str, str]:
        """The same of the expert that all tokens have."""
        return self._products(layer, self.shared)

    def stacked_names(self, layer: str) -> tuple[str, str, str, str]:
        """The same of stacked tensors, if there are any; then what gates and values have together."""
        together = self.stacked.format(product=self.stacked_up)
        return (*self._products(layer, self.stacked), _behind(layer, together))

    def _products(self, layer: str, pattern: str, expert: int = 0) -> tuple[str, str, str]:
        products = (*self.expert_up, self.expert_down)
        names = (pattern.format(expert=expert, product=product) for product in products)
        gate, up, down = (_behind(layer, name) for name in names)
        return gate, up, down

    def merged_names(self, layer: str, num_experts: int) -> list[tuple[str, str]]:
        """For each expert of a layer what its part of the merged tensors is called here: into it, and out of it."""
        experts = (f"{layer}.{MERGED}.{expert}" for expert in range(num_experts))
        return [(f"{name}.gate_up_proj", f"{name}.down_proj") for name in experts]

    def joined(self, layer: str, num_experts: int) -> Joined:
        """The experts of a layer as three dimensions each, all of their gates and values in one."""
        if self.merged_experts:
            merged = self.merged_names(layer, num_experts)
            return {
                f"{layer}.{MERGED}.gate_up_proj": [into for into, _ in merged],
                f"{layer}.{MERGED}.down_proj": [out for _, out in merged],
            }
        names = self.expert_names(layer, num_experts)
        both = [f"{name}.weight" for gate, up, _ in names for name in (gate, up)]
        out = [f"{down}.weight" for _, _, down in names]
        if self.stacked:
            gate, up, down, together = (f"{name}.weight" for name in self.stacked_names(layer))
            return {gate: both[::2], up: both[1::2], down: out, together: both}
        return {
            f"{layer}.{MERGED}.gate_up_proj": both,
            f"{layer}.{MERGED}.down_proj": out,
            f"{layer}.{MERGED_ROUTER}": [f"{layer}.{self.router}.weight"],
        }

    def _rows_by_kind(self, heads: Heads) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows of the checkpoint's product or products, `[heads, head_dim]` each."""
        width, num_kv = heads.head_dim, heads.num_kv_heads
        if len(self.qkv) > 1:
            return _rows(heads.num_heads, width), _rows(num_kv, width), _rows(num_kv, width)
        rows = _rows(heads.num_heads + 2 * num_kv, width)
        if not self.by_group:
            query, key, value = torch.split(rows, [heads.num_heads, num_kv, num_kv])
            return query, key, value
        grouped = rows.view(num_kv, -1, width)
        return grouped[:, :-2].flatten(0, 1), grouped[:, -2], grouped[:, -1]


def _behind(layer: str, name: str) -> str:
    return f"{layer}.{name}" if layer else name


def _rows(num_heads: int, head_dim: int) -> torch.Tensor:
    return torch.arange(num_heads * head_dim, device="cpu").view(num_heads, head_dim)


def _apart(head_dim: int, turned: int) -> torch.Tensor:
    """Of the elements that are turned first the even ones, then the odd ones; then the rest."""
    elements = torch.arange(head_dim, device="cpu")
    return torch.cat((elements[:turned:2], elements[1:turned:2], elements[turned:]))
