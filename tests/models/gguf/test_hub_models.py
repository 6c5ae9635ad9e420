"""GGUF models by their names on the hub: out of its cache, or fetched from a hub that is a table."""

from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.doctor.model_steps import look_at_model
from pagedchat.errors import ModelError
from pagedchat.local_models import local_models
from pagedchat.models import hub_download
from pagedchat.models.hub import find_config, find_model, find_tokenizer
from tools.fuzz.gguf_files import TENSORS, VALUES, gguf_bytes
from tools.fuzz.gguf_parts import file_name, split
from tools.fuzz.hub_models import put_in_cache

TINY = gguf_bytes(VALUES, TENSORS)
PARTS = {f"Q8_0/{file_name(n, 3)}": gguf_bytes(*part) for n, part in enumerate(split(VALUES, TENSORS, 3), 1)}
CHECKPOINT = {"config.json": b"{}", "model.safetensors": b"x" * 10, "tokenizer.json": b"{}"}


class Hub:
    """What a repository has, and what was fetched of it."""

    def __init__(self, cache: Path) -> None:
        self.cache, self.asked = cache, 0
        self.files: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.breaks_after, self.breaks_with = -1, OSError()

    def model_info(self, repo: str, *, files_metadata: bool) -> Any:
        assert (repo, files_metadata) == ("o/n", True)
        self.asked += 1
        return SimpleNamespace(
            siblings=[SimpleNamespace(rfilename=name, size=len(data)) for name, data in self.files.items()]
        )

    def download(self, repo: str, file: str, *, cache_dir: Path, tqdm_class: Any = None, **only_here: Any) -> str:
        if only_here:
            raise hub_download.LocalEntryNotFoundError(file)
        assert cache_dir == self.cache
        here = put_in_cache(cache_dir, repo, {}) / file
        if here.exists():
            return str(here)
        if len(self.fetched) == self.breaks_after:
            raise self.breaks_with
        bar = tqdm_class(total=len(self.files[file]))
        bar.update(len(self.files[file]) // 2)
        self.fetched.append(file)
        put_in_cache(cache_dir, repo, {file: self.files[file]})
        return str(here)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    state = Hub(cache)
    monkeypatch.setattr(hub_download, "HfApi", lambda: state)
    monkeypatch.setattr(hub_download, "hf_hub_download", state.download)
    return state


def text_of(name: str, **settings: Any) -> str:
    with LLM(name, device="cpu", num_blocks=8, block_size=4, **settings) as llm:
        return llm.generate("a b", SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))[0].outputs[0].text


