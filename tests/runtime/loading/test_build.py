import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.errors import DeviceError, InvalidValueError, ModelError
from pagedchat.events import LoadProgress
from pagedchat.garbage import freeze_once
from pagedchat.runtime.cpu import runner as cpu_runner
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.loading import pool_size
from pagedchat.runtime.loading.build import LoadedModel, load_model
from pagedchat.runtime.loading.captured_steps import CapturedSteps
from pagedchat.runtime.step.model_runner import TorchModelRunner
from tests.fakes import byte_tokenizer
from tests.helpers_models import POSITIONS, VOCAB_SIZE, make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_checkpoint(tmp_path_factory.mktemp("model") / "llama", "llama")
    vocab = {chr(33 + i): i for i in range(VOCAB_SIZE - 2)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


def load(folder: Path, cache: CacheConfig | None = None, **model: object) -> LoadedModel:
    settings = ModelConfig(model=str(folder), device="cpu", **model)  # type: ignore[arg-type]
    return load_model(EngineConfig(model=settings, cache=cache or CacheConfig()))


def test_what_is_found_out(checkpoint: Path) -> None:
    loaded = load(checkpoint)
    info = loaded.info
    assert info.architecture == "LlamaForCausalLM"
    assert (info.num_layers, info.num_kv_heads, info.head_dim) == (2, 2, 8)
    assert (info.vocab_size, info.max_model_len, info.dtype) == (VOCAB_SIZE, POSITIONS, "float32")
    assert info.block_bytes == 2 * 2 * 16 * 2 * 8 * 4
    attention, mlp, norms = 2 * 32 * 32 + 2 * 16 * 32, 3 * 32 * 48, 2 * 32
    assert info.num_parameters == 2 * VOCAB_SIZE * 32 + 2 * (attention + mlp + norms) + 32
    assert info.chat_template == "plain"
    assert info.sampling_defaults == {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}
    assert info.load_seconds > 0
    assert loaded.limits.eos_token_ids == {2}
    assert loaded.limits.max_num_batched_tokens == 512
    assert not loaded.prepare_more()
    assert loaded.sampling_defaults.max_tokens is None
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.encode("AB").ids == [32, 33]


def test_pool_is_as_large_as_the_largest_batch_can_use(checkpoint: Path) -> None:
    limits = load(checkpoint).limits
    assert limits.num_blocks == limits.num_host_blocks == 256 * POSITIONS // 16


def test_pool_from_settings(checkpoint: Path) -> None:
    assert load(checkpoint, CacheConfig(num_blocks=7, swap_space=0)).limits.num_blocks == 7
    limits = load(checkpoint, CacheConfig(kv_cache_memory=10 * 4096 - 1, swap_space=3 * 4096)).limits
    assert (limits.num_blocks, limits.num_host_blocks) == (9, 3)


def test_sequences_are_no_longer_than_was_asked_for(checkpoint: Path) -> None:
    loaded = load(checkpoint, max_model_len=40)
    assert (loaded.limits.model_len, loaded.info.max_model_len) == (40, 40)
    assert loaded.limits.num_blocks == 256 * 3, "of which 40 tokens take three each"
    with pytest.raises(
        InvalidValueError, match=rf"^--max-model-len is {POSITIONS + 1}, but .* has {POSITIONS} positions"
    ):
        load(checkpoint, max_model_len=POSITIONS + 1)


@pytest.mark.gpu
def test_nothing_is_captured_where_that_was_asked_for(tmp_path: Path) -> None:
    model = ModelConfig(
        model=str(make_checkpoint(tmp_path, "llama_64")), skip_tokenizer_init=True, enforce_eager=True
    )
    config = EngineConfig(model=model, cache=CacheConfig(num_blocks=64))
    assert isinstance(load_model(config).runner, TorchModelRunner)


def test_too_little_memory(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="one block takes"):
        load(checkpoint, CacheConfig(kv_cache_memory=100))
    monkeypatch.setattr(pool_size, "available_memory", lambda: 10 * 4096)
    with pytest.raises(DeviceError, match="11 blocks take"):
        load(checkpoint, CacheConfig(num_blocks=11))


def test_generation_config_and_scheduler_settings(checkpoint: Path, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "opt")
    settings = {"do_sample": True, "temperature": 0.6, "top_k": 20, "eos_token_id": [5, 6], "max_new_tokens": 33}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, device="cpu")
    scheduler = SchedulerConfig(max_num_batched_tokens=64, max_num_seqs=3, preemption_mode="swap")
    loaded = load_model(EngineConfig(model=model, scheduler=scheduler, seed=9))
    assert loaded.tokenizer is None
    assert loaded.limits.eos_token_ids == {2, 5, 6}
    assert loaded.sampling_defaults.temperature == 0.6
    assert loaded.info.sampling_defaults == {"temperature": 0.6, "top_k": 20, "max_tokens": 33}
    limits = loaded.limits
    assert (limits.max_num_batched_tokens, limits.max_num_seqs, limits.seed) == (64, 3, 9)
    assert limits.preemption_mode == "swap"


