"""The tensors of a checkpoint as a GGUF file has them: their names there, their rows in its order, the experts of a
layer one behind the other. Each is read when it is written."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import safe_open

_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.dense": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.fc1": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.fc2": "ffn_down", "input_layernorm": "attn_norm", "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.router": "ffn_gate_inp",
}  # fmt: skip
_OUTSIDE = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.final_layernorm": "output_norm",
    "lm_head": "output",
}  # fmt: skip
_AFTER_ATTENTION = "post_attention_layernorm"
_AROUND = {
    _AFTER_ATTENTION: "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight")
_PRODUCTS = {
    "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down", "w1": "ffn_gate", "w3": "ffn_up",
    "w2": "ffn_down",
}  # fmt: skip
_MERGED = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj(_bias)?")
_FLOATS = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")

Experts = Literal["stacked", "together", "apart"]
"""A tensor for each product of a layer's experts, as usual; gates and values in one; or, as in Mixtral's old files,
one for each product of each expert."""


class Planned(NamedTuple):
    """A tensor of the file."""

    name: str
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[torch.Tensor]]
    """Itself in pieces, in the order of its rows."""

    @property
    def in_blocks(self) -> bool:
        """Whether it is no norm, no bias and no router."""
        return len(self.shape) > 1 and not self.name.endswith((*_FLOATS, ".bias"))


class Checkpoint:
    """Safetensors of a folder.

    Args:
        folder: of one file or several.
    """

    def __init__(self, folder: Path) -> None:
        files = [safe_open(path, framework="pt") for path in sorted(folder.glob("*.safetensors"))]
        self._files = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - it is no mapping

    def names(self) -> list[str]:
        """Of all tensors."""
        return sorted(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one."""
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str) -> torch.Tensor:
        """One of them."""
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor


def planned(config: dict[str, Any], folder: Path, architecture: str, experts: Experts) -> list[Planned]:
    """All of a file.

    Args:
        config: of the checkpoint.
        folder: of the checkpoint.
        architecture: of the file.
        experts: how they are laid out.
    """
    checkpoint, found, fused = Checkpoint(folder), [], dict[str, str]()
    stacks = defaultdict[str, list[tuple[int, str, str]]](list)
    for name in checkpoint.names():
        expert, merged = _EXPERT.fullmatch(name), _MERGED.fullmatch(name)
        theirs = "" if expert or merged else _name(name, architecture)
        if merged is not None:
            found += _of_merged(merged[1], bool(merged[3]), name, checkpoint)
        elif expert is not None:
            layer, number, product = expert.groups()
            stack = _stack_name(_PRODUCTS[product], number, experts)
            stacks[f"blk.{layer}.{stack}.weight"].append((int(number), _PRODUCTS[product], name))
        elif architecture == "phi2" and any(f".attn_{which}." in theirs for which in "qkv"):
            fused[theirs] = name
        else:
            found.append(_alone(theirs, name, checkpoint, config, architecture))
    for layer in range(config["num_hidden_layers"]) if fused else ():
        for part in ("weight", "bias"):
            names = [fused[f"blk.{layer}.attn_{which}.{part}"] for which in "qkv"]
            found.append(_below_each_other(f"blk.{layer}.attn_qkv.{part}", names, checkpoint))
    for stack, parts in stacks.items():
        rest = [name for _, _, name in sorted(parts)]
        found.append(_stack(stack, rest, checkpoint, experts))
    return found


def _of_merged(layer: str, is_bias: bool, name: str, checkpoint: Checkpoint) -> Iterator[Planned]:
    """Gates and values of gpt-oss, which take turns there, and have a row for each input."""
    parts = apart(name, checkpoint.read(name))
    for product, tensor in parts.items():
        stack = f"blk.{layer}.{product}_exps.{'bias' if is_bias else 'weight'}"
        yield Planned(stack, tuple(tensor.shape), lambda tensor=tensor: iter(tensor))


def apart(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a merged tensor of gpt-oss: products, `[num_experts, rows, columns]`, or biases, `[num_experts, rows]`."""
    rows = tensor.mT if tensor.dim() == 3 else tensor.unsqueeze(-1)
    parts = {"ffn_gate": rows[:, ::2], "ffn_up": rows[:, 1::2]} if "gate_up" in name else {"ffn_down": rows}
    return {
        product: (part if tensor.dim() == 3 else part.squeeze(-1)).contiguous() for product, part in parts.items()
    }


def merged(parts: list[torch.Tensor]) -> torch.Tensor:
    """The other way round, of matrices."""
    return torch.stack(parts, dim=2).flatten(1, 2).mT.contiguous()


def _stack_name(product: str, number: str, experts: Experts) -> str:
    if experts == "apart":
        return f"{product}.{number}"
    return "ffn_gate_up_exps" if experts == "together" and product != "ffn_down" else f"{product}_exps"


def _alone(theirs: str, name: str, checkpoint: Checkpoint, config: dict[str, Any], architecture: str) -> Planned:
    def part() -> Iterator[torch.Tensor]:
        tensor, order = checkpoint.read(name), order_of(config, name)
        tensor = tensor if order is None else tensor[order]
        tensor = tensor.squeeze(0) if theirs.endswith("shexp.weight") else tensor
        yield tensor + 1 if architecture.startswith("gemma") and "norm" in name else tensor

    shape = checkpoint.shape(name)
    return Planned(theirs, shape[1:] if shape[0] == 1 and theirs.endswith("shexp.weight") else shape, part)


def _below_each_other(name: str, names: list[str], checkpoint: Checkpoint) -> Planned:
    """One tensor of several."""
    shapes = [checkpoint.shape(each) for each in names]
    shape = (sum(each[0] for each in shapes), *shapes[0][1:])
    return Planned(name, shape, lambda: map(checkpoint.read, names))


def _stack(name: str, names: list[str], checkpoint: Checkpoint, experts: Experts) -> Planned:
    """Gates come before values where they are together."""
    (rows, columns), count = checkpoint.shape(names[0]), len(names)
    if "gate_up" in name:
        rows, count = 2 * rows, count // 2
    shape = (rows, columns) if experts == "apart" else (count, rows, columns)
    return Planned(name, shape, lambda: map(checkpoint.read, names))


def order_of(config: dict[str, Any], name: str) -> torch.Tensor | None:
    """Rows of queries and keys as Llama's converter has them: pairs that turn together side by side."""
    which = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    heads = next((config[field] for part, field in which.items() if part in name), None)
    if heads is None or config["model_type"] not in ("llama", "mistral", "mixtral"):
        return None
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return torch.arange(heads * head_dim).view(heads, 2, head_dim // 2).transpose(1, 2).flatten()


def _name(name: str, architecture: str) -> str:
    stem, _, end = name.rpartition(".")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{end}"
    if name.endswith("self_attn.sinks"):
        return f"blk.{name.split('.')[2]}.attn_sinks.weight"
    _, _, layer, rest = stem.split(".", 3)
    around = architecture in ("gemma2", "gemma3", "gpt-oss")
    names = _NAMES | (_AROUND if around else {_AFTER_ATTENTION: "ffn_norm"})
    return f"blk.{layer}.{names[rest]}.{end}"
