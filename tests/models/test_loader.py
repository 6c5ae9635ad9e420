import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagedchat.errors import ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
from tests.helpers_models import make_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "model", "opt")


def load(folder: Path) -> torch.nn.Module:
    return load_weights(
        describe_model("tiny", folder), attention="sdpa", dtype=torch.float32, device=torch.device("cpu")
    )


def as_bin(folder: Path) -> Path:
    path = folder / "pytorch_model.bin"
    torch.save(load_file(folder / "model.safetensors"), path)
    (folder / "model.safetensors").unlink()
    return path


def same_weights(model: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return all(torch.equal(weight, expected) for weight, expected in pairs)


def test_all_forms_of_a_checkpoint_give_the_same_weights(folder: Path, tmp_path: Path) -> None:
    expected = load(folder)
    assert not expected.training
    assert not any(parameter.requires_grad for parameter in expected.parameters())
    shards = make_checkpoint(tmp_path / "shards", "opt", max_shard_size="20KB")
    assert len(list(shards.glob("*.safetensors"))) > 2
    as_bin(folder)
    assert same_weights(load(shards), expected)
    assert same_weights(load(folder), expected)


def test_sharded_bin(folder: Path) -> None:
    expected = load(folder)
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for part, keys in parts.items():
        torch.save({key: weights[key] for key in keys}, folder / part)
    index = {"metadata": {}, "weight_map": {key: part for part, keys in parts.items() for key in keys}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert same_weights(load(folder), expected)


def test_safetensors_go_before_bin(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    assert load(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.99])
@pytest.mark.parametrize("form", ["safetensors", "bin", "shard"])
def test_file_that_is_cut_short(folder: Path, tmp_path: Path, form: str, keep: float) -> None:
    if form == "shard":
        folder = make_checkpoint(tmp_path / "shards", "opt", max_shard_size="20KB")
        path = sorted(folder.glob("*.safetensors"))[1]
    else:
        path = as_bin(folder) if form == "bin" else folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ModelError, match="cut short or damaged") as caught:
        load(folder)
    assert path.name in caught.value.message
    assert "download it again" in caught.value.hint


def test_bin_that_would_run_code_is_not_unpickled(folder: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    torch.save({"model.decoder.embed_tokens.weight": Trap()}, as_bin(folder))
    with pytest.raises(ModelError):
        load(folder)
    assert not (tmp_path / "sprung").exists()


def test_missing_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.decoder.layers.1.fc1.weight"], weights["model.decoder.layers.0.fc2.bias"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack model\.decoder\.layers\.0\.fc2\.bias and 1 more"):
        load(folder)
    path.unlink()
    with pytest.raises(ModelError, match="has no weights"):
        load(folder)


def test_missing_shard(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "opt", max_shard_size="20KB")
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.unlink()
    with pytest.raises(ModelError, match=f"lacks {shard.name}"):
        load(folder)
    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json of tiny cannot be read"):
        load(folder)


def test_weights_of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"ffn_dim": 64}))
    with pytest.raises(ModelError, match=r"other shapes than its config says: .*fc1.* and \d more"):
        load(folder)
