"""What several ranks say on GPUs, held against one, each check by a name.

    python -m tools.check_ranks kernel tokens captured exact llama mixtures drafts company ahead nccl

With several GPUs each rank has its own, and as many ranks are tried as there are GPUs for. Two ranks share a single
GPU: they take turns, so nothing here says how fast anything is.
"""

# ruff: noqa: S101 - checks are what this is for
# mypy: disable-error-code="arg-type"

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from pagedchat import LLM, SamplingParams
from pagedchat.api.engine import LLMEngine
from pagedchat.bench.random_checkpoint import LARGE_STD, write_checkpoint
from pagedchat.bundled import folder as bundled_folder
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.distributed.group import RankGroup
from pagedchat.distributed.joining import SHARE_GPU
from pagedchat.distributed.loading import load_model
from pagedchat.distributed.workers import Workers
from pagedchat.errors import DeviceError
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.ranks.reduce_add_norm import (
    MOST_ROWS,
    Mailboxes,
    mailbox_bytes,
    reduce_add_norm,
    sum_in_order,
)

GPU = torch.device("cuda", 0)
NUM_GPUS = torch.cuda.device_count()
SIZES = [size for size in (2, 4) if size <= max(2, NUM_GPUS)]
SMALL_LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 4000, "hidden_size": 1024,
    "intermediate_size": 2816, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 64, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
