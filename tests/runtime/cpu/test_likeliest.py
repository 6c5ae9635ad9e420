"""Most likely tokens by way of a head in 8 bits: the same tokens as by all logits, or all logits."""

from pathlib import Path

import pytest
import torch

from pagedchat import LLM, SamplingParams
from pagedchat.engine.sampling_params import StructuredOutputsParams
from pagedchat.engine.sequence import Sequence
from pagedchat.jit.cpu.pool import Program
from pagedchat.models.decoder import Decoder
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.ops.cpu.product import Product, ProductInputs, Rows, product_jobs
from pagedchat.ops.quantized import quantize as quantize_module
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.runtime.cpu import likeliest
from pagedchat.runtime.cpu.likeliest import LikeliestTokens, objection_to
from pagedchat.runtime.cpu.runner import CpuModelRunner, wants_likeliest
from tests.models.families.tiny_families import save, wide_model
from tests.runtime.cpu.test_step import TOKENS, decoder, runner_of
from tests.runtime.drive import Driver

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def small_heads_count(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = cpu_kernels()
    if kernels is None or not kernels.has_fast_bytes:
        pytest.skip("bytes are not fast here")
    monkeypatch.setattr(likeliest, "LEAST_BYTES", 0)
    monkeypatch.setattr(likeliest, "_SHARE", 1)


def model_of(folder: Path, name: str, dtype: torch.dtype) -> Decoder:
    return decoder(save(folder, wide_model(name)), dtype)


def replies(model: Decoder, dtype: torch.dtype, num_chats: int, *, looks: bool) -> tuple[list[list[int]], int]:
    """Tokens of chats of all lengths, and in how many steps some columns were enough."""
    runner = runner_of(model, 20 * num_chats, dtype)
    step = runner.step
    assert step is not None
    if not looks:
        step._has_tried_likeliest = True
    narrow = watched(runner)
    drive = Driver(runner)
    prompts = [TOKENS[i % 7 : i % 7 + 5 + 3 * (i % 9)] for i in range(num_chats)]
    seqs = [drive.add(prompt) for prompt in prompts]
    for _ in range(12):
        drive.step(1000)
    return [seq.token_ids for seq in seqs], len(narrow)


def watched(runner: CpuModelRunner) -> list[int]:
    """Columns of each step that had fewer than the vocabulary, as steps go by."""
    widths: list[int] = []
    forward, vocab = runner.forward, runner.model.config.vocab_size

    def listen(inputs: object) -> torch.Tensor:
        logits: torch.Tensor = forward(inputs)  # type: ignore[arg-type]  # whatever the runner is given
        widths.extend([logits.shape[1]] if logits.shape[1] < vocab else [])
        return logits

    runner.forward = listen  # type: ignore[method-assign, assignment]  # it is asked as before
    return widths


@pytest.mark.parametrize("name", ["opt", "llama", "opt_no_last_norm"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_chats", [1, 3, 19])
def test_tokens_are_those_of_all_logits(name: str, dtype: torch.dtype, num_chats: int, tmp_path: Path) -> None:
    model = model_of(tmp_path, name, dtype)
    expected, none = replies(model, dtype, num_chats, looks=False)
    found, some = replies(model, dtype, num_chats, looks=True)
    assert found == expected
    assert none == 0
    assert some >= 8


def test_with_drafts_tokens_are_the_same(tmp_path: Path) -> None:
    folder = save(tmp_path, wide_model("llama"))
    prompt = {"prompt_token_ids": TOKENS[:12] * 3}
    texts = []
    for speculate in ("off", "lookup"):
        llm = LLM(
            str(folder), device="cpu", dtype="float32", num_blocks=64, block_size=4, skip_tokenizer_init=True,
            model_implementation="native",
        )  # fmt: skip
        llm._engine._core.scheduler.drafts.worth = None
        params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, speculate=speculate)
        texts.append([each.outputs[0].token_ids for each in llm.generate([prompt], params, use_tqdm=False)])
    assert texts[0] == texts[1]


def test_where_all_tokens_are_alike_all_logits_are_there_and_nothing_is_tried_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likeliest, "_SHARE", 16)
    model = model_of(tmp_path, "llama", torch.float32)
    with torch.no_grad():
        model.head.weight.copy_(model.head.weight[:1].expand_as(model.head.weight).clone())
    tried = []
    find = LikeliestTokens.find
    monkeypatch.setattr(LikeliestTokens, "find", lambda *args: (tried.append(args[1]), find(*args))[1])
    found, narrow = replies(model, torch.float32, 3, looks=True)
    assert narrow == 0
    assert tried == [3]
    assert found == replies(model, torch.float32, 3, looks=False)[0]


def test_numbers_that_are_none_are_left_to_all_logits(tmp_path: Path) -> None:
    model = model_of(tmp_path, "llama", torch.float32)
    runner = runner_of(model)
    narrow = watched(runner)
    drive = Driver(runner)
    drive.add(TOKENS[:5])
    drive.step(1000)
    assert runner.step is not None
    with torch.no_grad():
        model.layers[0].mlp.down.weight.fill_(float("nan"))
    drive.step(1000)
    assert narrow == []


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=0, repetition_penalty=1.2),
        SamplingParams(temperature=0, logit_bias={5: 1.0}),
        SamplingParams(temperature=0, logprobs=2),
        SamplingParams(temperature=0, prompt_logprobs=1),
        SamplingParams(temperature=0, structured_outputs=StructuredOutputsParams(regex="a+")),
    ],
)
def test_whoever_wants_more_than_the_most_likely_token_has_all_logits(params: SamplingParams) -> None:
    greedy, other = Sequence(1), Sequence(2)
    greedy.sampling_params, other.sampling_params = SamplingParams(temperature=0), params
    assert wants_likeliest([greedy])
    assert not wants_likeliest([greedy, other])


