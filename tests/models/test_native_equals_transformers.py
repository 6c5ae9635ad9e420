"""The same checkpoint on our own modules and on those of transformers: the same logits, the same tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagedchat import LLM, SamplingParams
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.dense import DenseAttention
from tests.helpers_models import make_checkpoint

LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("opt", {}),
    "opt_after": ("opt_350m", {}),
    "opt_untied": ("opt_untied", {}),
    "opt_gelu": ("opt", {"activation_function": "gelu"}),
    "opt_no_last_norm": ("opt", {"_remove_final_layer_norm": True}),
    "llama": ("llama", {}),
    "llama_tied": ("llama_tied", {}),
    "llama_wide_heads": ("llama_wide_heads", {}),
    "llama_scaled": ("llama", {"rope_theta": 5000.0, "rope_scaling": LLAMA3, "rope_parameters": None}),
    "llama_linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen2_some_windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
}
TOKENS = [(11 * i) % 90 + 3 for i in range(50)]
PROMPTS = [{"prompt_token_ids": TOKENS[:n]} for n in (3, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


@pytest.fixture(scope="module", params=VARIANTS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, changes = VARIANTS[request.param]
    folder = make_checkpoint(tmp_path_factory.mktemp(request.param), family)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    if "use_sliding_window" in changes:
        del values["layer_types"]  # they follow from the rest
    path.write_text(json.dumps(values | changes))
    return folder


def transformers_logits(checkpoint: Path, dtype: torch.dtype) -> torch.Tensor:
    """`[num_tokens, vocab_size]`, float32, from the model's own attention."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype, attn_implementation="eager").eval()
    return model(torch.tensor([TOKENS]), use_cache=False).logits[0].float()


def native_logits(checkpoint: Path, dtype: torch.dtype) -> torch.Tensor:
    description = describe_model("tiny", checkpoint, "native")
    model = load_weights(description, attention="", dtype=dtype, device=torch.device("cpu"))
    assert isinstance(model, NativeModel)
    positions = torch.arange(len(TOKENS))
    return model(torch.tensor(TOKENS), positions, DenseAttention(), positions).float()


@torch.inference_mode()
def test_logits(checkpoint: Path) -> None:
    expected = transformers_logits(checkpoint, torch.float32)
    torch.testing.assert_close(native_logits(checkpoint, torch.float32), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_rounding_of_16_bits_costs_no_more(checkpoint: Path) -> None:
    exact = transformers_logits(checkpoint, torch.float32)
    error = (native_logits(checkpoint, torch.bfloat16) - exact).norm()
    assert 0 < error <= 1.5 * (transformers_logits(checkpoint, torch.bfloat16) - exact).norm()


def test_tokens_through_the_engine(checkpoint: Path) -> None:
    replies = []
    for implementation in ("native", "transformers"):
        llm = LLM(
            str(checkpoint), device="cpu", dtype="float32", num_blocks=64, block_size=4, max_num_batched_tokens=13,
            skip_tokenizer_init=True, model_implementation=implementation,
        )  # fmt: skip
        outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
        replies.append([output.outputs[0].token_ids for output in outputs])
    assert replies[0] == replies[1]
    assert len({tuple(tokens) for tokens in replies[0]}) == len(PROMPTS)
