"""GGUF files as llama.cpp itself reads them, beside what this program makes of them.

    pip install xllamacpp && python -m tools.check_gguf --into FOLDER [--families llama,qwen3] [--kinds Q8_0,Q4_K]

Small models with random weights and the tokenizer of the model in the box are written, a server of llama.cpp's
answers for each, and greedy tokens, likelihoods and tokens of texts are held against ours. llama.cpp rounds what it
multiplies and keeps keys and values in 16 bits, so that likelihoods differ by little, and replies part where two
tokens are near. In a mixture of experts they part where two experts are: of five prompts the median counts there.
"""

import argparse
import json
import random
import subprocess
import sys
import unicodedata
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tokenizers import Tokenizer

from pagedchat import LLM, SamplingParams
from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.resources import resource_dir
from tests.models.gguf.write_gguf import write_gguf

FAMILIES = {
    "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "olmoe": "OlmoeForCausalLM", "gpt_oss": "GptOssForCausalLM",
}  # fmt: skip
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0")
SHAPE = {
    "vocab_size": 8192, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_OF_QWEN = {
    "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512,
}  # fmt: skip
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 4},
    "qwen2_moe": _OF_QWEN, "qwen3_moe": _OF_QWEN | {"norm_topk_prob": True},
    "gpt_oss": {
        "num_local_experts": 8, "num_experts_per_tok": 4, "intermediate_size": 256, "sliding_window": 32,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 3, "num_key_value_heads": 4},
}  # fmt: skip
"""What their shapes have besides."""
STD = 0.08
"""Of the weights: with less, replies repeat a token."""
PROMPTS = [[1] + [(11 * i + 7 * k) % 7000 + 30 for i in range(n)] for k, n in enumerate((4, 20, 60, 200, 33))]
TEXTS = (
    "The tide was out, and so was the cat.", "  two  spaces\n\n\tand 12345 tabs", "I'll say it's DON'T!",
    "海と猫 \U0001f642 naïve Ünïcödé", "x\r\ny   ", "a" * 40,
)  # fmt: skip
CUTS = (
    "gpt-2", "phi-2", "olmo", "mpt", "smollm", "starcoder", "refact", "command-r", "codeshell", "llama-bpe",
    "llama3", "dbrx", "smaug-bpe", "qwen2", "stablelm2", "deepseek-r1-qwen",
)  # fmt: skip
"""How text is cut into words, by the names that files have for it."""
PIECES = [
    "a", "b", "Z", " ", "  ", "\n", "\t", "\r\n", "1", "23", "4567", "'s", "'LL", "é", "ß", "İ", "海", "猫",
    "\U0001f642", "\u200b", "\u00a0", "\u3000", "_", "-", "...", "#", "@x", "<s>", "</s>", "Ω", "ñ", "я", "א", "ا",
    "e\u0301", "１", "²", "½", "Ⅷ", "٣", "\x1f", "’s", "don't", "\u2028", "ﬁ", "𝒳", "word", "Word", "WORD",
]  # fmt: skip
"""Of which texts are made up."""
NUM_TEXTS = 400
NUM_TOKENS = 12
FARTHEST = 0.2
"""Of two logarithms of a first token's probability, with weights of four bits and inputs of eight."""
SERVER = """
import sys, time, xllamacpp
wanted = xllamacpp.CommonParams()
wanted.model.path, wanted.hostnames, wanted.port = sys.argv[1], ["127.0.0.1"], 0
wanted.n_ctx, wanted.n_parallel, wanted.cpuparams.n_threads, wanted.warmup = 2048, 1, 2, False
server = xllamacpp.Server(wanted)
print(server.listening_address, flush=True)
time.sleep(1000)
"""


