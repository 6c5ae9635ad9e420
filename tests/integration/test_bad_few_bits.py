"""Files and options of few bits that cannot be used, by the command line: one sentence, what to do, an exit status,
no traceback; and a processor that is too old still answers.

What answers does so in a process of its own; what is refused in this one, which has imported torch.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from pagedchat.cli import main as cli
from tests.models.families.tiny_families import save_tiny
from tests.models.quantized.test_stored import save_stored
from tools.fuzz.gguf_files import TENSORS, VALUES, gguf_bytes
from tools.fuzz.gguf_parts import file_name, split, write_parts
from tools.fuzz.hub_models import put_in_cache

Refusal = Callable[..., tuple[int, str, list[str]]]
"""Options -> exit status, the reply and the lines beside it."""
ROOT = Path(__file__).parents[2]
OLD_PROCESSOR = """
import sys
import llvmlite.binding as llvm
there = llvm.get_host_cpu_features()
llvm.get_host_cpu_features = lambda: {**there, "avx2": False}
from pagedchat.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def said(*argv: str, by: tuple[str, ...] = ("-m", "pagedchat")) -> tuple[int, str, list[str]]:
    """Exit status, the reply and the lines beside it."""
    done = subprocess.run(
        [sys.executable, *by, "-p", "hi", "--device", "cpu", "--max-tokens", "3", *argv],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """What `said` gives, of this process."""

    def ask(*argv: str) -> tuple[int, str, list[str]]:
        capsys.readouterr()  # of libraries that made the checkpoint
        status = cli.main(["-p", "hi", "--device", "cpu", "--max-tokens", "3", *argv])
        captured = capsys.readouterr()
        return status, captured.out, captured.err.splitlines()

    return ask


def stored_as(name: str, kind: int) -> list[list[object]]:
    return [[each, shape, kind if each == name else its_kind] for each, shape, its_kind in TENSORS]


def with_letters(checkpoint: Path) -> Path:
    """It has a tokenizer, of single letters."""
    letters = Tokenizer(BPE({chr(32 + i): i for i in range(95)}, []))
    letters.save(str(checkpoint / "tokenizer.json"))
    return checkpoint


WHOLE = gguf_bytes(VALUES, TENSORS)
GGUF = {
    "architecture": (
        gguf_bytes({**VALUES, "general.architecture": "mamba"}, TENSORS), "of the architecture 'mamba'", "Choose",
    ),
    "block type": (
        gguf_bytes(VALUES, stored_as("blk.0.attn_q.weight", 10)),
        "blk.0.attn_q.weight is stored as Q2_K, which is not known here", "Choose a file in one of F32",
    ),
    "cut short": (WHOLE[:-2000], "it is cut short: blk.0.ffn_down.weight ends behind its end", "Download"),
    "cut in its header": (WHOLE[:300], "it is cut short", "Download"),
    "byte order": (gguf_bytes(VALUES, TENSORS, order=">"), "the byte order of other machines", "little-endian"),
}  # fmt: skip


def test_a_whole_gguf_file_answers(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(WHOLE)
    status, _, beside = said("--model", str(tmp_path / "tiny.gguf"))
    assert (status, beside) == (0, [])


def test_a_model_in_several_gguf_files_answers_or_says_which_is_missing(tmp_path: Path) -> None:
    first = write_parts(tmp_path, split(VALUES, TENSORS, 3, empty_first=True))
    status, reply, beside = said("--model", str(first))
    assert (status, beside) == (0, [])
    assert said("--model", str(tmp_path)) == (0, reply, [])
    (tmp_path / file_name(2, 3)).unlink()
    status, reply, beside = said("--model", str(first))
    assert (status, reply, len(beside)) == (1, "", 2)
    assert beside[0] == f"pagedchat: {first} lacks {file_name(2, 3)} of its 3 parts."
    assert "Download what is missing beside it." in beside[1]


def test_a_gguf_model_of_the_hub_answers_by_its_tag_or_says_which_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    put_in_cache(tmp_path, "o/n", {"n-Q4_0.gguf": WHOLE, "n-Q4_1.gguf": WHOLE})
    status, _, beside = said("--model", "o/n:q4_0")
    assert (status, beside) == (0, [])
    for name, words, hint in (
        ("o/n", "o/n can be 2 GGUF models.", "Name one of them: o/n:Q4_0 or o/n:Q4_1."),
        ("o/n:Q8_0", "o/n:Q8_0 is not on this machine, and the model hub cannot be reached.", "Check the network"),
    ):
        status, reply, beside = refusal("--model", name)
        assert (status, reply, len(beside)) == (1, "", 2)
        assert beside[0] == f"pagedchat: {words}"
        assert hint in beside[1]


@pytest.mark.parametrize("fault", GGUF)
def test_a_gguf_file_that_cannot_be_used(fault: str, tmp_path: Path, refusal: Refusal) -> None:
    content, words, hint = GGUF[fault]
    (tmp_path / "tiny.gguf").write_bytes(content)
    status, reply, beside = refusal("--model", str(tmp_path / "tiny.gguf"))
    assert (status, reply, len(beside)) == (1, "", 2)
    assert beside[0].startswith("pagedchat: ")
    assert words in beside[0]
    assert hint in beside[1]


def test_a_quantised_checkpoint_whose_scales_are_missing(tmp_path: Path, refusal: Refusal) -> None:
    stored, _ = save_stored(tmp_path, "gptq")
    tensors = load_file(stored / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if "scales" not in name}, stored / "model.safetensors")
    status, reply, beside = refusal("--model", str(with_letters(stored)))
    assert (status, reply, len(beside)) == (1, "", 2)
    assert "scales, without which its few bits mean nothing" in beside[0]
    assert beside[1].startswith(("Choose", "Download", "  "))


def test_a_width_that_groups_do_not_divide(tmp_path: Path, refusal: Refusal) -> None:
    checkpoint = with_letters(save_tiny(tmp_path, "mpt_three_heads"))
    status, reply, beside = refusal("--model", str(checkpoint), "--quantize", "int4")
    assert (status, reply, len(beside)) == (2, "", 2)
    assert "has a product of 24 inputs, which none of them divides" in beside[0]
    assert "Use --quantize int8 or none" in beside[1]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="AVX2 is x86's")
def test_a_processor_without_avx2() -> None:
    pytest.importorskip("llvmlite")
    status, reply, beside = said("--quantize", "int8", "--seed", "1", by=("-c", OLD_PROCESSOR))
    assert (status, len(beside)) == (0, 1)
    assert reply.strip()
    assert beside[0].startswith("There are no CPU kernels here, since the processor lacks avx2: torch computes all")
