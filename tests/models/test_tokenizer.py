"""A hand-made byte-level vocabulary, small enough to encode by hand.

A line of merges.txt that begins with `#` is a merge like any other; only the first line, `#version`, is none.
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from pagedchat.bench.random_checkpoint import write_byte_tokenizer
from pagedchat.errors import ModelError
from pagedchat.models.tokenizer import LoadedTokenizer, load_tokenizer

VOCAB = {
    "<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "#": 6, "Ġ": 7, "##": 8, "####": 9, "Ġb": 10,
    "c": 11, "ba": 12,
}  # fmt: skip
MERGES = "#version: 0.2\n# #\n## ##\nĠ b\nb a\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.json").write_text(json.dumps(VOCAB), encoding="utf-8")
    (tmp_path / "merges.txt").write_text(MERGES, encoding="utf-8")
    return tmp_path


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def test_merges_that_begin_with_a_hash_count(folder: Path) -> None:
    tokenizer = load_tokenizer("m", folder, "gpt2").tokenizer
    assert tokenizer.encode("###").ids == [8, 6]
    assert tokenizer.encode("####a").ids == [9, 4]
    assert tokenizer.encode("ba ba").ids == [12, 10, 4]
    assert tokenizer.decode([9, 10, 12]) == "#### bba"


def test_opt_puts_its_bos_in_front_with_no_other_file_to_say_so(folder: Path) -> None:
    loaded = load_tokenizer("m", folder, "opt")
    assert loaded.tokenizer.encode("ab").ids == [2, 4, 5]
    assert loaded.tokenizer.encode("ab", add_special_tokens=False).ids == [4, 5]
    assert loaded.tokenizer.encode("a</s>b").ids == [2, 4, 2, 5]
    assert loaded.special_tokens == {
        "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>",
    }  # fmt: skip
    assert loaded.chat_template is None


def test_files_as_the_hub_has_them(folder: Path) -> None:
    token = {"content": "</s>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    write(folder, "special_tokens_map.json", {"bos_token": token, "eos_token": token, "unk_token": token})
    settings = {
        "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": False,
        "bos_token": token | {"__type": "AddedToken"}, "pad_token": None,
    }  # fmt: skip
    write(folder, "tokenizer_config.json", settings)
    assert load_tokenizer("m", folder, "opt").tokenizer.encode("ab").ids == [2, 4, 5]
    write(folder, "tokenizer_config.json", settings | {"add_bos_token": False})
    assert load_tokenizer("m", folder, "opt").tokenizer.encode("ab").ids == [4, 5]


def test_tokenizer_json_is_read_as_it_is(folder: Path) -> None:
    load_tokenizer("m", folder, "opt").tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.json").unlink()
    write(folder, "tokenizer_config.json", {"bos_token": "</s>", "add_bos_token": True})
    assert load_tokenizer("m", folder, "opt").tokenizer.encode("ab").ids == [2, 4, 5]  # one bos, not two


def test_chat_template_in_each_of_its_places(folder: Path) -> None:
    def template() -> str | None:
        return load_tokenizer("m", folder, "opt").chat_template

    write(folder, "chat_template.json", {"chat_template": "third"})
    assert template() == "third"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "second"}]
    write(folder, "tokenizer_config.json", {"chat_template": named})
    assert template() == "second"
    write(folder, "tokenizer_config.json", {"chat_template": "alone"})
    assert template() == "alone"
    (folder / "chat_template.jinja").write_text("first", encoding="utf-8")
    assert template() == "first"


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"])
def test_file_that_is_broken(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b'{"a": \xff')
    with pytest.raises(ModelError, match="cannot be read") as caught:
        load_tokenizer("some/model", folder, "opt")
    assert name in caught.value.message
    assert caught.value.hint


def test_no_tokenizer_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="some/model has no tokenizer"):
        load_tokenizer("some/model", tmp_path, "llama")
    (tmp_path / "tokenizer.model").write_bytes(b"broken")
    with pytest.raises(ModelError, match=r"tokenizer\.model of some/model cannot be read"):
        load_tokenizer("some/model", tmp_path, "llama")


@pytest.mark.parametrize(
    "settings",
    [
        {"bos_token": "\ud800", "add_bos_token": True},
        {"eos_token": "a\udfff"},
        {"chat_template": "{{ '\ud800' }}"},
        {"chat_template": [{"name": ["default"], "template": "x"}]},
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_settings_that_make_no_sense(folder: Path, settings: dict[str, Any]) -> None:
    write(folder, "tokenizer_config.json", settings)
    with pytest.raises(ModelError, match=r"tokenizer_config\.json|settings of the tokenizer"):
        load_tokenizer("some/model", folder, "opt")


def test_template_file_that_is_no_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"{{ \xff }}")
    with pytest.raises(ModelError, match="settings of the tokenizer of some/model make no sense"):
        load_tokenizer("some/model", folder, "opt")


def test_token_in_front_that_cannot_be_written_as_one(folder: Path) -> None:
    write(folder, "vocab.json", {**VOCAB, "a b$": 13})
    write(folder, "tokenizer_config.json", {"bos_token": "a b$", "add_bos_token": True})
    with pytest.raises(ModelError, match="settings of the tokenizer of some/model make no sense"):
        load_tokenizer("some/model", folder, "gpt2")


# --- tokenizer and model ------------------------------------------------------------------------------


def with_added(folder: Path, *added: str) -> LoadedTokenizer:
    loaded = load_tokenizer("m", folder, "gpt2")
    loaded.tokenizer.add_special_tokens(list(added))
    return loaded


@pytest.mark.parametrize("vocab_size", [len(VOCAB), len(VOCAB) + 100])
def test_model_has_a_row_for_every_token_or_more(folder: Path, vocab_size: int) -> None:
    """Qwen's embeddings have hundreds of rows more than its tokenizer has tokens."""
    load_tokenizer("m", folder, "opt").check_fits("m", "m", vocab_size)