def test_steps_hold_more_where_nobody_reads_along(checkpoint: Path) -> None:
    config = EngineConfig(model=ModelConfig(model=str(checkpoint), device="cpu"))
    assert load_model(config, streams=False).limits.max_num_batched_tokens == 2048


def test_what_is_there_after_the_first_loading_is_left_out_of_collections(checkpoint: Path) -> None:
    gc.unfreeze()
    freeze_once.cache_clear()
    load(checkpoint)
    frozen = gc.get_freeze_count()
    assert gc.isenabled()
    assert frozen > 100_000
    load(checkpoint)
    assert gc.get_freeze_count() <= frozen


def test_progress_is_told_in_order(checkpoint: Path) -> None:
    told: list[LoadProgress] = []
    load_model(EngineConfig(model=ModelConfig(model=str(checkpoint), device="cpu")), told.append)
    stages = list(dict.fromkeys(progress.stage for progress in told))
    assert stages == ["import", "weights", "cache", "warmup"]
    weights = [progress for progress in told if progress.unit == "tensors"]
    assert weights[-1].done == weights[-1].total > 10


def test_nothing_reaches_the_terminal(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(checkpoint)
    assert capfd.readouterr() == ("", "")


def test_another_tokenizer(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no tokenizer"):
        load(checkpoint, tokenizer=str(tmp_path))
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = load(checkpoint, tokenizer=str(tmp_path)).tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("ba").ids == [1, 0]


def test_a_cpu_loads_and_runs_a_model_without_anything_of_graphs(checkpoint: Path) -> None:
    code = f"""
import sys
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.loading.build import load_model

model = ModelConfig(model={str(checkpoint)!r}, skip_tokenizer_init=True, device="cpu")
loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=4)))
core = EngineCore(loaded.limits, loaded.runner)
core.extend(core.open(), [5, 6, 7], SamplingParams(max_tokens=3))
while core.has_work:
    core.step()
print(type(loaded.runner).__name__, [name for name in sys.modules if name.startswith("pagedchat.runtime.graphs")])
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout == "CpuModelRunner []\n"


def test_build_is_light_to_import() -> None:
    heavy = "not {'torch', 'transformers'}.isdisjoint(sys.modules)"
    code = f"import sys, pagedchat.runtime.loading.build; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tokenizer_of_another_model_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match=rf"has 260 tokens, but .* has {VOCAB_SIZE}: they do not belong together"):
        load(checkpoint, tokenizer=str(tmp_path))


def test_engine_knows_the_models_vocabulary(checkpoint: Path) -> None:
    assert load(checkpoint).limits.vocab_size == VOCAB_SIZE


def test_what_the_model_cannot_have_is_passed_over_and_told(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "opt")
    (folder / "generation_config.json").write_text(
        '{"top_k": 3000000000, "repetition_penalty": 1e39, "top_p": 0.5}'
    )
    loaded = load(folder, skip_tokenizer_init=True)
    assert loaded.info.sampling_defaults == {"top_p": 0.5}
    assert [notice.split(".")[1].split()[1] for notice in loaded.notices] == ["top_k", "repetition_penalty"]


def test_a_stranger_whose_steps_cannot_even_be_tried_is_run_eagerly_and_that_is_told(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("position_embeddings")

    monkeypatch.setattr(CapturedSteps, "_running", fail)
    loaded = load(checkpoint, implementation="transformers")
    assert loaded.notices[-1] == (
        "Steps of this model are not captured in CUDA graphs, and take longer: 'position_embeddings'."
    )
    assert type(loaded.runner) is TorchModelRunner
    with pytest.raises(KeyError):  # which is a defect
        load(checkpoint)


@pytest.mark.parametrize("implementation", ["native", "transformers"])
def test_what_steps_are_made_of_is_what_runs_them(implementation: str, checkpoint: Path) -> None:
    loaded = load(checkpoint, implementation=implementation)
    runner = loaded.runner
    by_kernels = isinstance(runner, CpuModelRunner) and runner.whole_steps and runner.step is not None
    assert loaded.info.kernels == ("cpu" if by_kernels else "torch")
    assert not by_kernels or implementation == "native"


def test_steps_without_kernels_are_torch_s(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_runner, "cpu_kernels", lambda: None)
    assert load(checkpoint).info.kernels == "torch"
