"""What cannot draft for a model is said before any weights are read, and names the option."""

import json
from pathlib import Path
from weakref import ref

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from pagedchat import LLM, bundled
from pagedchat.bench.shallow_checkpoint import write_shallow
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SpeculationConfig
from pagedchat.errors import DeviceError, InvalidValueError, ModelError, PagedChatError
from pagedchat.events import LoadProgress
from pagedchat.runtime.loading import assemble
from pagedchat.runtime.loading.build import load_model
from tests.helpers_models import make_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_checkpoint(tmp_path_factory.mktemp("opt"), "opt")
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz ")}
    Tokenizer(BPE(letters, merges=[])).save(str(folder / "tokenizer.json"))
    return folder


def small(model: Path, folder: Path) -> Path:
    folder.mkdir()
    write_shallow(model, folder, [0])
    return folder


def refusal(model: Path | str, draft: Path | str, **model_config: object) -> PagedChatError:
    """What is said, before anything was done that takes memory."""
    said: list[str] = []
    config = EngineConfig(
        model=ModelConfig(model=str(model), device="cpu", **model_config),
        cache=CacheConfig(num_blocks=8),
        speculation=SpeculationConfig(method="model", model=str(draft)),
    )
    with pytest.raises(PagedChatError) as raised:
        load_model(config, lambda told: said.append(told.stage))
    assert "weights" not in said
    assert raised.value.message.startswith("--speculate: ")
    assert raised.value.hint
    return raised.value


def test_a_folder_that_is_none(model, tmp_path):
    error = refusal(model, tmp_path / "nowhere")
    assert isinstance(error, ModelError)
    assert f"There is no folder {tmp_path / 'nowhere'}." in error.message


def test_a_folder_without_a_model(model, tmp_path):
    assert "config.json" in refusal(model, tmp_path).message


def test_a_vocabulary_of_another_size(model):
    error = refusal(bundled.NAME, model, skip_tokenizer_init=True)
    assert isinstance(error, InvalidValueError)
    assert "has 96 tokens, and pagedchat-toy 8,192." in error.message


def test_as_many_tokens_that_mean_something_else(model, tmp_path):
    draft = small(model, tmp_path / "draft")
    tokenizer = json.loads(Tokenizer.from_file(str(draft / "tokenizer.json")).to_str())
    ids = tokenizer["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "2 tokens mean something else to" in refusal(model, draft).message


def test_one_that_is_the_larger_one(model, tmp_path):
    error = refusal(small(model, tmp_path / "small"), model)
    assert "it is the larger one" in error.message
    assert "parameters" in error.message


def test_no_memory_for_it(model, tmp_path, monkeypatch):
    draft = small(model, tmp_path / "draft")
    monkeypatch.setattr(assemble, "available_memory", lambda: 20_000)
    error = refusal(model, draft)
    assert isinstance(error, DeviceError)
    assert "beside the other model" in error.message


def test_a_pool_takes_its_share_of_every_block(model, tmp_path):
    """As many bytes for both as are given for the pool."""
    draft, found = small(model, tmp_path / "draft"), []
    for config in (None, {"model": str(draft)}):
        with LLM(str(model), device="cpu", kv_cache_memory="1MiB", speculative_config=config) as llm:
            found.append(llm.info)
    alone, both = found
    assert both.draft_block_bytes * 2 == both.block_bytes == alone.block_bytes
    assert both.num_blocks == alone.num_blocks * 2 // 3
    assert (alone.draft_model, both.draft_model) == ("", str(draft))


def test_loading_tells_of_both(model, tmp_path):
    told: list[LoadProgress] = []
    config = EngineConfig(
        model=ModelConfig(model=str(model), device="cpu"),
        cache=CacheConfig(num_blocks=8),
        speculation=SpeculationConfig(method="model", model=str(small(model, tmp_path / "draft"))),
    )
    loaded = load_model(config, told.append)
    assert "Draft model: reading the weights" in [each.message for each in told]
    assert loaded.draft is not None
    assert loaded.draft.model_len == 128
    assert loaded.limits.speculation.method == "model"


def test_a_second_engine_beside_has_no_draft_model():
    config = EngineConfig(speculation=SpeculationConfig(method="model", model="small"))
    assert config.beside("other").speculation == SpeculationConfig()
    assert (
        EngineConfig(speculation=SpeculationConfig(method="lookup")).beside("other").speculation.method == "lookup"
    )


def test_both_models_are_freed_with_their_engine(model, tmp_path):
    llm = LLM(
        str(model), device="cpu", num_blocks=8, speculative_config={"model": str(small(model, tmp_path / "draft"))}
    )
    by_model = llm._engine._core.scheduler.drafts._by_model
    runner = ref(by_model.model._runner)
    del by_model
    assert runner() is not None
    llm.close()
    assert runner() is None