def test_added_tokens_may_lie_beyond_the_rows(folder: Path) -> None:
    """Gemma 3 has one of these, many a Llama a padding token."""
    loaded = with_added(folder, "<image>", "<more>")
    assert loaded.tokenizer.encode("a<image>").ids == [4, len(VOCAB)]
    loaded.check_fits("m", "m", len(VOCAB))


def test_vocabulary_that_is_larger_is_another_models(folder: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_tokenizer("m", folder, "opt").check_fits("big/one", "small/model", len(VOCAB) - 1)
    assert caught.value.message == (
        "The tokenizer of big/one has 13 tokens, but small/model has 12: they do not belong together."
    )
    assert "--tokenizer" in caught.value.hint


def test_added_token_before_every_text_must_be_the_models(folder: Path) -> None:
    loaded = with_added(folder, "<bos>")
    loaded.tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", len(VOCAB))])
    with pytest.raises(ModelError, match="has 14 tokens, but m has 13"):
        loaded.check_fits("m", "m", len(VOCAB))


def test_file_over_which_the_library_panics(tmp_path: Path) -> None:
    model = {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": [["a", "b"]],
        "continuing_subword_prefix": "a" * 9,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    with pytest.raises(ModelError, match=r"tokenizer\.json of m cannot be read: range end index"):
        load_tokenizer("m", tmp_path, "llama")


HEAP = """
import ctypes, gc, random, sys
from pathlib import Path
from pagedchat.models.tokenizer import load_tokenizer

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e used free keep".split()]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Heap
tokenizer = load_tokenizer("chat", Path(sys.argv[1]), "llama").tokenizer
draw = random.Random(0)
for number in range(4_000):
    tokenizer.encode("".join(draw.choices("abcdefgh ", k=100)), add_special_tokens=False)
    if number == 1_999:
        gc.collect()
        before = mallinfo2().used
gc.collect()
print(mallinfo2().used - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc alone says what a process holds")
def test_prompts_are_not_remembered_without_end(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)  # parts no text into words
    done = subprocess.run([sys.executable, "-c", HEAP, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 256 << 10


class Panic(BaseException):
    """What the library raises where it did not expect a file to contradict itself."""


def test_a_panic_over_the_first_text_is_told_as_what_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object) -> None:
        raise Panic("no entry found for key")

    monkeypatch.setattr("pagedchat.models.tokenizer.put_in_front", panic)
    with pytest.raises(ModelError, match="tokenizer of some/model make no sense: no entry found for key"):
        load_tokenizer("some/model", folder, "opt")