OLMOE = {
    "model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "vocab_size": 4000, "hidden_size": 512,
    "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
    "num_experts": 16, "num_experts_per_tok": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Experts, and queries and keys that are normed over their width."""
GPT_OSS = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": 4000, "hidden_size": 512,
    "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 64, "num_local_experts": 16, "num_experts_per_tok": 4, "sliding_window": 64,
    "max_position_embeddings": 2048, "initial_context_length": 2048, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 150000.0, "factor": 2.0, "original_max_position_embeddings": 1024,
        "truncate": False,
    },
}  # fmt: skip
"""Experts with biases, sinks, windows."""
PROMPTS = [[(7 * i + k) % 3900 + 3 for i in range(length)] for k, length in enumerate((3, 20, 90, 300, 33))]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=1)


def kernel() -> None:
    """All ranks in one launch, against plain sums; launches of varying heights follow each other."""
    for size in (2, 4, 8):
        memory = torch.full((size, mailbox_bytes(size) // 4), -1, dtype=torch.int32, device=GPU)
        addresses = torch.tensor([box.data_ptr() for box in memory], device=GPU)
        boxes = Mailboxes(addresses, torch.zeros(size, MOST_ROWS, dtype=torch.int32, device=GPU), 0)
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            worst = 0.0
            for turn, (num_rows, width) in enumerate([(1, 4096), (16, 1024), (3, 768), (1, 768), (7, 2048)] * 3):
                torch.manual_seed(turn)
                update = torch.randn(size, num_rows, width, device=GPU).to(dtype)
                hidden = torch.randn(num_rows, width, device=GPU).to(dtype).expand(size, -1, -1).contiguous()
                norm = Norm("rms", torch.rand(width, device=GPU).to(dtype) + 0.5, None, 1e-5)
                summed = hidden[0] + sum_in_order(list(update))
                hops = 1 + turn // 2 % 2
                normed = reduce_add_norm(update, hidden, norm, boxes, hops=hops)
                assert torch.equal(hidden, summed.expand_as(hidden)), (size, dtype, turn)
                wanted = norm.apply(summed)
                worst = max(worst, float((normed[size - 1].float() - wanted.float()).abs().max()))
                alone = reduce_add_norm(update, None, None, boxes, hops=3 - hops)
                assert torch.equal(alone[0], sum_in_order(list(update)))
            assert bool((memory == -1).all()), "a place was not emptied"
            print(f"kernel: {size} ranks, {dtype}: sums exact, norms off by {worst:.2g} at most", flush=True)


def nccl() -> None:
    """A group of one rank: that its calls are there, and can be captured."""
    with tempfile.TemporaryDirectory() as folder:
        group = RankGroup(0, 1, folder, GPU)
        rows, logits = torch.ones(200, 4096, device=GPU), torch.ones(3, 64, device=GPU)
        group.sum(rows.clone())
        group.side_by_side(logits)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            summed, beside = group.sum(rows), group.side_by_side(logits)
        graph.replay()
        torch.cuda.synchronize()
        assert float(summed.sum()) == rows.numel()
        assert beside.shape == logits.shape
        group.close()
    print("nccl: a sum and logits of one rank, eager and captured", flush=True)


def _load(folder: Path, size: int, **arguments: object) -> LLM:
    return LLM(
        str(folder),
        tensor_parallel_size=size,
        skip_tokenizer_init=True,
        num_blocks=400,
        device="cuda",
        max_num_seqs=16,
        max_num_batched_tokens=256,
        **arguments,
    )


def _asked(llm: LLM, params: SamplingParams = GREEDY) -> list[Any]:
    return llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)


def _tokens(outputs: list[Any]) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in outputs]


def _steps(llm: LLM) -> str:
    """How batches were run."""
    runner: Any = getattr(llm._engine._core.runner, "own", llm._engine._core.runner)
    decodes, prefills = getattr(runner, "decodes", None), getattr(runner, "prefills", None)
    if decodes is None:
        return "eager"
    names = sorted({*decodes.store._names.values()})
    prompts = "0 captured" if prefills is None else f"{prefills.num_replays} captured"
    given_up = [shelf.store.refusal for shelf in (decodes, prefills) if shelf is not None and shelf.store.refusal]
    return (
        f"{decodes.num_replays} captured decodes, {decodes.num_ahead} begun ahead; steps {names}; "
        f"prompts {prompts}; given up: {given_up or 'nothing'}"
    )


def _ask(folder: Path, size: int, **arguments: object) -> tuple[list[list[int]], list[float], str]:
    began = time.perf_counter()
    with _load(folder, size, **arguments) as llm:
        loaded = time.perf_counter() - began
        outputs = _asked(llm)
        notes = f"loaded in {loaded:.1f} s, {_steps(llm)}; {' '.join(llm.notices)}"
    first = [(output.outputs[0].logprobs or [{}])[0][output.outputs[0].token_ids[0]].logprob for output in outputs]
    return _tokens(outputs), first, notes


def _compare(name: str, folder: Path, dtype: str, **arguments: object) -> None:
    one, first_one, notes_one = _ask(folder, 1, dtype=dtype, **arguments)
    print(f"{name}, {dtype}: one rank {notes_one}", flush=True)
    heads = json.loads((folder / "config.json").read_text("utf-8"))["num_attention_heads"]
    for size in (size for size in SIZES if heads % size == 0):
        several, firsts, notes = _ask(folder, size, dtype=dtype, **arguments)
        same = [sum(a == b for a, b in zip(x, y, strict=True)) for x, y in zip(one, several, strict=True)]
        off = max(abs(a - b) for a, b in zip(first_one, firsts, strict=True))
        print(f"  {size} ranks: same tokens {same} of {GREEDY.max_tokens} each; logprobs of first tokens off by "
              f"{off:.2g} at most; {notes}", flush=True)  # fmt: skip
        if dtype == "float32":
            assert one == several


def _random(shape: dict[str, Any]) -> Path:
    folder = Path(tempfile.mkdtemp())
    write_checkpoint(folder, shape, torch.float16, GPU, std=LARGE_STD / 2)
    return folder


def tokens() -> None:
    """Eager, in float32 and float16."""
    _compare("eager: the model in the box (OPT)", bundled_folder(), "float32", enforce_eager=True)
    _compare("eager: Llama, 1,024 wide", _random(SMALL_LLAMA), "float16", enforce_eager=True)


def captured() -> None:
    """The same with captured steps, sums by the kernel over memory that all processes have."""
    _compare("captured: the model in the box (OPT)", bundled_folder(), "float16")


def exact() -> None:
    """Captured steps in float32, whose tokens are the same."""
    _compare("captured: the model in the box (OPT)", bundled_folder(), "float32")


def llama() -> None:
    """Captured steps of a wider model."""
    _compare("captured: Llama, 1,024 wide", _random(SMALL_LLAMA), "float16")


def mixtures() -> None:
    """Experts, norms over all heads, sinks, captured through their modules."""
    _compare("captured: OLMoE, 512 wide", _random(OLMOE), "float16")
    _compare("captured: gpt-oss, 512 wide", _random(GPT_OSS), "float16")


def drafts() -> None:
    """A draft model, whole beside the first part: the one in the box for itself, so that drafts hold."""
    plain = replace(GREEDY, logprobs=None)
    with _load(bundled_folder(), 2, speculative_config={"model": str(bundled_folder())}) as llm:
        llm._engine._core.scheduler.drafts.worth = None
        found, stats, steps = _tokens(_asked(llm, plain)), llm.stats(), _steps(llm)
    with _load(bundled_folder(), 2) as llm:
        same = [a == b for a, b in zip(_tokens(_asked(llm, plain)), found, strict=True)]
    print(f"drafts: {stats.accepted_tokens} of {stats.draft_tokens} accepted; replies like those without: {same}; "
          f"{steps}", flush=True)  # fmt: skip


def company() -> None:
    """Replies that are the same alone and together, bit for bit, over as many ranks as there can be."""
    with _load(
        _random(SMALL_LLAMA), SIZES[-1], dtype="float16", batch_invariant=True, enable_prefix_caching=False
    ) as llm:
        together = _asked(llm)
        for prompt, beside in zip(PROMPTS, together, strict=True):
            [alone] = llm.generate([{"prompt_token_ids": prompt}], GREEDY, use_tqdm=False)
            assert alone.outputs[0].token_ids == beside.outputs[0].token_ids
            assert alone.outputs[0].logprobs == beside.outputs[0].logprobs
        print(f"company: the same bits alone and together; {_steps(llm)}", flush=True)


def ahead() -> None:
    """What all ranks capture in spare time serves replies, which capture nothing then."""
    folder = _random(SMALL_LLAMA)
    for size in SIZES:
        model = ModelConfig(
            model=str(folder), tensor_parallel_size=size, skip_tokenizer_init=True, device="cuda", dtype="float16",
            max_model_len=512,
        )  # fmt: skip
        scheduler = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=256)
        loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=400), scheduler=scheduler))
        began, before = time.perf_counter(), _num_captured(loaded.runner)
        while loaded.prepare_more():
            pass
        seconds, there = time.perf_counter() - began, _num_captured(loaded.runner)
        engine = LLMEngine.from_loaded(loaded)
        del loaded
        for i, prompt in enumerate(PROMPTS):
            engine.add_request(str(i), {"prompt_token_ids": prompt}, GREEDY)
        found: dict[str, list[int]] = {}
        while engine.has_unfinished_requests():
            found |= {each.request_id: list(each.outputs[0].token_ids) for each in engine.step()}
        assert _num_captured(engine._core.runner) == there
        engine.close()
        with _load(folder, size, dtype="float16", max_model_len=512) as llm:
            same = [found[str(i)] == tokens for i, tokens in enumerate(_tokens(_asked(llm)))]
        print(f"ahead: {size} ranks, decodes and prompts captured: {before}, after {seconds:.1f} s {there}; "
              f"replies like those of steps captured at first use: {same}", flush=True)  # fmt: skip


def _num_captured(runner: Any) -> list[int]:
    """Decodes and prompts, on rank 0."""
    return [len(steps.store._steps) for steps in (runner.own.decodes, runner.own.prefills)]


def killed() -> None:
    """A rank that is killed in the middle of replies: which one it was, and how soon that is said."""
    for size in SIZES:
        with _load(_random(SMALL_LLAMA), size, dtype="float16") as llm:
            _asked(llm)
            # Nobody here keeps the runner: NCCL waits for its captured steps when it ends.
            pid, said = _workers(llm).pids[-1], ""
            threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
            began = time.perf_counter()
            try:
                _asked(llm, SamplingParams(temperature=0, max_tokens=1500, ignore_eos=True))
            except DeviceError as error:
                said = error.message
            seconds = time.perf_counter() - began - 0.2
        print(f"killed: {size} ranks, after {seconds:.1f} s: {said}", flush=True)
        assert f"(process {pid}" in said


def _workers(llm: LLM) -> Workers:
    runner: Any = llm._engine._core.runner
    workers: Workers = runner.workers
    return workers


CHECKS = {
    check.__name__: check
    for check in (kernel, nccl, tokens, captured, exact, llama, mixtures, drafts, company, ahead, killed)
}


def main(names: list[str]) -> int:
    """Run the checks of these names, or all; returns how many failed."""
    if NUM_GPUS == 1:
        os.environ[SHARE_GPU] = "1"
    failed = []
    for name in names or list(CHECKS):
        try:
            CHECKS[name]()
        except Exception as error:
            failed.append(name)
            print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc()
    print(f"failed: {failed or 'nothing'}", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
