from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pagedchat.config import GIB, EngineConfig, ModelConfig
from pagedchat.errors import DeviceError
from pagedchat.models.config import describe_model
from pagedchat.models.native import count_parameters
from pagedchat.models.quantized.mxfp4 import STORED_AS
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.loading import assemble
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.memory import graph_memory
from pagedchat.runtime.loading.precision import Precision
from pagedchat.runtime.loading.room import refuse_without_room, weight_bytes
from tests.helpers_models import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "llama", "llama")


def beside(folder: Path) -> EngineConfig:
    first = EngineConfig(model=ModelConfig(device="cpu", skip_tokenizer_init=True))
    return first.beside(str(folder))


def test_a_second_model_without_room_is_refused_with_both_numbers_before_its_weights_are_read(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "away")
    monkeypatch.setattr(assemble, "available_memory", lambda: 100_000)
    try:
        with pytest.raises(DeviceError) as caught:
            load_model(beside(checkpoint))
    finally:
        (checkpoint / "away").rename(checkpoint / "model.safetensors")
    said = caught.value.message
    assert "of weights" in said
    assert "256 KiB for the smallest pool" in said
    assert said.endswith("97.7 KiB of memory are free.")
    assert caught.value.hint


def test_one_with_room_is_loaded(checkpoint: Path) -> None:
    assert load_model(beside(checkpoint)).limits.num_blocks > 0


def test_weights_count_in_the_bits_in_which_they_are_kept(checkpoint: Path) -> None:
    description = describe_model("tiny", checkpoint, "auto")
    assert description.native is not None
    counted = count_parameters(description.native)
    assert weight_bytes(description, Precision(torch.float32)) == 4 * counted
    assert weight_bytes(description, Precision(torch.float32, "int8")) == counted
    stored = replace(description, stored_as=STORED_AS)
    assert weight_bytes(stored, Precision(torch.bfloat16)) == counted
    assert weight_bytes(stored, Precision(torch.bfloat16, keeps_bits=False)) == 2 * counted
    strange = describe_model("tiny", checkpoint, "transformers")
    size = (checkpoint / "model.safetensors").stat().st_size
    assert weight_bytes(strange, Precision(torch.bfloat16)) == size


def test_on_a_gpu_captured_steps_want_room_too() -> None:
    shape = CacheShape(num_layers=2, block_size=16, num_heads=4, num_kv_heads=2, head_dim=8, dtype=torch.float16)
    needed = GIB + 64 * shape.block_bytes + graph_memory(10 * GIB)
    refuse_without_room("org/it", GIB, shape, needed, gpu=10 * GIB)
    with pytest.raises(DeviceError, match=r"410 MiB for captured steps\), and 1.4 GiB of the GPU's memory"):
        refuse_without_room("org/it", GIB, shape, needed - 1, gpu=10 * GIB)
