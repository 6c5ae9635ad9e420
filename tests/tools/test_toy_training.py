"""The recipe of the toy model from text to replies, in a toy setting on a CPU."""

import json
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.toy_model.__main__ import main
from tools.toy_model.bpe import BOS, EOS, SYSTEM, load_tokenizer, save_tokenizer, train_tokenizer
from tools.toy_model.conversations import one_turn, read_jsonl
from tools.toy_model.corpus import encode, load_corpus
from tools.toy_model.evaluate import loops
from tools.toy_model.soft_labels import load_soft_labels
from tools.toy_model.train import Schedule, Settings
from tools.toy_model.whole import whole
from tools.toy_model.windows import round_of_windows

TEXT = "\n".join(
    f"U: What is {name}?\nU: {name}?\nU: Tell me about {name}.\nU: explain {name}\nU: {name} please\n"
    f"A: {name} is {what}.\n"
    for name, what in (
        ("rain", "water"),
        ("snow", "cold"),
        ("wind", "air"),
        ("sun", "a star"),
        ("fog", "a low cloud"),
    )
    for _ in range(6)
)
TALKS = [
    one_turn("a", "What is rain?", "Water from clouds."),
    one_turn("b", "And snow?", "Cold white rain.", system="Be brief."),
    one_turn("c", "Wind?", "Air that moves."),
] * 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """prepare, tokenizer, train, label, train with soft labels: one command each."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "text").mkdir()
    (folder / "text" / "weather.txt").write_text(TEXT, encoding="utf-8")
    data, run = str(folder / "data"), ["--shape", "tiny", "--context", "128", "--windows", "4", "--log-every", "15"]
    commands = [
        ["prepare", "--texts", str(folder / "text"), "--data", data, "--drills", "0.002"],
        ["tokenizer", "--data", data, "--vocabulary", "600", "--context", "128"],
        ["train", "--data", data, "--out", str(folder / "teacher"), "--steps", "30", "--every-token", *run],
        *(
            ["label", str(folder / "teacher"), "--data", data, "--out", str(folder / f"soft{part}"), "--k", "8",
             "--part", str(part), "--parts", "2"]
            for part in (0, 1)
        ),
        ["train", "--data", data, "--out", str(folder / "student"), "--steps", "30", *run,
         "--soft-labels", str(folder / "soft0"), str(folder / "soft1"), "--learning-rate", "3e-3"],
    ]  # fmt: skip
    for command in commands:
        assert main(command) == 0
    return folder


def test_the_loss_falls(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "student" / "training.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [15, 30]
    assert rows[1]["valid"]["all"] < rows[0]["valid"]["all"] < np.log(600)


def test_soft_labels_cover_the_text_and_are_shares(trained: Path) -> None:
    data = trained / "data"
    corpus = encode(list(read_jsonl(data / "train.jsonl")), load_tokenizer(data), 128)
    soft = load_soft_labels([trained / "soft0", trained / "soft1"])
    assert soft.ids.shape == soft.probabilities.shape == (len(corpus.tokens), 8)
    assert np.allclose(soft.probabilities.astype(np.float32).sum(-1), 1, atol=0.01)


def test_transformers_reads_the_checkpoint(trained: Path) -> None:
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in (trained / "student").iterdir())
    model = AutoModelForCausalLM.from_pretrained(trained / "student")
    assert model.dtype == torch.float16
    tokenizer = AutoTokenizer.from_pretrained(trained / "student")
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "rain?"}], add_generation_prompt=True)[
        "input_ids"
    ]
    assert tokenizer.decode(ids) == "<s><|user|>rain?</s><|assistant|>"


def test_a_blend_lies_between_its_two(trained: Path, tmp_path: Path) -> None:
    folders = [trained / "teacher", trained / "student", tmp_path / "blend"]
    assert main(["blend", str(folders[0]), str(folders[1]), "--share", "0.25", "--out", str(folders[2])]) == 0
    first, second, between = (
        AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32).lm_head.weight for f in folders
    )
    assert torch.allclose(between, 0.75 * first + 0.25 * second, atol=1e-3)
    assert not torch.allclose(first, second, atol=1e-3)


def test_losses_and_endings_and_replies_are_told(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    student, data = str(trained / "student"), str(trained / "data")
    assert main(["losses", student, str(trained / "teacher"), "--data", data]) == 0
    table = capsys.readouterr().out.splitlines()
    assert "student: loss" in table[0]
    assert "teacher: loss" in table[0]
    assert table[-1].startswith("| all |")
    assert main(["endings", student, "--data", data, "--prompts", "3", "--tokens", "8"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ended"] + report["cut_at_max_tokens"] == report["prompts"] == 3
    prompts = trained / "prompts.jsonl"
    prompts.write_text('{"prompt": "rain?"}\n{"system": "Be brief.", "prompt": "snow?"}\n', encoding="utf-8")
    assert main(["replies", student, "--prompts", str(prompts)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["prompt"] for row in rows] == ["rain?", "snow?"]
    assert all(isinstance(row["student"], str) for row in rows)


def test_a_user_s_mistake_is_one_line(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "--collection", str(tmp_path), "--data", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"tools.toy_model: {tmp_path} has no train.jsonl and no train.jsonl.xz\n"
    wrong = ["--soft-labels", str(trained / "soft0"), "--shape", "tiny", "--steps", "1", "--context", "128"]
    assert main(["train", "--data", str(trained / "data"), "--out", str(tmp_path / "out"), *wrong]) == 1
    assert "the soft labels are of" in capsys.readouterr().err


def test_the_whole_recipe_ends_by_the_clock(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(trained / "data", data)
    assert main(["encode", "--data", str(data), "--context", "128"]) == 0
    (data / "train.jsonl").unlink()  # what was encoded is enough
    out, begun = tmp_path / "out", time.perf_counter()
    whole(data, out, 12.0, "cpu", tiny=True)
    assert time.perf_counter() - begun < 120
    said = [json.loads(line)["what"] for line in (out / "training.jsonl").read_text().splitlines()]
    assert said[0] == "loaded"
    assert [what for what in said if what in ("labelled", "model", "middle")] == ["labelled", "model", "middle"]
    model = AutoModelForCausalLM.from_pretrained(out / "model")
    assert model.config.vocab_size == 600


@pytest.mark.parametrize("seconds", [10.0, 40.0])
def test_a_schedule_by_the_clock_has_the_same_course_whatever_the_speed(seconds: float) -> None:
    now = [0.0]
    settings = Settings(
        steps=1,
        windows=1,
        context=8,
        learning_rate=1.0,
        weight_decay=0,
        reply_share=0.3,
        warm_up=4,
        seconds=seconds,
    )
    schedule = Schedule(settings, lambda: now[0])
    schedule.take()
    now[0] = 5.0  # compiling
    assert (schedule.done, schedule.learning_rate(1)) == (0.0, 0.25)
    schedule.begin()
    now[0] = (5.0 + seconds) / 2
    assert schedule.done == pytest.approx(0.5)
    assert schedule.learning_rate(100) == pytest.approx(0.5)
    now[0] = seconds
    assert schedule.is_over
    assert schedule.learning_rate(100) == pytest.approx(0.0)


def test_an_encoded_corpus_comes_back_as_it_was(trained: Path, tmp_path: Path) -> None:
    corpus = encode(list(read_jsonl(trained / "data" / "train.jsonl")), load_tokenizer(trained / "data"), 64)
    corpus.save(tmp_path / "c.npz.xz")
    again = load_corpus(tmp_path / "c.npz.xz")
    assert np.array_equal(again.tokens, corpus.tokens)
    assert np.array_equal(again.spoken, corpus.spoken)
    assert np.array_equal(again.starts, corpus.starts)
    assert again.sources == corpus.sources


# --- tokens and windows ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(train_tokenizer(TALKS, 400), folder, 64)
    return folder


def test_training_tokens_are_those_of_the_chat_template(tokenizer_folder: Path) -> None:
    corpus = encode(TALKS[:2], load_tokenizer(tokenizer_folder), 64)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    for index, talk in enumerate(TALKS[:2]):
        messages = [{"role": role, "content": text} for role, text in talk.messages]
        row = corpus.tokens[corpus.starts[index] : corpus.starts[index + 1]]
        spoken = corpus.spoken[corpus.starts[index] : corpus.starts[index + 1]]
        assert row.tolist() == tokenizer.apply_chat_template(messages)["input_ids"]
        assert tokenizer.decode(row[spoken]) == f"{talk.answer}</s>"


def test_numbers_are_tokens_digit_by_digit(tokenizer_folder: Path) -> None:
    assert load_tokenizer(tokenizer_folder).encode("2027", add_special_tokens=False).tokens == ["2", "0", "2", "7"]


@pytest.mark.parametrize("seed", range(3))
def test_windows_are_full_and_begin_with_a_conversation(tokenizer_folder: Path, seed: int) -> None:
    corpus = encode(TALKS, load_tokenizer(tokenizer_folder), 64)
    draws = np.full(len(TALKS), 1.5)
    can_join = corpus.tokens[corpus.starts[:-1] + 1] != SYSTEM
    windows = round_of_windows(corpus, draws, can_join, 65, np.random.default_rng(seed))
    assert (windows[:-1] >= 0).all()
    assert (corpus.tokens[windows[:, 0]] == BOS).all()
    first = np.concatenate([[False], np.diff(windows[0]) != 1])
    for place in np.flatnonzero(first):  # what follows is a conversation, with its <s> or joined to the one before
        begin = windows[0][place]
        assert begin in corpus.starts or begin - 1 in corpus.starts
        assert corpus.tokens[windows[0][place - 1]] == EOS
    joined = sum(begin - 1 in corpus.starts for begin in windows[0][first])
    assert joined < first.sum()


def test_a_round_draws_by_weight(tokenizer_folder: Path) -> None:
    corpus = encode(TALKS, load_tokenizer(tokenizer_folder), 64)
    draws = np.array([0.0 if talk.source == "a" else 2.0 for talk in TALKS])
    rng = np.random.default_rng(0)
    windows = round_of_windows(corpus, draws, np.zeros(len(TALKS), bool), 65, rng)
    begins, counts = np.unique(windows[np.isin(windows, corpus.starts[:-1])], return_counts=True)
    sources = {TALKS[int(np.searchsorted(corpus.starts, begin))].source for begin in begins}
    assert sources == {"b", "c"}
    assert counts.max() == 2


def test_loops_are_seen() -> None:
    rng = random.Random(1)
    words = "sea boat wind rain sun cat dog tree house road bird fish".split()  # noqa: SIM905
    assert not loops(" ".join(rng.sample(words, 12)))
    assert loops("and then and then and then it ended")
    assert loops("no no no")
    assert loops("the cat sat on the mat. so the cat sat on the mat. yes the cat sat on the mat.")
    assert not loops("It was very, very cold. The cat sat on the mat and the dog sat on the mat.")