@contextmanager
def llama_server(file: Path) -> Iterator[str]:
    """llama.cpp's own, for a file; where it answers."""
    command = [sys.executable, "-c", SERVER, str(file)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    assert server.stdout is not None  # noqa: S101 - it is a pipe
    try:
        address = server.stdout.readline().strip()
        if not address:
            raise SystemExit("llama.cpp's server did not start; is xllamacpp installed?")
        yield address
    finally:
        server.kill()
        server.wait()


def ask(address: str, path: str, **body: object) -> Any:
    """Its answer."""
    request = urllib.request.Request(  # noqa: S310 - this machine's own
        f"{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def write_files(into: Path, family: str, kinds: list[str], cut: str = "smollm", per_part: int = 0) -> list[Path]:
    """A model in every kind, split over files of so many tensors where that is not 0."""
    folder = into / family
    folder.mkdir(parents=True, exist_ok=True)
    shape = SHAPE | MIXTURES.get(family, {}) | {"model_type": family, "architectures": [FAMILIES[family]]}
    write_checkpoint(folder, shape, torch.float32, torch.device("cpu"), std=STD, seed=3)
    return [
        write_gguf(into / f"{family}-{kind}.gguf", folder, kind, _vocabulary(cut), per_part=per_part)
        for kind in kinds
    ]


def _vocabulary(cut: str) -> dict[str, Any]:
    path = resource_dir("assets") / "model" / "tokenizer.json"
    saved, tokenizer = json.loads(path.read_text("utf-8")), Tokenizer.from_file(str(path))
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    control = {added["content"] for added in saved["added_tokens"]}
    values = {
        "model": "gpt2", "pre": cut, "tokens": tokens, "bos_token_id": 1, "add_bos_token": True,
        "token_type": [3 if token in control else 1 for token in tokens],
        "merges": [" ".join(pair) for pair in saved["model"]["merges"]],
    }  # fmt: skip
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}


def compare(file: Path) -> bool:
    """Whether both read a file alike; says how near they are."""
    with llama_server(file) as address:
        wanted = {
            "n_predict": NUM_TOKENS,
            "temperature": 0,
            "return_tokens": True,
            "ignore_eos": True,
            "n_probs": 5,
        }
        theirs = [ask(address, "/completion", prompt=prompt, cache_prompt=False, **wanted) for prompt in PROMPTS]
        split = [ask(address, "/tokenize", content=text)["tokens"] for text in TEXTS]
    with LLM(str(file), device="cpu", num_blocks=256) as llm:
        params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=5)
        ours = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)
        tokenizer = llm.get_tokenizer()
        split_alike = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS] == split
    same, distances = [], []
    for their, our in zip(theirs, ours, strict=True):
        pairs = zip(their["tokens"], our.outputs[0].token_ids, strict=True)
        same.append(next((i for i, (one, other) in enumerate(pairs) if one != other), NUM_TOKENS))
        likely = {entry["id"]: entry["logprob"] for entry in their["completion_probabilities"][0]["top_logprobs"]}
        told = (our.outputs[0].logprobs or [{}])[0]
        both = likely.keys() & told.keys()
        distances.append(max((abs(likely[i] - told[i].logprob) for i in both), default=inf))
    family, kind, *_ = file.stem.split("-")
    far = median(distances) if family in MIXTURES else max(distances)
    alike = min(same) if family not in MIXTURES else max(same)
    words = "" if split_alike else ", TEXTS ARE SPLIT OTHERWISE"
    print(
        f"{file.name}: first tokens alike {same} of {NUM_TOKENS}, likelihoods off by {far:.2g}, "
        f"at most {max(distances):.2g}{words}",
        flush=True,
    )
    return split_alike and far < FARTHEST and (kind != "F32" or alike == NUM_TOKENS)


def compare_cut(into: Path, cut: str) -> bool:
    """Whether both cut made-up texts into the same tokens."""
    drawn = random.Random(cut)  # noqa: S311 - texts, no keys
    texts = ["".join(drawn.choices(PIECES, k=drawn.randint(1, 14))) for _ in range(NUM_TEXTS)]
    if cut == "qwen2":  # whose own tokenizer brings texts into this form, which llama.cpp leaves out
        texts = [unicodedata.normalize("NFC", text) for text in texts]
    [file] = write_files(into, "llama", ["F16"], cut)
    with llama_server(file) as address:
        theirs = [ask(address, "/tokenize", content=text)["tokens"] for text in texts]
    with LLM(str(file), device="cpu", num_blocks=64) as llm:
        tokenizer = llm.get_tokenizer()
        ours = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    otherwise = [text for text, one, other in zip(texts, ours, theirs, strict=True) if one != other]
    print(f"{cut}: {len(otherwise)} of {NUM_TEXTS} texts are cut otherwise{f': {otherwise[:3]}' * bool(otherwise)}",
          flush=True)  # fmt: skip
    return not otherwise


def main() -> int:
    """Write, ask both, compare; returns how many files and cuts were read otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tools.check_gguf", description=__doc__.split("\n")[0])
    parser.add_argument("--into", type=Path, required=True, help="a folder for the files")
    parser.add_argument("--families", default=",".join(FAMILIES), help="of models (all)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of weights (all)")
    parser.add_argument("--per-part", type=int, default=0, help="tensors in each file of a split model (not split)")
    parser.add_argument("--cuts", default=",".join(CUTS), help="of texts (all)")
    args = parser.parse_args()
    files = [
        file
        for family in args.families.split(",")
        for file in write_files(args.into, family, args.kinds.split(","), per_part=args.per_part)
    ]
    otherwise = [file.name for file in files if not compare(file)]
    otherwise += [cut for cut in filter(None, args.cuts.split(",")) if not compare_cut(args.into, cut)]
    print(f"read otherwise: {', '.join(otherwise) or 'none'}")
    return len(otherwise)


if __name__ == "__main__":
    sys.exit(main())
