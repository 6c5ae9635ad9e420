from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GptOssConfig, NemotronConfig, PreTrainedConfig

from pagedchat import LLM, SamplingParams
from pagedchat.errors import ModelError
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.attention.transformers_attention import attending, attention_forward
from tests.helpers_models import reference_replies


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ({"sinks": torch.zeros(2)}, "attention sinks under another name"),
        ({"position_bias": torch.zeros(1)}, "a learned position bias"),
        ({"block_indices": torch.zeros(1)}, "sparse attention"),
        ({"is_causal": False}, "attention to later tokens"),
        ({"attention_mask": torch.zeros(1)}, "an attention mask of its own"),
    ],
)
def test_what_is_not_done_is_refused_before_anything_is_written(extras: dict[str, object], words: str) -> None:
    states = torch.zeros(1, 2, 3, 4)
    arguments = {"attention_mask": None} | extras
    with pytest.raises(ModelError, match=words):
        attention_forward(torch.nn.Module(), states, states, states, **arguments)  # type: ignore[arg-type]


def test_keys_that_the_cache_has_no_place_for_are_refused() -> None:
    """As of a model that repeats its keys before it hands them over."""
    backend = TorchAttention(CacheShape(1, 4, 4, 2, 4, torch.float32), 2, 0, torch.device("cpu"))
    layer = torch.nn.Module()
    layer.layer_idx = 0
    query = key = torch.zeros(1, 4, 3, 4)
    with (
        attending(backend),
        pytest.raises(ModelError, match=r"makes keys of 4 heads of 4, where its config says 2 of"),
    ):
        attention_forward(layer, query, key, key, None)


_SHAPE: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "head_dim": 8, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CONFIGS = {
    "hands nothing on to its attention": NemotronConfig(**_SHAPE),
    "hands on sinks": GptOssConfig(**_SHAPE, num_local_experts=4, num_experts_per_tok=2, sliding_window=6),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_family_of_transformers_runs_that(config: PreTrainedConfig, tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() > 1 else 1.0, std=0.3)
    model.save_pretrained(tmp_path)
    prompts = [[5, 6, 7], list(range(10, 40))]
    llm = LLM(
        str(tmp_path), device="cpu", dtype="float32", num_blocks=16, skip_tokenizer_init=True,
        model_implementation="transformers",
    )  # fmt: skip
    greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], greedy, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == reference_replies(tmp_path, prompts, 8)
