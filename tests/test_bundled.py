"""The model in the box: its files, what is said about it, and an install without it."""

import io
import json
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from pagedchat import bundled, resources
from pagedchat.cli import main as cli
from pagedchat.errors import ModelError
from pagedchat.models.hub import find_model

MEGABYTE = 1_000_000


def test_no_model_named_means_the_model_in_the_box() -> None:
    assert find_model(bundled.NAME) == resources.resource_dir("assets") / "model"


def test_folder_of_the_same_name_is_reached_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / bundled.NAME).mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model(f"./{bundled.NAME}") == Path(bundled.NAME)
    assert find_model(bundled.NAME) == bundled.folder()


def test_install_without_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "pagedchat")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(ModelError, match="lacks the model that belongs to it"):
        find_model(bundled.NAME)
    assert cli.main(["-p", "Hello"]) == 1
    assert capsys.readouterr().err == (
        "pagedchat: This install of pagedchat lacks the model that belongs to it.\n"
        "Install pagedchat again, or give another model with --model.\n"
    )


def test_it_is_small_and_of_opts_architecture() -> None:
    config = json.loads((bundled.folder() / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["OPTForCausalLM"]
    assert config["hidden_size"] // config["num_attention_heads"] == 64
    assert config["max_position_embeddings"] >= 1024
    assert sum(path.stat().st_size for path in bundled.folder().iterdir()) <= 32 * MEGABYTE


def test_number_of_parameters_is_that_of_the_weights() -> None:
    with safe_open(bundled.folder() / "model.safetensors", "pt") as weights:
        sizes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118 - not a dict
    total = 0
    for shape in sizes:
        count = 1
        for side in shape:
            count *= side
        total += count
    assert total == bundled.NUM_PARAMETERS


def test_every_file_can_be_read_by_everybody() -> None:
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in bundled.folder().iterdir())


@pytest.mark.parametrize("name", ["README.md", "NOTICE", "STORY_CREDITS.tsv"])
def test_card_and_credits_lie_beside_it(name: str) -> None:
    assert (bundled.folder() / name).stat().st_size > 500


def test_the_card_says_toy_size_and_licence() -> None:
    card = (bundled.folder() / "README.md").read_text(encoding="utf-8")
    assert "toy" in card
    assert f"{bundled.NUM_PARAMETERS / 1e6:.1f} million" in card
    assert "CC BY-SA 4.0" in card
    assert "pagedchat --model" in card


def test_notice_credits_every_public_source() -> None:
    notice = (bundled.folder() / "NOTICE").read_text(encoding="utf-8")
    for name in (
        "The Self-dialogue Corpus",
        "The Schema-Guided Dialogue Dataset",
        "TinyStories",
        "databricks-dolly-15k",
        "Topical-Chat",
        "Synthetic-Persona-Chat",
        "STAR: A Schema-Guided Dialog Dataset",
        "FairytaleQA",
        "Personality Chat data sets",
        "Open English WordNet",
        "African Storybook Initiative",
        "Pratham Books / StoryWeaver",
        "OpenTriviaQA",
        "official_joke_api",
        "JokeAPI",
        "OpenAssistant Conversations (OASST1)",
        "Taskmaster-4",
        "The Aesop for Children",
        "Self-Instruct",
        "Periodic-Table-JSON",
        "chatterbot-corpus",
        "dariusk/corpora",
    ):
        assert name in notice, name


def test_note_is_about_the_toy_alone() -> None:
    note = bundled.note(bundled.NAME)
    assert "toy of 15 million parameters" in note
    assert "pagedchat --model" in note
    assert bundled.note("facebook/opt-125m") == ""
