"""What a model wants is followed as far as it can be, and what cannot be is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.models.generation_config import BASE_MODEL_SAMPLING
from pagedchat.runtime.loading.model_wishes import model_wishes

SAMPLE = {"do_sample": True}


def write(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(SAMPLE | values))
    return folder


def test_what_can_be_is_followed_without_a_word(tmp_path: Path) -> None:
    wishes = model_wishes(
        write(tmp_path, {"top_k": 20, "temperature": 0.6, "max_new_tokens": 7, "eos_token_id": [3]})
    )
    assert wishes.sampling_params == SamplingParams(top_k=20, temperature=0.6, max_tokens=7)
    assert (wishes.eos_token_ids, wishes.notices) == ({3}, ())


@pytest.mark.parametrize(
    "values",
    [
        {"top_k": 3_000_000_000}, {"top_k": 1.5}, {"top_k": "all"}, {"top_k": True}, {"top_k": -7}, {"top_k": [5]},
        {"temperature": 1e39}, {"temperature": -1}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"temperature": 10**400}, {"top_p": 0}, {"top_p": 1.01}, {"min_p": -0.1}, {"min_p": {}},
        {"repetition_penalty": 1e39}, {"repetition_penalty": 0}, {"max_new_tokens": 0}, {"max_new_tokens": 10**12},
        {"max_new_tokens": 5.5}, {"eos_token_id": [[2]]}, {"eos_token_id": "</s>"}, {"eos_token_id": {}},
    ],
    ids=lambda values: f"{values!r:.40}",
)  # fmt: skip
def test_what_cannot_be_is_passed_over_and_said(tmp_path: Path, values: dict[str, Any]) -> None:
    wishes = model_wishes(write(tmp_path, {"top_p": 0.5} | values))
    followed = {"top_p": 0.5} if "top_p" not in values else {}
    assert wishes.sampling_params == SamplingParams(max_tokens=None, **followed)
    [notice] = wishes.notices
    [name] = values
    assert notice.startswith(f"In generation_config.json {name} is ")
    assert "It must be" in notice
    assert notice.endswith("It is passed over.")


def test_every_wrong_value_is_said(tmp_path: Path) -> None:
    wishes = model_wishes(write(tmp_path, {"top_k": -7, "top_p": 7, "min_p": 0.25}))
    assert len(wishes.notices) == 2
    assert wishes.sampling == {"min_p": 0.25}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'{"top_k": "\\ud800"}'])
def test_file_that_cannot_be_read_is_passed_over_and_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "generation_config.json").write_bytes(content)
    wishes = model_wishes(tmp_path)
    assert wishes.sampling == BASE_MODEL_SAMPLING
    [notice] = wishes.notices
    assert notice.startswith("generation_config.json cannot be read: ")


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert model_wishes(tmp_path).notices == ()
