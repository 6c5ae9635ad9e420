import json
from pathlib import Path
from typing import Any

import pytest

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.models.generation_config import (
    BASE_MODEL_SAMPLING,
    eos_token_ids,
    read_generation_config,
    sampling_values,
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, BASE_MODEL_SAMPLING),
        ({"bos_token_id": 2, "eos_token_id": 2, "_from_model_config": True}, BASE_MODEL_SAMPLING),
        ({"do_sample": True}, {}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.95}, {"temperature": 0.6, "top_p": 0.95}),
        ({"temperature": 0.3, "top_k": 40, "min_p": 0.05}, {"temperature": 0.3, "top_k": 40, "min_p": 0.05}),
        ({"do_sample": False}, {"temperature": 0.0}),
        (
            {"do_sample": False, "temperature": 0.9, "repetition_penalty": 1.2},
            {"temperature": 0.0, "repetition_penalty": 1.2},
        ),
        ({"do_sample": True, "top_p": None, "max_new_tokens": 50}, {"max_tokens": 50}),
    ],
)
def test_what_the_model_wants(config: dict[str, Any], expected: dict[str, Any]) -> None:
    values = sampling_values(config)
    assert values == expected
    assert SamplingParams(**values)


def test_end_of_sequence_tokens() -> None:
    assert eos_token_ids({"eos_token_id": [7, 8]}) == {7, 8}
    assert eos_token_ids({}) == set()


def test_file_is_optional(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path) == {}


@pytest.mark.parametrize("content", ["{", "[]", '{"a": "\\ud800"}'])
def test_file_that_is_broken_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ValueError, match=r"Expecting|no JSON object|no valid Unicode"):
        read_generation_config(tmp_path)


def test_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"top_k": 3}))
    assert read_generation_config(tmp_path) == {"top_k": 3}
