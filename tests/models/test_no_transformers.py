"""A model of ours runs without transformers, which takes seconds to import: asked of a clean interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import byte_tokenizer
from tests.helpers_models import make_checkpoint

PROGRAM = """
import sys
from pagedchat import LLM, SamplingParams
llm = LLM(sys.argv[1], device="cpu", num_blocks=16)
params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
print(len(llm.chat([{"role": "user", "content": "Hello"}], params).outputs[0].token_ids))
print(*[name for name in ("transformers", "huggingface_hub.hf_api", "httpx") if name in sys.modules])
"""


@pytest.mark.parametrize("family", ["opt", "llama", "qwen3", "gemma2", "gpt_neox"])
def test_nothing_of_it_is_imported(family: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, family, vocab_size=260)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n\n"
    assert done.stderr == ""
