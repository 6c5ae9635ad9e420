from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from pagedchat import LLM, SamplingParams
from pagedchat.bench.random_checkpoint import write_byte_tokenizer, write_checkpoint
from tests.bench.engine_fakes import TINY_LLAMA, TINY_OPT
from tests.helpers_models import reference_replies

CPU = torch.device("cpu")
SHAPES = [pytest.param(TINY_OPT, id="opt"), pytest.param(TINY_LLAMA, id="llama")]
PROMPTS = [[5, 6, 7], [40, 41, 42, 43, 44]]


@pytest.mark.parametrize("shape", SHAPES)
def test_our_loader_and_transformers_read_the_same_model(shape: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shape, torch.float32, CPU, std=0.3)
    llm = LLM(str(tmp_path), device="cpu", num_blocks=16, skip_tokenizer_init=True)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == reference_replies(tmp_path, PROMPTS, 8)


def test_norms_change_nothing_and_the_rest_is_drawn_from_the_seed(tmp_path: Path) -> None:
    num_bytes = write_checkpoint(tmp_path, TINY_OPT, torch.float16, CPU, std=0.1, seed=3)
    tensors = load_file(tmp_path / "model.safetensors")
    assert num_bytes == sum(2 * tensor.numel() for tensor in tensors.values())
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    norm = "model.decoder.layers.1.final_layer_norm"
    assert (tensors[f"{norm}.weight"].unique().tolist(), tensors[f"{norm}.bias"].unique().tolist()) == ([1], [0])
    embedding = tensors["model.decoder.embed_tokens.weight"].float()
    assert 0.09 < float(embedding.std()) < 0.11
    write_checkpoint(tmp_path, TINY_OPT, torch.float16, CPU, std=0.1, seed=3)
    assert torch.equal(
        load_file(tmp_path / "model.safetensors")["model.decoder.embed_tokens.weight"].float(), embedding
    )


def test_norms_are_known_under_any_name_and_whatever_they_add_to_their_weights(tmp_path: Path) -> None:
    small = {"vocab_size": 96, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    write_checkpoint(tmp_path, {"model_type": "gpt2", **small}, torch.float32, CPU)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["transformer.h.0.ln_1.weight"].unique().tolist() == [1]
    shape = {**TINY_LLAMA, "model_type": "gemma", "architectures": ["GemmaForCausalLM"]}
    write_checkpoint(tmp_path, shape, torch.float32, CPU)
    assert load_file(tmp_path / "model.safetensors")["model.norm.weight"].unique().tolist() == [0]


def test_every_byte_is_a_token(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = tokenizer.encode("The sea, 海").ids
    assert (len(ids), len(set(ids)), max(ids) < 260) == (12, 10, True)
    assert tokenizer.decode(ids) == "The sea, 海"
