"""A model of ours runs without transformers, which takes seconds to import: asked of a clean interpreter."""

import subprocess
import sys
from pathlib import Path

from tests.fakes import byte_tokenizer
from tests.helpers_models import make_checkpoint

PROGRAM = """
import sys
from pagedchat import LLM, SamplingParams
params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
for folder in sys.argv[1:]:
    llm = LLM(folder, device="cpu", num_blocks=16)
    num_tokens = len(llm.chat([{"role": "user", "content": "Hello"}], params)[0].outputs[0].token_ids)
    imported = [name for name in ("transformers", "huggingface_hub.hf_api", "httpx") if name in sys.modules]
    print(num_tokens, *imported)
"""
FAMILIES = ["opt", "llama", "qwen3", "gemma2", "gpt_neox"]


def test_nothing_of_it_is_imported(tmp_path: Path) -> None:
    """By none of the families, one after the other in one process."""
    folders = []
    for family in FAMILIES:
        folders.append(make_checkpoint(tmp_path / family, family, vocab_size=260))
        byte_tokenizer().save(str(folders[-1] / "tokenizer.json"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["5"] * len(FAMILIES)
    assert done.stderr == ""