def test_who_asks_a_runner_for_logits_has_all_of_them(tmp_path: Path) -> None:
    runner = runner_of(model_of(tmp_path, "llama", torch.float32))
    narrow = watched(runner)
    drive = Driver(runner)
    drive.add(TOKENS[:5])
    drive.step(1000)
    drive.step(1000)
    assert len(narrow) == 1
    assert not runner.only_likeliest


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows", [1, 11])
def test_biases_count(dtype: torch.dtype, num_rows: int) -> None:
    kernels = cpu_kernels()
    assert kernels is not None
    torch.manual_seed(num_rows)
    head = Product(torch.randn(700, 128).to(dtype), 20 * torch.randn(700))
    rows, logits, inputs = (
        torch.randn(num_rows, 128),
        torch.empty(num_rows, 700),
        ProductInputs.for_rows(num_rows, 128),
    )
    place, output = Rows(rows.data_ptr(), 128), Rows(logits.data_ptr(), 700)
    tokens = LikeliestTokens(kernels, head, None, place, inputs, logits)
    assert tokens.is_ready()  # so small a head is copied at once
    Program(kernels.pool, tokens.jobs(num_rows)).run()
    found = tokens.find(num_rows)
    assert found is not None
    kept = found.logits.clone()
    jobs = product_jobs(kernels, (head,), place, output, num_rows, inputs)
    Program(kernels.pool, [job for _, job in jobs]).run()
    assert torch.equal(kept, logits[:, found.token_ids])
    assert torch.equal(found.token_ids[kept.max(dim=1).indices], logits.max(dim=1).indices)
    assert len(found.token_ids) < 350


def test_heads_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = cpu_kernels()
    assert kernels is not None
    floats = Product(torch.randn(512, 128), None)
    few = CpuLinear(quantize(torch.randn(512, 128), 8, 32), kernels=kernels).product
    assert few is not None
    assert objection_to((floats,), kernels, 1 << 30) == ""
    assert "few bits" in objection_to((few,), kernels, 1 << 30)
    assert "several" in objection_to((floats, floats), kernels, 1 << 30)
    assert "memory" in objection_to((floats,), kernels, 1 << 10)
    assert "multiple" in objection_to((Product(torch.randn(512, 96), None),), kernels, 1 << 30)
    monkeypatch.setattr(likeliest, "LEAST_BYTES", 1 << 30)
    assert "small" in objection_to((floats,), kernels, 1 << 40)


def test_a_copy_is_made_in_pieces_that_steps_do_not_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = cpu_kernels()
    assert kernels is not None
    monkeypatch.setattr(likeliest, "COPIED_AT_ONCE", 100 * 128)
    monkeypatch.setattr(quantize_module, "_ELEMENTS_AT_ONCE", 32 * 128)  # several threads make a piece
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # or torch keeps two for the tests that follow
    head = Product(torch.randn(520, 128), None)
    rows, logits, inputs = torch.randn(3, 128), torch.empty(3, 520), ProductInputs.for_rows(3, 128)
    with torch.inference_mode():  # as in a step
        tokens = LikeliestTokens(kernels, head, None, Rows(rows.data_ptr(), 128), inputs, logits)
        assert [tokens.is_ready() for _ in range(7)] == [False] * 5 + [True] * 2
    Program(kernels.pool, tokens.jobs(3)).run()
    found = tokens.find(3)
    assert found is not None
    assert torch.equal(found.token_ids[found.logits.max(dim=1).indices], (rows @ head.weight.T).max(dim=1).indices)


def test_a_head_with_numbers_that_are_none_has_no_copy() -> None:
    kernels = cpu_kernels()
    assert kernels is not None
    head = Product(torch.full((64, 128), float("inf")), None)
    rows, logits, inputs = torch.randn(1, 128), torch.empty(1, 64), ProductInputs.for_rows(1, 128)
    tokens = LikeliestTokens(kernels, head, None, Rows(rows.data_ptr(), 128), inputs, logits)
    assert not any(tokens.is_ready() for _ in range(3))
