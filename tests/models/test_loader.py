"""Good and bad checkpoints, on our own modules and on those of transformers: what is said is the same."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from pagedchat.errors import ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
from pagedchat.models.native_model import NativeModel
from tests.helpers_models import make_checkpoint
from tests.models.families.tiny_families import save_tiny

Load = Callable[[Path], torch.nn.Module]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "model", "opt")


@pytest.fixture(params=["native", "transformers"])
def load(request: pytest.FixtureRequest) -> Load:
    def load(folder: Path) -> torch.nn.Module:
        description = describe_model("tiny", folder, request.param)
        return load_weights(description, attention="sdpa", dtype=torch.float32, device=torch.device("cpu"))

    return load


def load_native(folder: Path) -> torch.nn.Module:
    description = describe_model("tiny", folder, "native")
    return load_weights(description, attention="", dtype=torch.float32, device=torch.device("cpu"))


def as_bin(folder: Path) -> Path:
    path = folder / "pytorch_model.bin"
    torch.save(load_file(folder / "model.safetensors"), path)
    (folder / "model.safetensors").unlink()
    return path


def same_weights(model: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return all(torch.equal(weight, expected) for weight, expected in pairs)


def test_all_forms_of_a_checkpoint_give_the_same_weights(load: Load, folder: Path, tmp_path: Path) -> None:
    expected = load(folder)
    assert not expected.training
    assert not any(parameter.requires_grad for parameter in expected.parameters())
    shards = make_checkpoint(tmp_path / "shards", "opt", max_shard_size="20KB")
    assert len(list(shards.glob("*.safetensors"))) > 2
    as_bin(folder)
    assert same_weights(load(shards), expected)
    assert same_weights(load(folder), expected)


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe_some_sparse", "olmoe"])
def test_experts_come_one_by_one_or_all_together(family: str, tmp_path: Path) -> None:
    apart, together = save_tiny(tmp_path / "apart", family), tmp_path / "together"
    model = AutoModelForCausalLM.from_pretrained(apart)
    model.save_pretrained(together, save_original_format=False)
    names = {folder: set(load_file(folder / "model.safetensors")) for folder in (apart, together)}
    assert len(names[together]) < len(names[apart])
    assert "model.layers.0.mlp.experts.gate_up_proj" in names[together] - names[apart]
    models = [load_native(folder) for folder in (apart, together)]
    assert same_weights(*models)
    tensors = load_file(together / "model.safetensors")
    wrong = "model.layers.0.mlp.experts.down_proj"
    save_file({**tensors, wrong: tensors[wrong][1:].contiguous()}, together / "model.safetensors")
    with pytest.raises(ModelError, match=f"other shapes than its config says: {wrong}"):
        load_native(together)


def test_sharded_bin(load: Load, folder: Path) -> None:
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


def test_safetensors_go_before_bin(load: Load, folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    assert load(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.99])
@pytest.mark.parametrize("form", ["safetensors", "bin", "shard"])
def test_file_that_is_cut_short(load: Load, folder: Path, tmp_path: Path, form: str, keep: float) -> None:
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


def test_bin_that_would_run_code_is_not_unpickled(load: Load, folder: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    path = as_bin(folder)
    trap = {"model.decoder.embed_tokens.weight": Trap()}
    for write in (
        lambda: torch.save(trap, path),
        lambda: torch.save(trap, path, _use_new_zipfile_serialization=False),
        lambda: path.write_bytes(pickle.dumps(trap, protocol=2)),
        lambda: path.write_bytes(pickle.dumps(trap, protocol=4)),
    ):
        write()
        with pytest.raises(
            ModelError, match=r"is more than weights: unpickled, it would use .*pathlib\."
        ) as caught:
            load(folder)
        assert path.name in caught.value.message
        assert "download it again" not in str(caught.value)
        assert "may be an attack" in caught.value.hint
        assert not (tmp_path / "sprung").exists()


def test_missing_weights(load: Load, folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.decoder.layers.1.fc1.weight"], weights["model.decoder.layers.0.fc2.bias"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack model\.decoder\.layers\.0\.fc2\.bias and 1 more"):
        load(folder)
    path.unlink()
    with pytest.raises(ModelError, match="has no weights"):
        load(folder)


def test_missing_shard(load: Load, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "opt", max_shard_size="20KB")
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.unlink()
    with pytest.raises(ModelError, match=f"lacks {shard.name}"):
        load(folder)
    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json of tiny cannot be read"):
        load(folder)


def change(folder: Path, **changes: int) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_more_layers_than_there_are_tensors(load: Load, folder: Path) -> None:
    change(folder, num_hidden_layers=4096)
    with pytest.raises(ModelError, match=r"says that it has 4096 layers, but its weights are \d+ tensors\."):
        load(folder)


def test_a_config_of_more_weights_than_the_files_can_hold(load: Load, folder: Path) -> None:
    """Nothing of that size is allocated first: it would be petabytes."""
    change(folder, hidden_size=2**20, ffn_dim=2**22, word_embed_proj_dim=2**20)
    with pytest.raises(
        ModelError, match=r"describes a model of [\d,]+ parameters, but its weights are [\d.]+ KiB\."
    ):
        load(folder)


def test_weights_of_another_shape(load: Load, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"ffn_dim": 64}))
    with pytest.raises(ModelError, match=r"other shapes than its config says: .*fc1.* and \d more"):
        load(folder)


def rename(folder: Path, change: Callable[[str], str]) -> None:
    path = folder / "model.safetensors"
    save_file({change(name): weight for name, weight in load_file(path).items()}, path, {"format": "pt"})


@pytest.mark.parametrize(("family", "beginning"), [("opt", "decoder."), ("opt_350m", "decoder."), ("llama", "")])
def test_names_of_a_body_saved_without_its_head(load: Load, tmp_path: Path, family: str, beginning: str) -> None:
    folder = make_checkpoint(tmp_path, family)
    expected = load(folder)
    rename(folder, lambda name: name.removeprefix("model."))
    assert any(name.startswith(f"{beginning}layers.0.") for name in load_file(folder / "model.safetensors"))
    assert same_weights(load(folder), expected)


def test_names_without_a_decoder(folder: Path) -> None:
    """Only our own modules know this form."""
    device = torch.device("cpu")
    expected = load_weights(describe_model("tiny", folder), attention="", dtype=torch.float32, device=device)
    rename(folder, lambda name: name.removeprefix("model.decoder."))
    found = load_weights(describe_model("tiny", folder), attention="", dtype=torch.float32, device=device)
    assert same_weights(found, expected)


def head_and_embedding(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(model, NativeModel):
        return model.head.weight, model.embedding.weight
    return model.lm_head.weight, model.model.decoder.embed_tokens.weight


def test_a_tied_head_that_is_there_as_well(load: Load, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    embedding = weights["model.decoder.embed_tokens.weight"]
    save_file(weights | {"lm_head.weight": embedding.clone()}, folder / "model.safetensors", {"format": "pt"})
    head, embedded = head_and_embedding(load(folder))
    assert head.data_ptr() == embedded.data_ptr()
    assert torch.equal(head, embedding)


def test_a_head_that_is_the_only_copy_of_the_embedding(load: Load, folder: Path) -> None:
    expected = load(folder)
    rename(folder, lambda name: "lm_head.weight" if "embed_tokens" in name else name)
    assert same_weights(load(folder), expected)


def test_a_head_that_the_config_calls_tied_and_is_not(load: Load, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    embedding = weights["model.decoder.embed_tokens.weight"]
    save_file(weights | {"lm_head.weight": embedding + 1}, folder / "model.safetensors", {"format": "pt"})
    head, embedded = head_and_embedding(load(folder))
    assert torch.equal(embedded, embedding)
    assert torch.equal(head, embedding + 1)


def test_integers_are_no_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.decoder.layers.0.fc1.weight"] = weights["model.decoder.layers.0.fc1.weight"].to(torch.int8)
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ModelError, match=r"quantised \(model\.decoder\.layers\.0\.fc1\.weight is torch\.int8\)"):
        load_weights(describe_model("tiny", folder), attention="", dtype=torch.float32, device=torch.device("cpu"))


def test_pickled_file_that_is_no_archive(load: Load, folder: Path) -> None:
    """As torch wrote them before 1.6."""
    expected = load(folder)
    path = as_bin(folder)
    torch.save(torch.load(path, weights_only=True), path, _use_new_zipfile_serialization=False)
    assert same_weights(load(folder), expected)


def test_parts_lie_in_one_product(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "qwen2")
    model: Any = load_weights(
        describe_model("tiny", folder, "native"), attention="", dtype=torch.float64, device=torch.device("cpu")
    )
    weights = load_file(folder / "model.safetensors")
    parts = [weights[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(model.layers[1].attention.qkv.weight, torch.cat(parts).double())
    assert torch.get_default_dtype() == torch.float32
