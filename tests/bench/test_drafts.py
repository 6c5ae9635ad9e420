"""`pagedchat bench drafts`: checkpoints with fewer layers, and what is measured of a pair."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pagedchat.api.engine import LLMEngine
from pagedchat.bench.drafts.measure import Measured, Work, measure
from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.bench.shallow_checkpoint import dampen, write_shallow
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SpeculationConfig
from pagedchat.models.config import describe_model

TINY = {
    "model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": 64, "hidden_size": 32,
    "num_hidden_layers": 3, "ffn_dim": 48, "num_attention_heads": 2, "max_position_embeddings": 128,
    "word_embed_proj_dim": 32, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_checkpoint(folder, TINY, torch.float32, torch.device("cpu"), std=0.1)
    return folder


@pytest.fixture
def shallow(model: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "shallow"
    folder.mkdir()
    write_shallow(model, folder, [0, 2])
    return folder


def test_a_shallow_checkpoint_has_the_layers_that_were_kept_under_new_numbers(model, shallow):
    whole, kept = load_file(model / "model.safetensors"), load_file(shallow / "model.safetensors")
    name = "model.decoder.layers.{}.fc1.weight"
    assert torch.equal(kept[name.format(1)], whole[name.format(2)])
    assert torch.equal(kept["model.decoder.embed_tokens.weight"], whole["model.decoder.embed_tokens.weight"])
    assert name.format(2) not in kept
    assert describe_model("shallow", shallow).num_layers == 2


def test_damped_layers_add_a_share_of_what_they_did(model):
    before = load_file(model / "model.safetensors")
    dampen(model, 1, 0.25)
    after = load_file(model / "model.safetensors")
    for layer, share in ((0, 1.0), (1, 0.25), (2, 0.25)):
        name = f"model.decoder.layers.{layer}.fc2.weight"
        assert torch.equal(after[name], before[name] * share)
        name = f"model.decoder.layers.{layer}.fc1.weight"
        assert torch.equal(after[name], before[name])


def test_what_is_measured_of_a_pair_adds_up(model, shallow):
    config = EngineConfig(
        model=ModelConfig(model=str(model), skip_tokenizer_init=True, device="cpu"),
        cache=CacheConfig(num_blocks=64, enable_prefix_caching=False),
        speculation=SpeculationConfig(method="model", model=str(shallow)),
    )
    work = Work(2, "own", 8, 24, "model")
    with LLMEngine(config) as engine:
        found = measure(engine._core, [number % 60 for number in range(80)], work, 2)
    assert len(found.on) == len(found.off) == 2
    assert min(found.on + found.off) > 0
    assert found.num_accepted <= found.num_drafted
    assert found.num_steps > 0


def test_times_are_those_of_runs_beside_each_other():
    found = Measured(Work(1, "own", 1, 10), off=[2.0, 8.0, 3.0], on=[1.0, 8.0, 1.5])
    assert found.times == 2.0
    assert found.tokens_per_second(with_drafts=True) == 10 / 1.5
    assert found.tokens_per_draft == 0.0
    found.num_drafts, found.num_accepted = 4, 8
    assert found.tokens_per_draft == 3.0
