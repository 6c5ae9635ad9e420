"""Chats with a model in a process of its own and prints how much that holds: `python resident_memory.py DIR FORM`.

Prints, in bytes: memory of its own and of the model's file above what torch takes, and what the weights take.
"""

import random
import sys
from pathlib import Path


def held_by_model() -> int:
    """Of this process, by the kernel's account: memory of its own and what is mapped of a model's file, without
    what is mapped of libraries, which is as much as a file system reads at a time."""
    held, of_model = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            of_model = line.endswith(".safetensors")
        elif name == ("Rss:" if of_model else "Anonymous:"):
            held += int(rest[0]) * 1024
    return held


def main(folder: str, form: str) -> None:
    import torch

    from pagedchat import LLM, SamplingParams

    before = held_by_model()
    llm = LLM(folder, device="cpu", dtype="bfloat16", quantization=form, skip_tokenizer_init=True)
    draw = random.Random(1)
    prompts = [{"prompt_token_ids": [draw.randrange(3, 4000) for _ in range(100)]} for _ in range(8)]
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    assert len(llm.generate(prompts, params, use_tqdm=False)) == len(prompts)
    from pagedchat.layers.quantized_linear import stored_parts

    runner = llm._engine._core.runner
    table = runner.model.embedding.table
    kept = sum(part.nbytes for part in stored_parts(runner.model) if part is not table)
    assert isinstance(table, torch.Tensor)
    print(held_by_model() - before, kept)


main(*sys.argv[1:])