def refusal(find: Any, name: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        find(name)
    return caught.value


# --- out of the cache; the hub cannot be reached ----------------------------------------------------


def test_a_cached_model_answers_by_its_tag(cache: Path) -> None:
    file = put_in_cache(cache, "o/n", {"n-Q4_K_M.gguf": TINY}) / "n-Q4_K_M.gguf"
    assert text_of("o/n:q4_k_m") == text_of(str(file)) != ""
    assert look_at_model("o/n:Q4_K_M", None).architecture == look_at_model("o/n", None).architecture


def test_a_cached_model_in_several_files_answers_by_any_of_them(cache: Path) -> None:
    snapshot = put_in_cache(cache, "o/n", PARTS)
    for name in ("o/n", "o/n:Q8_0", f"hf.co/o/n/{list(PARTS)[1]}"):
        assert find_model(name) == find_config(name) == find_tokenizer(name) == snapshot / next(iter(PARTS))
    assert text_of("o/n:Q8_0") == text_of("o/n:Q8_0", tokenizer="o/n") != ""


def test_of_several_in_the_cache_the_tag_or_the_preference_decides(cache: Path) -> None:
    snapshot = put_in_cache(cache, "o/n", {"n-Q6_K.gguf": TINY, "n-Q8_0.gguf": TINY})
    assert find_model("o/n:Q6_K") == snapshot / "n-Q6_K.gguf"
    assert find_model("o/n") == snapshot / "n-Q8_0.gguf"
    put_in_cache(cache, "p/n", {"n-Q6_K.gguf": TINY, "n-Q5_K_M.gguf": TINY})
    error = refusal(find_model, "p/n")
    assert error.message == "p/n can be 2 GGUF models."
    assert error.hint == "Name one of them: p/n:Q5_K_M or p/n:Q6_K."


def test_what_is_not_in_the_cache_without_a_network(cache: Path) -> None:
    put_in_cache(cache, "o/n", {"n-Q4_K_M.gguf": TINY, **dict(list(PARTS.items())[:2])})
    for name in ("o/n:Q2_K", "o/n:Q8_0", "p/n", "o/n/m.gguf"):
        for find in (find_model, find_tokenizer, find_config):
            error = refusal(find, name)
            assert error.message == f"{name} is not on this machine, and the model hub cannot be reached."
            here = (
                "take what is here: o/n:Q4_K_M."
                if name[0] == "o"
                else "give the folder of a checkpoint that you have."
            )
            assert error.hint == f"Check the network, or {here}"


def test_a_piece_of_a_tag_is_enough_without_a_network(cache: Path) -> None:
    snapshot = put_in_cache(cache, "o/n", {"n-Q4_K_M.gguf": TINY})
    for find in (find_model, find_tokenizer, find_config):
        assert find("o/n:Q4_K") == snapshot / "n-Q4_K_M.gguf"


def test_what_is_here_by_that_name_comes_first(cache: Path, tmp_path: Path) -> None:
    put_in_cache(cache, "o/n", {"n-Q4_0.gguf": TINY})
    for name in ("o/n:Q4_0", "o/n"):
        (tmp_path / name).mkdir(parents=True)
        assert find_model(name) == Path(name)
    (tmp_path / "o" / "n" / "n-Q4_0.gguf").touch()
    assert find_model("o/n/n-Q4_0.gguf") == Path("o/n/n-Q4_0.gguf")


def test_a_list_has_each_by_the_name_that_finds_it(cache: Path) -> None:
    files = {"n-Q4_K_M.gguf": b"12", "n-7B-Q6_K.gguf": b"3", "n-13B-Q6_K.gguf": b"45", "n.gguf": b"6", **PARTS}
    snapshot = put_in_cache(cache, "o/n", {**files, "mmproj-n-F16.gguf": b"7", "half-00001-of-00002.gguf": b"8"})
    listed = {model.name: model.num_bytes for model in local_models() if model.place == "hub's cache"}
    assert listed == {
        "o/n:Q4_K_M": 2, "o/n/n-7B-Q6_K.gguf": 1, "o/n/n-13B-Q6_K.gguf": 2, "o/n/n.gguf": 1,
        "o/n:Q8_0": sum(map(len, PARTS.values())),
    }  # fmt: skip
    found = {find_model(name).relative_to(snapshot).as_posix() for name in listed}
    assert found == {*files} - {*list(PARTS)[1:]}


# --- fetched ------------------------------------------------------------------------------------------


def test_all_parts_are_fetched_and_told_together(hub: Hub, cache: Path) -> None:
    hub.files = {"n-Q4_K_M.gguf": TINY, **PARTS, "mmproj-n-Q8_0.gguf": b"x", "config.json": b"{}"}
    reports: list[tuple[str, int, int]] = []
    path = find_model("o/n:Q8_0", lambda *report: reports.append(report))
    assert hub.fetched == list(PARTS)
    assert path == put_in_cache(cache, "o/n", {}) / next(iter(PARTS))
    total, done = sum(map(len, PARTS.values())), [report[1] for report in reports]
    assert done == sorted(done)
    assert {report[2] for report in reports} == {total}
    assert reports[-1] == (list(PARTS)[-1], total, total)
    hub.asked = 0
    assert find_model("o/n:q8_0") == path
    assert (hub.asked, len(hub.fetched)) == (0, 3)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("reset"), "o/n:Q8_0 is not on this machine, and the model hub cannot be reached."),
        (OSError(ENOSPC, "full"), "The disk is full: there is no room for o/n:Q8_0 in "),
    ],
)
def test_a_download_of_parts_that_broke_off_is_taken_up_again(error: OSError, words: str, hub: Hub) -> None:
    hub.files = PARTS
    hub.breaks_after, hub.breaks_with = 2, error
    assert refusal(find_model, "o/n:Q8_0").message.startswith(words)
    assert [model for model in local_models() if model.place == "hub's cache"] == []
    hub.breaks_after = -1
    assert find_model("o/n:Q8_0").is_file()
    assert hub.fetched == list(PARTS)


def test_a_checkpoint_goes_before_gguf_models_where_no_tag_is_said(hub: Hub) -> None:
    hub.files = {**CHECKPOINT, "n-Q4_K_M.gguf": TINY}
    assert find_model("o/n").is_dir()
    assert "n-Q4_K_M.gguf" not in hub.fetched
    assert find_model("o/n:Q4_K_M").name == "n-Q4_K_M.gguf"


