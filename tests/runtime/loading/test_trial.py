from pathlib import Path

import pytest
import torch

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.errors import ModelError
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.trial import check_against_model, largest_batch
from pagedchat.runtime.step.model_runner import TorchModelRunner
from tests.helpers_models import VOCAB_SIZE, make_checkpoint


@pytest.fixture(scope="module", params=["native", "transformers"])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TorchModelRunner:
    folder = make_checkpoint(tmp_path_factory.mktemp("model"), "mistral")
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, device="cpu", implementation=request.param)
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=4, block_size=4))).runner
    assert isinstance(loaded, TorchModelRunner)
    return loaded


def test_good_model_passes_and_keeps_our_attention(runner: TorchModelRunner) -> None:
    check_against_model("tiny", runner, VOCAB_SIZE)
    if not isinstance(runner.model, NativeModel):
        assert runner.model.config._attn_implementation == "pagedchat"


@pytest.mark.parametrize("what", ["scale", "window", "cache", "state"])
def test_model_with_other_attention_is_refused(
    runner: TorchModelRunner, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = runner.backend
    if what == "scale":
        attend = backend.attend
        monkeypatch.setattr(backend, "attend", lambda *args, scale, **kw: attend(*args, scale=scale * 2, **kw))
    elif what == "window":
        attend = backend.attend
        wide = {"sliding_window": None}
        monkeypatch.setattr(backend, "attend", lambda *args, **kw: attend(*args, **kw | wide))
    elif what == "cache":
        monkeypatch.setattr(backend, "write", lambda *_: None)
        backend.cache.zero_()
    else:  # a layer that looks at the whole text of its forward pass, as recurrent ones do
        native = isinstance(runner.model, NativeModel)
        mlp = (runner.model if native else runner.model.model).layers[0].mlp
        forward = mlp.forward
        monkeypatch.setattr(mlp, "forward", lambda rows: forward(rows.cumsum(dim=-2)))
    with pytest.raises(ModelError, match="tiny gives other results with the paged cache"):
        check_against_model("tiny", runner, VOCAB_SIZE)


@pytest.mark.parametrize(
    ("num_tokens", "num_seqs", "model_len", "lengths"),
    [(10, 4, 100, [3, 3, 2, 2]), (10, 100, 100, [1] * 10), (10, 1, 4, [4, 3, 3])],
)
def test_largest_batch_fills_the_budget(num_tokens: int, num_seqs: int, model_len: int, lengths: list[int]) -> None:
    batch = largest_batch(num_tokens, num_seqs, model_len, 2)
    assert [part.num_tokens for part in batch.scheduled] == lengths
    assert batch.num_tokens == sum(lengths)
    blocks = [block for part in batch.scheduled for block in part.sequence.block_table]
    assert blocks == list(range(len(blocks)))


@pytest.mark.gpu
def test_profiling_leaves_room_for_the_largest_batch(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "llama")
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, device="cuda", dtype="float16")
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(gpu_memory_utilization=0.6)))
    _, total = torch.cuda.mem_get_info()
    taken = loaded.limits.num_blocks * loaded.info.block_bytes
    assert 0.3 * total < taken < 0.6 * total  # what others on the GPU have is left to them
    loaded.runner.execute(largest_batch(2048, 256, 128, 16))
