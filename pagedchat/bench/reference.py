"""What pagedchat is measured against: `generate` of transformers on the same checkpoint, with its own cache."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, OPTConfig, OPTForCausalLM

from pagedchat.models.quiet import quiet

OPT_125M = {
    "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072, "num_attention_heads": 12,
    "max_position_embeddings": 2048, "vocab_size": 50272, "word_embed_proj_dim": 768,
}  # fmt: skip
"""The shape of facebook/opt-125m; speed does not depend on what the weights say."""


def write_random_checkpoint(folder: Path, seed: int = 0) -> Path:
    """A checkpoint of OPT_125M's shape with random weights; returns its folder."""
    torch.manual_seed(seed)
    with quiet():
        OPTForCausalLM(OPTConfig(**OPT_125M)).save_pretrained(folder)
    return folder


class TransformersModel:
    """A model that answers greedily through `generate`.

    Args:
        folder: of the checkpoint.
        device, dtype: where it runs, and the type of weights and cache.
        static: a cache of fixed size, with which transformers compiles the step; otherwise one that grows.
    """

    def __init__(self, folder: str, device: str, dtype: torch.dtype, *, static: bool = False) -> None:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
        self._model = model.to(device).eval()
        self._model.generation_config.eos_token_id = None  # or a reply could end early and be measured short
        self._device = device
        self._cache = {"cache_implementation": "static"} if static else {}
        self.name = "transformers static" if static else "transformers"

    def settle(self) -> None:
        """Nothing is made beside."""

    def generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        """Exactly `new_tokens` tokens after each prompt, all prompts in one batch (they are equally long)."""
        input_ids = torch.tensor(prompts, device=self._device)  # [num_prompts, prompt_tokens]
        settings = GenerationConfig(
            max_new_tokens=new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0, **self._cache
        )
        with torch.no_grad() if self._cache else torch.inference_mode():  # a compiled step takes the former only
            output = self._model.generate(
                input_ids, attention_mask=torch.ones_like(input_ids), generation_config=settings
            )
        token_ids: list[list[int]] = output[:, input_ids.shape[1] :].tolist()
        return token_ids