@pytest.mark.parametrize("name", ["o/n", "o/n:Q4_0", "o/n/n-Q4_0.gguf"])
def test_a_repository_of_gguf_models(name: str, hub: Hub) -> None:
    hub.files = {"n-Q4_0.gguf": TINY, "config.json": b"{}", "README.md": b""}
    error = refusal(find_config, name)
    assert error.message.startswith(f"What {name} is like stands in its own file of ")
    assert error.hint == f"Fetch it first: pagedchat --model {name}"
    assert hub.fetched == []
    assert find_model(name).name == "n-Q4_0.gguf"
    assert find_config(name) == find_tokenizer(name) == find_model(name)
    assert hub.fetched == ["n-Q4_0.gguf"]


def test_a_tokenizer_takes_the_first_part_or_files_of_its_own(hub: Hub) -> None:
    hub.files = {**PARTS, "tokenizer.json": b"{}"}
    assert find_tokenizer("o/n:Q8_0").is_file()
    assert hub.fetched == list(PARTS)[:1]
    assert find_tokenizer("o/n").is_dir()
    assert hub.fetched == [*list(PARTS)[:1], "tokenizer.json"]


@pytest.mark.parametrize(
    ("files", "name", "message", "hint"),
    [
        ({"n-Q4_0.gguf": TINY}, "o/n:Q9", "o/n has no GGUF model called Q9.", "It has o/n:Q4_0."),
        ({"n-Q4_0.gguf": TINY}, "o/n/d/m.gguf", "o/n has no GGUF model called d/m.gguf.", "It has o/n:Q4_0."),
        (CHECKPOINT, "o/n:Q4_0", "o/n has no GGUF model.", "It has a checkpoint, which is called o/n."),
        ({"README.md": b""}, "o/n:Q4_0", "o/n has no GGUF model.", "Choose another model."),
        ({"mmproj-n-Q4_0.gguf": TINY}, "o/n:Q4_0", "o/n has no GGUF model.", "Choose another model."),
        (
            {"n-Q4_0.gguf": TINY, "n-Q4_1.gguf": TINY}, "o/n", "o/n can be 2 GGUF models.",
            "Name one of them: o/n:Q4_0 or o/n:Q4_1.",
        ),
        (
            dict(list(PARTS.items())[1:]), "o/n:Q8_0",
            "o/n on the hub has only 2 of the 3 parts of Q8_0/m-00002-of-00003.gguf.", "Choose another model.",
        ),
        (
            {"README.md": b""}, "o/n", "o/n on the hub has no checkpoint of transformers in it, and no GGUF model.",
            "Choose another model.",
        ),
    ],
)  # fmt: skip
def test_what_the_hub_does_not_have_is_one_sentence(
    files: dict[str, bytes], name: str, message: str, hint: str, hub: Hub
) -> None:
    hub.files = files
    for find in (find_model, find_tokenizer):
        error = refusal(find, name)
        assert (error.message, error.hint, hub.fetched) == (message, hint, [])


@pytest.mark.parametrize("file", ["../../n-Q4_0.gguf", "/n-Q4_0.gguf", "d\\n-Q4_0.gguf", "\x1b[2J-Q4_0.gguf"])
def test_a_file_that_leads_out_of_the_cache_is_none(file: str, hub: Hub) -> None:
    hub.files = {file: TINY}
    assert refusal(find_model, "o/n:Q4_0").message == "o/n has no GGUF model."


# --- names that are none ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("C:/models/n.gguf", "There is no file C:/models/n.gguf."),
        ("C:\\models\\n.gguf", "There is no file C:\\models\\n.gguf."),
        ("o/n/d", "There is no folder o/n/d."),
        ("o/n/../n.gguf", "There is no file o/n/../n.gguf."),
        ("a/b:c/../d", "There is no folder a/b:c/../d."),
        ("o/n:", "There is no folder and no model on the hub called o/n:."),
        ("llama3:8b", "There is no folder and no model on the hub called llama3:8b."),
        ("n\0", "There is no folder and no model on the hub called n\0."),
    ],
)
def test_a_name_that_goes_nowhere_is_one_sentence(name: str, message: str) -> None:
    for find in (find_model, find_tokenizer, find_config):
        error = refusal(find, name)
        assert error.message == message
        assert error.hint


def test_a_long_name_is_shown_in_part() -> None:
    assert len(refusal(find_model, "a/b/" + "c/" * 1000).message) < 300
