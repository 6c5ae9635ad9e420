"""What telling of tokens and ruling over them costs a decode step: `python -m tools.measure_sampling [CHATS ...]`.

The shape of opt-125m with random weights, 64 chats and one by default, each kind of request in turn, three rounds
of them; printed are medians of steps, in microseconds, and what they take beyond those of plain requests. Changes
nothing.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pagedchat.bench.random_checkpoint import LARGE_STD, OPT_125M, write_checkpoint, write_word_tokenizer
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.garbage import rare_collections
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.loaded import LoadedModel
from pagedchat.step_batch import DecodeBatch
from pagedchat.structured.params import StructuredOutputsParams

LONG_TEXT = {"type": "string", "minLength": 2000}
SCHEMAS: dict[str, dict[str, Any]] = {
    "a schema of texts": {"type": "array", "items": {"type": "string"}, "minItems": 1000},
    "a schema of one text whose length counts": {
        "type": "object", "properties": {"text": LONG_TEXT}, "required": ["text"], "additionalProperties": False,
    },
}  # fmt: skip
"""In the first, as in those that people have, what comes next in a text is the same wherever one is in it; in the
second every place of the text is another state, so that nothing is known of it before."""
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "greedy, logprobs=0": {"temperature": 0, "logprobs": 0},
    "greedy, logprobs=5": {"temperature": 0, "logprobs": 5},
    "greedy, logprobs=20": {"temperature": 0, "logprobs": 20},
    "drawn": {"temperature": 0.8, "top_p": 0.95},
    "drawn, logprobs=5": {"temperature": 0.8, "top_p": 0.95, "logprobs": 5},
    **{
        f"drawn, {name}": {
            "temperature": 0.8,
            "top_p": 0.95,
            "structured_outputs": StructuredOutputsParams(json=schema),
        }
        for name, schema in SCHEMAS.items()
    },
    "drawn, logit_bias of 100": {"temperature": 0.8, "top_p": 0.95, "logit_bias": dict.fromkeys(range(100), 1.0)},
}
ROUNDS = 3
STEPS, PROMPT = 100, 60


def main(arguments: list[str]) -> int:
    """Print a line for each kind and number of chats; returns the exit code."""
    on_gpu = torch.cuda.is_available()
    dtype, device = (torch.float16, "cuda") if on_gpu else (torch.float32, "cpu")
    steps = STEPS if on_gpu else 6
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), OPT_125M, dtype, torch.device(device), std=LARGE_STD)
        write_word_tokenizer(Path(folder), OPT_125M["vocab_size"])
        loaded = load_model(EngineConfig(model=ModelConfig(model=folder), cache=CacheConfig(num_blocks=2048)))
    for num_chats in map(int, arguments or ("64", "1")):
        times: dict[str, list[float]] = {name: [] for name in KINDS}
        for kind in KINDS.values():  # what they lack is made
            _step_times(loaded, num_chats, kind, 4)
            loaded.prepare_wanted()
        for _ in range(ROUNDS):
            for name, kind in KINDS.items():
                times[name].append(median(_step_times(loaded, num_chats, kind, steps)))
        for name, each in times.items():
            plain = median(times["greedy" if name.startswith("greedy") else "drawn"])
            us = median(each)
            print(f"{num_chats} chats, {name}: {us:.1f} us a step, {us / plain - 1:+.1%}", flush=True)
    return 0


def _step_times(loaded: LoadedModel, num_chats: int, kind: dict[str, Any], num_steps: int) -> list[float]:
    """Of steps that are decodes of all chats, in microseconds."""
    core = EngineCore(loaded.limits, loaded.runner, grammars=loaded.grammars)
    ignores = "structured_outputs" not in kind  # which says when the reply ends: after these steps
    params = SamplingParams(**kind, max_tokens=num_steps + 8, ignore_eos=ignores)
    for chat in range(num_chats):
        core.extend(core.open(), [(chat * 7919 + i * 31) % 50_000 + 3 for i in range(PROMPT)], params)
    times: list[float] = []
    with rare_collections():
        while core.has_work:
            began = time.perf_counter()
            batch = core.step().batch
            seconds = time.perf_counter() - began
            if isinstance(batch, DecodeBatch) and len(batch) == num_chats:
                times.append(1e6 * seconds)
    return times[4 : 4 + num_steps]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
