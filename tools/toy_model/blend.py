"""Two checkpoints of one lineage -> a mean of their weights.

What a short training changes it often overdoes; part of the way keeps what was known (WiSE-FT, Wortsman et al.
2022, arXiv:2109.01903).
"""

from pathlib import Path

import torch
from transformers import OPTForCausalLM

from tools.toy_model.bpe import load_tokenizer
from tools.toy_model.checkpoint import save_checkpoint


def blend(first: Path, second: Path, share: float, out: Path) -> None:
    """Write `(1 - share) * first + share * second`, with the tokenizer of the first.

    Raises:
        ValueError: the two are of different shapes.
    """
    model, other = (OPTForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in (first, second))
    weights, others = model.state_dict(), other.state_dict()
    if {name: w.shape for name, w in weights.items()} != {name: w.shape for name, w in others.items()}:
        raise ValueError(f"{first} and {second} are of different shapes")
    model.load_state_dict({name: torch.lerp(weight, others[name], share) for name, weight in weights.items()})
    save_checkpoint(model, load_tokenizer(first), out, torch.float16)
