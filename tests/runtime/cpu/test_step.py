"""Whole decode steps on a CPU: the tokens of transformers, the same bits for a row in any company, and a way round
them for every model that they do not know.
"""

from pathlib import Path

import pytest
import torch

from pagedchat import LLM, SamplingParams
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.decoder import Decoder
from pagedchat.models.loader import load_weights
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.cpu import runner as runner_module
from pagedchat.runtime.cpu.objections import objection_to
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.cpu.step import CpuStep, runs_of
from pagedchat.runtime.step.batch_inputs import BatchInputs
from tests.helpers_models import check_greedy
from tests.models.families.tiny_families import save, wide_model
from tests.runtime.drive import Driver

WHOLE = [
    "opt", "opt_untied", "opt_no_last_norm", "llama", "llama_biases", "llama3", "mistral", "qwen2",
    "qwen2_some_windows", "qwen3", "smollm3", "gemma", "gpt2", "nemotron", "starcoder2", "phi3",
]  # fmt: skip
"""Kinds of model whose decodes are whole steps."""
OTHERS = {
    "opt_after": "norms do not come before",
    "opt_gelu": "goes through gelu",
    "gemma2": "norms do not come before",
    "gpt_neox": "start from the same rows",
    "olmoe": "have a bound",
}
"""Some that are not, and why."""
TOKENS = [(11 * i) % 290 + 3 for i in range(50)]
PROMPTS = [TOKENS[:length] for length in (1, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


@pytest.fixture(scope="module", autouse=True)
def need_kernels() -> None:
    if cpu_kernels() is None:
        pytest.skip("no CPU kernels")


def saved(folder: Path, name: str) -> Path:
    return save(folder, wide_model(name))


def decoder(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    description = describe_model("wide", folder)
    model = load_weights(description, attention="", dtype=dtype, device=torch.device("cpu"))
    assert isinstance(model, Decoder)
    use_cpu_linears(model, available=1 << 30)
    return model


def runner_of(model: Decoder, num_blocks: int = 40, dtype: torch.dtype = torch.float32) -> CpuModelRunner:
    heads = model.config.heads
    shape = CacheShape(model.config.num_layers, 4, heads.num_heads, heads.num_kv_heads, heads.head_dim, dtype)
    device = torch.device("cpu")
    return CpuModelRunner(model, TorchAttention(shape, num_blocks, 0, device), device)


@pytest.mark.parametrize("name", WHOLE)
def test_greedy_tokens_are_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    run = CpuStep.run
    monkeypatch.setattr(CpuStep, "run", lambda *args: (steps.append(len(args[1])), run(*args))[1])
    folder = saved(tmp_path, name)
    llm = LLM(
        str(folder), device="cpu", dtype="float32", num_blocks=64, block_size=4, max_num_batched_tokens=13,
        skip_tokenizer_init=True, model_implementation="native",
    )  # fmt: skip
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    assert len(steps) >= 14
    assert 3 in steps
    check_greedy(folder, PROMPTS, [output.outputs[0].token_ids for output in outputs])


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_go_through_their_modules(name: str, tmp_path: Path) -> None:
    model = decoder(saved(tmp_path, name))
    assert OTHERS[name] in objection_to(model.config, torch.float32)
    assert runner_of(model).step is None


def test_experts_in_float32_go_through_their_modules(tmp_path: Path) -> None:
    assert runner_of(decoder(saved(tmp_path, "mixtral"))).step is None


@pytest.mark.parametrize("name", ["llama", "opt", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_those_of_the_modules(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    runner = runner_of(decoder(saved(tmp_path, name), dtype), dtype=dtype)
    logits = {whole: logits_of_decodes(runner, whole=whole) for whole in (True, False)}
    assert logits[True].dtype == dtype
    if dtype == torch.float32:
        torch.testing.assert_close(logits[True], logits[False], rtol=1e-4, atol=1e-4)
    else:  # where the modules round each result, and steps what they multiply by
        assert (logits[True] - logits[False]).norm() < 0.05 * logits[False].norm()


def logits_of_decodes(runner: CpuModelRunner, *, whole: bool) -> torch.Tensor:
    runner.whole_steps = whole
    heard: list[torch.Tensor] = []
    drive, forward = Driver(runner), runner.forward
    for prompt in PROMPTS:
        drive.add(prompt)
    runner.forward = lambda inputs: heard.append(forward(inputs)) or heard[-1]
    drive.step(1000)
    drive.step(1000)
    runner.forward = forward
    return heard[1].clone()


@pytest.mark.parametrize("name", ["llama", "opt"])
@pytest.mark.parametrize("num_chats", [11, 43])
def test_text_is_the_same_alone_and_among_others(name: str, num_chats: int, tmp_path: Path) -> None:
    kernels = cpu_kernels()
    if kernels is None or num_chats > kernels.most_rows:
        pytest.skip("so many go through the modules")
    model = decoder(saved(tmp_path, name))
    prompts = [TOKENS[i % 11 : i % 11 + 5 + 3 * (i % 11)] + TOKENS[i : i + 1] for i in range(num_chats)]
    replies = []
    for chosen in (prompts, prompts[3:4]):
        runner = runner_of(model, num_blocks=20 * num_chats)
        drive = Driver(runner)
        seqs = [drive.add(prompt) for prompt in chosen]
        for _ in range(9):
            drive.step(1000)
        assert runner.step is not None
        replies.append([seq.token_ids for seq in seqs])
    assert replies[0][3] == replies[1][0]


@pytest.mark.parametrize("name", ["llama", "opt", "mistral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_a_draft_are_the_same_as_one_after_another(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    runner = runner_of(decoder(saved(tmp_path, name), dtype), dtype=dtype)
    blocks = [[7, 3, 11, 2, 5, 0, 8, 9], [20, 30, 21, 31]]
    fill(runner, blocks)
    assert runner.step is not None
    num_rows = min(35, runner.step.most_rows)  # of more of them a library makes the products
    rows = [(0, place) for place in range(7, num_rows - 5)] + [(1, place) for place in range(3, 15)]
    assert len(rows) == num_rows
    together = runner.forward(of_rows(blocks, rows)).clone()
    for i, row in enumerate(rows):
        assert torch.equal(runner.forward(of_rows(blocks, [row]))[0], together[i])


def fill(runner: CpuModelRunner, blocks: list[list[int]]) -> None:
    """The first tokens of both texts, one after the other."""
    for text, count in enumerate((7, 3)):
        for place in range(count):
            runner.forward(of_rows(blocks, [(text, place)]))


def of_rows(blocks: list[list[int]], rows: list[tuple[int, int]]) -> BatchInputs:
    """Decodes: which text, and the place in it."""
    texts, places = [text for text, _ in rows], [place for _, place in rows]
    slots = torch.tensor([blocks[text][place // 4] * 4 + place % 4 for text, place in rows])
    tables = [blocks[text] for text in texts]
    batch = AttentionBatch(texts, len(rows), [1] * len(rows), [place + 1 for place in places], tables, slots)
    tokens = torch.tensor([[TOKENS[place + 5 * text] for text, place in rows]])
    return BatchInputs(tokens, torch.tensor([places]), torch.arange(len(rows)), list(range(len(rows))), batch)


def test_runs_are_rows_of_one_table_that_grow() -> None:
    one, other = [1, 2], [1, 2]
    assert runs_of([one, one, one, other, other], [4, 5, 6, 7, 9], 16) == [(0, 3), (3, 1), (4, 1)]
    assert runs_of([one] * 5, [1, 2, 3, 4, 5], 2) == [(0, 2), (2, 2), (4, 1)]


def test_steps_that_are_wrong_make_way_for_the_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = CpuStep.run
    monkeypatch.setattr(CpuStep, "run", lambda *args: run(*args) * 1.5)
    folder = saved(tmp_path, "llama")
    llm = LLM(str(folder), device="cpu", dtype="float32", num_blocks=64, skip_tokenizer_init=True)
    assert "one call into CPU kernels are left out" in caplog.text
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    check_greedy(folder, PROMPTS, [output.outputs[0].token_ids for output in outputs])


def test_without_kernels_torch_does_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder(saved(tmp_path, "llama"))
    monkeypatch.setattr(runner_module, "cpu_kernels", lambda: None)
    runner = runner_of(model)
    assert runner.step is None
    drive = Driver(runner)
    drive.add(TOKENS[:5])
    drive.step(1000)
    assert drive.step(1000) is not None
