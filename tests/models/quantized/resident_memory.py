"""Chats with a model in a process of its own and prints how much that holds: `python resident_memory.py DIR FORM`.

Prints, in bytes: what is held above what torch takes, and what the weights in memory take.
"""

import random
import sys
from pathlib import Path


def resident() -> int:
    """Of this process, by the kernel's account."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def main(folder: str, form: str) -> None:
    import torch

    from pagedchat import LLM, SamplingParams

    before = resident()
    llm = LLM(folder, device="cpu", dtype="bfloat16", quantization=form, skip_tokenizer_init=True)
    draw = random.Random(1)
    prompts = [{"prompt_token_ids": [draw.randrange(60000) for _ in range(100)]} for _ in range(8)]
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    assert len(llm.generate(prompts, params, use_tqdm=False)) == len(prompts)
    from pagedchat.layers.quantized_linear import stored_parts

    runner = llm._engine._core.runner
    table = runner.model.embedding.table
    kept = sum(part.nbytes for part in stored_parts(runner.model) if part is not table)
    assert isinstance(table, torch.Tensor)
    print(resident() - before, kept)


main(*sys.argv[1:])
