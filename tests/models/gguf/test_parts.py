"""A GGUF model that is split over several files gives the tokens of the whole one, whichever part is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagedchat import LLM
from pagedchat.models.config import describe_model
from pagedchat.models.gguf.parts import read_parts
from pagedchat.models.hub import find_model, find_tokenizer
from pagedchat.models.loader import load_weights
from pagedchat.runtime.loading.precision import Precision
from pagedchat.runtime.loading.room import weight_bytes
from tests.models.families.tiny_families import save_tiny
from tests.models.gguf.test_mixtures import save_mixture
from tests.models.gguf.test_models import replies
from tests.models.gguf.write_gguf import write_gguf
from tools.fuzz.gguf_files import TENSORS, VALUES, gguf_bytes
from tools.fuzz.gguf_parts import split, write_parts


def both(folder: Path, checkpoint: Path, kind: str, **split_so: Any) -> tuple[Path, Path]:
    """The whole file and the first of its parts, which lie in folders of their own."""
    for name in ("one", "parts"):
        (folder / name).mkdir()
    whole = write_gguf(folder / "one" / "m.gguf", checkpoint, kind)
    return whole, write_gguf(folder / "parts" / "m.gguf", checkpoint, kind, **split_so)


@pytest.mark.parametrize("empty_first", [False, True])
@pytest.mark.parametrize("per_part", [1, 8])
def test_tokens(per_part: int, empty_first: bool, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    whole, first = both(
        tmp_path, save_tiny(tmp_path / "m", "llama"), "F16", per_part=per_part, empty_first=empty_first
    )
    given, files = replies(whole), sorted(first.parent.iterdir())
    assert first == files[0]
    assert len(files) > 2
    for named in (first, files[1], files[-1], first.parent):
        assert replies(named) == given


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "MXFP4"])
def test_tokens_of_a_mixture(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    checkpoint = save_mixture(tmp_path / "m", "qwen2_moe", wide=True)
    whole, first = both(tmp_path, checkpoint, kind, per_part=5, empty_first=True)
    assert describe_model("m", first).stored_as == describe_model("m", whole).stored_as != ""
    assert replies(first) == replies(whole)


def test_a_tensor_that_says_what_the_model_is_like_may_be_in_any_part(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    checkpoint = save_tiny(tmp_path / "m", "llama")
    factors = {"rope_freqs.weight": np.array([1.0, 2.0, 3.0, 4.0], np.float32)}
    first = write_gguf(tmp_path / "m.gguf", checkpoint, "F32", factors, per_part=1, empty_first=True)
    [found] = [tensor for tensor in read_parts("m", first).tensors if tensor.name == "rope_freqs.weight"]
    assert found.file != first
    native = describe_model("m", first).native
    assert native is not None
    assert native.rotary is not None
    assert getattr(native.rotary.scaling, "factors", None) == (1.0, 2.0, 3.0, 4.0)


def test_parts_may_be_links_as_in_the_hubs_cache(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write_parts(blobs, split(VALUES, TENSORS, 3))
    for number, file in enumerate(sorted(blobs.iterdir())):
        (snapshot / file.name).symlink_to(file.rename(blobs / f"blob{number}"))
    assert LLM(str(snapshot), device="cpu", num_blocks=8).tokenizer is not None


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_tensors_and_bytes_count(count: int, tmp_path: Path) -> None:
    first = write_parts(tmp_path, split(VALUES, TENSORS, count))
    description, told = describe_model("m", first), list[tuple[int, int]]()
    load_weights(
        description, attention="", dtype=torch.float32, device=torch.device("cpu"),
        on_progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(number, len(TENSORS)) for number in range(1, len(TENSORS) + 1)]
    in_all = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert weight_bytes(description, Precision(torch.float32, keeps_bits=True)) == in_all


def test_the_tokenizer_is_in_the_first_part(tmp_path: Path) -> None:
    first = write_parts(tmp_path, split(VALUES, TENSORS, 3, empty_first=True))
    for named in sorted(tmp_path.iterdir()):
        assert (find_model(str(named)), find_tokenizer(str(named))) == (first, first)


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    (tmp_path / "mmproj-m.gguf").write_bytes(b"GGUF")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "M.GGUF").write_bytes(gguf_bytes(VALUES, TENSORS))
    assert LLM(str(tmp_path), device="cpu", num_blocks=8).tokenizer is not None
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert find_model(str(tmp_path)) == tmp_path
