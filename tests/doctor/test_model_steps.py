"""`pagedchat doctor --model`: it says what the runtime does, for models of which there is a config alone."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat.cli import main as cli
from pagedchat.doctor import main
from pagedchat.doctor.model_steps import CHATS, KNOWN_GPUS, look_at_model
from pagedchat.doctor.model_text import model_text, model_values
from pagedchat.doctor.step_kernels import decode_work, prefill_work
from pagedchat.doctor.step_work import Fallback, Launch
from pagedchat.errors import InvalidValueError
from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.driver import Gpu
from pagedchat.layers.alibi import Alibi
from pagedchat.layers.experts import MixtureConfig
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_config import QkNorm
from pagedchat.models.native import NativeConfig
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers
from pagedchat.runtime.graphs.decode.store import StepStore
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from pagedchat.runtime.graphs.prefill.step import PrefillOutputs
from pagedchat.runtime.graphs.prefill.store import PrefillStore
from pagedchat.runtime.graphs.step_facts import PrefillFacts, Setting
from pagedchat.runtime.graphs.which_step import MODULES, which_decode, which_prefill
from pagedchat.runtime.loading.check_record import LeftOut, keep_check, types_of
from tests.helpers_models import make_checkpoint
from tests.ops.recorder import Launches, recorded_launches
from tests.runtime.graphs.configs import FOLDER, config_of, facts, setting
from tests.runtime.graphs.families import family_config
from tests.runtime.graphs.few_bits import bring_to_few_bits

CAPABILITY = (9, 0)
RECORDED = Gpu(0, "NVIDIA Test", CAPABILITY, 1 << 34, 40, 227 << 10)
"""What `recorded_launches` takes the GPU for."""
ATTENTION = {"decode_split", "decode_simt", "decode_shared"}
"""Which of them it is a tensor on a CPU does not show."""
SIZES: dict[str, Any] = {"vocab_size": 304, "num_layers": 2, "max_len": 600, "windows": (None, None)}
OPT, LLAMA = config_of("opt-125m"), config_of("smollm-135m")
OPT_SIZES = SIZES | {"rotaries": (None, None)}
LLAMA_SIZES = SIZES | {"rotaries": LLAMA.rotaries[:2]}
FEW_EXPERTS = MixtureConfig(num_experts=6, per_token=2, width=64, renormalised=True)
MODELS: dict[str, NativeConfig] = {
    "opt": replace(OPT, **OPT_SIZES),
    "llama": replace(LLAMA, **LLAMA_SIZES),
    "large weights": replace(LLAMA, hidden_size=2048, ffn_size=4096, **LLAMA_SIZES | {"vocab_size": 2048}),
    "normed queries": replace(LLAMA, qk_norm=QkNorm(LLAMA.norm), **LLAMA_SIZES),
    "biased gates": replace(LLAMA, mlp_bias=True, **LLAMA_SIZES),
    "capped scores": replace(LLAMA, score_cap=20.0, **LLAMA_SIZES),
    "sloped scores": replace(LLAMA, alibi=Alibi(), rotaries=(None, None), **SIZES),
    "sinks": replace(LLAMA, sinks=True, **LLAMA_SIZES),
    "parallel halves": replace(OPT, parallel="one norm", **OPT_SIZES),
    "gelu": replace(OPT, activation="gelu", **OPT_SIZES),
    "few experts": replace(LLAMA, mixture=FEW_EXPERTS, sparse=(True, True), **LLAMA_SIZES),
    "odd experts": replace(LLAMA, mixture=replace(FEW_EXPERTS, width=100), sparse=(True, True), **LLAMA_SIZES),
    **{kind: family_config(kind) for kind in ("gemma2", "gemma3", "olmo", "olmo2", "phi", "phi3", "gpt_neox")},
    **{kind: family_config(kind) for kind in ("smollm3", "granite", "gpt2", "starcoder2", "cohere2", "opt_after")},
}


# --- what is said is what is launched -----------------------------------------------------------------


def empty_model(config: NativeConfig, kind: CacheKind | None = None) -> tuple[Any, CudaAttention]:
    """Whatever is in memory: nothing is computed with it."""
    torch.set_default_dtype(torch.float16)
    model = Decoder(config)
    torch.set_default_dtype(torch.float32)
    heads = config.heads
    sizes = (config.num_layers, 16, heads.num_heads, heads.num_kv_heads, heads.head_dim)
    shape = CacheShape(*sizes, torch.float16, kind)
    return model, CudaAttention(shape, 8, 0, torch.device("cpu"))


def recorded(run: Callable[[], object]) -> Launches:
    with recorded_launches(CAPABILITY) as launches, torch.inference_mode():
        run()
    return launches


def assert_all_are_said(launches: Launches, work: list[Launch | Fallback], *unseen: str) -> None:
    found = {variant.stem for variant, _ in launches} - ATTENTION - {*unseen}
    said = [each for each in work if isinstance(each, Launch) and each.kernel not in ATTENTION]
    assert {launch.kernel for launch in said} == found
    for launch in said:
        wanted = {name: str(value) for name, value in launch.constants.items()}
        variants = [variant.constants for variant, _ in launches if variant.stem == launch.kernel]
        assert any(wanted.items() <= constants.items() for constants in variants), (launch, variants)


@pytest.mark.parametrize("choice", ["greedy", "shortlist", "drawn"])
@pytest.mark.parametrize("rows", [3, 8, 16, 64, 300])
@pytest.mark.parametrize("kind", [None, "fp8"])
@pytest.mark.parametrize("name", MODELS)
def test_decodes_launch_what_is_said(name: str, kind: CacheKind | None, rows: int, choice: Any) -> None:
    model, backend = empty_model(MODELS[name], kind)
    bucket = Bucket(rows, 64)
    buffers = StateBuffers(bucket, 16, backend.device, model.config.vocab_size)
    store = StepStore(model, backend, buffers, 600)
    store._setting = replace(store._setting, gpu=RECORDED)
    facts = store._facts(bucket, choice)
    chosen = which_decode(facts)
    work = decode_work(chosen.name, facts, chosen.refused)
    # Keys that are not turned are written by the attention of a tensor on a GPU.
    writer = () if facts.setting.sizes.rotary else ("heads_to_cache", "heads_to_bytes")
    assert_all_are_said(recorded(store._step(bucket, choice)), work, *writer)


@pytest.mark.parametrize("rows", [3, 16, 64, 300])
@pytest.mark.parametrize("form", ["int8", "int4, 32, minimums", "int4, 32, minimums; int8"])
@pytest.mark.parametrize("name", ["llama", "opt"])
def test_decodes_with_weights_of_few_bits_launch_what_is_said(name: str, form: str, rows: int) -> None:
    model, backend = empty_model(MODELS[name])
    for parameter in model.parameters():
        parameter.data.fill_(0.01)
    model = bring_to_few_bits(model, form)
    bucket = Bucket(rows, 64)
    store = StepStore(model, backend, StateBuffers(bucket, 16, backend.device, model.config.vocab_size), 600)
    store._setting = replace(store._setting, gpu=RECORDED)
    facts = store._facts(bucket, "greedy")
    chosen = which_decode(facts)
    work = decode_work(chosen.name, facts, chosen.refused)
    writer = () if facts.setting.sizes.rotary else ("heads_to_cache",)
    assert_all_are_said(recorded(store._step(bucket, "greedy")), work, *writer)


def test_it_says_which_kernels_serve_weights_of_few_bits(tmp_path: Path) -> None:
    folder, hopper = make_checkpoint(tmp_path, "llama_64"), KNOWN_GPUS["sm_90"]
    report = look_at_model(str(folder), hopper, quantization="int4")
    eight = next(step for step in report.steps if step.batch == f"{CHATS[1]} chats")
    kinds = {work.part: work.constants.get("WEIGHT_KIND") for work in eight.work if isinstance(work, Launch)}
    assert [kinds[part] for part in ("qkv", "values", "out", "up", "down", "vocabulary")] == [3, 1, 3, 3, None, 1]
    with pytest.raises(InvalidValueError, match="from sm_90 on, and this one is sm_80"):
        look_at_model(str(folder), KNOWN_GPUS["sm_80"], quantization="int4")
    with pytest.raises(InvalidValueError, match="--quantize is 'int3'"):
        look_at_model(str(folder), hopper, quantization="int3")


@pytest.mark.parametrize(("kind", "num_tokens"), [(None, 256), ("int8", 256), (None, 512)])
@pytest.mark.parametrize("name", MODELS)
def test_prompts_launch_what_is_said(name: str, kind: CacheKind | None, num_tokens: int) -> None:
    model, backend = empty_model(MODELS[name], kind)
    bucket = PrefillBucket(num_tokens, 1, 512)
    buffers, outputs = (
        PrefillBuffers(bucket, 16, backend.device),
        PrefillOutputs(1, len(model.head.weight), backend.shape.dtype, backend.device),
    )
    store = PrefillStore(model, 600, backend, buffers, outputs)
    store._setting = replace(store._setting, gpu=RECORDED)
    facts = PrefillFacts(setting=store._setting, num_tokens=num_tokens, num_blocks=32)
    chosen = which_prefill(facts)
    work = prefill_work(chosen.name, facts, chosen.refused)
    assert_all_are_said(recorded(store._pass(bucket)), work, "prefill_merge")  # it is named as one with attention


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (9, 0), (12, 0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_the_attention_of_prompts_is_the_one_that_is_said(
    dtype: torch.dtype, capability: tuple[int, int], head_dim: int
) -> None:
    where = prompt_setting(dtype, capability, head_dim)
    for num_tokens in (16, 64, 512):
        query = torch.empty(num_tokens, 4, head_dim, dtype=dtype)
        x = 16 // dtype.itemsize
        cache = torch.empty(8, 2, head_dim // x, 16, x, dtype=dtype), torch.empty(8, 2, head_dim, 16, dtype=dtype)
        numbers = torch.zeros(1, 32, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        starts, options = torch.zeros(2, dtype=torch.int32), AttentionOptions(scale=0.1)
        with recorded_launches(capability) as launches:
            paged_prefill(AttentionCall.to_new(query, *cache, *numbers, options), starts, max_query_len=num_tokens)
        launches = {key: args for key, args in launches.items() if key[0].stem != "prefill_merge"}
        facts = PrefillFacts(setting=where, num_tokens=num_tokens, num_blocks=32)
        chosen = which_prefill(facts)
        work = [each for each in prefill_work(chosen.name, facts, chosen.refused) if each.part == "attention"]
        assert_all_are_said(launches, work)


def prompt_setting(dtype: torch.dtype, capability: tuple[int, int], head_dim: int) -> Setting:
    config = replace(LLAMA, heads=replace(LLAMA.heads, num_heads=4, num_kv_heads=2, head_dim=head_dim))
    shared = next(gpu.shared_bytes for gpu in KNOWN_GPUS.values() if gpu.compute_capability == capability)
    gpu = replace(RECORDED, compute_capability=capability, shared_bytes=shared)
    return setting(config, "", str(dtype).removeprefix("torch."), gpu=gpu)


# --- what is printed ----------------------------------------------------------------------------------


def test_there_is_a_gpu_for_every_architecture() -> None:
    assert tuple(KNOWN_GPUS) == ARCHITECTURES
    assert all(gpu.architecture == name for name, gpu in KNOWN_GPUS.items())


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["doctor", "--model", *argv]) == 0
    return capsys.readouterr().out


def test_a_small_model_on_an_h200(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(FOLDER / "opt-125m"), "--arch", "sm_90")
    lines = text.splitlines()
    assert lines[0].endswith("OPTForCausalLM, 12 layers, 12 heads over 12 of 64, 50,272 tokens, float16")
    assert lines[1] == "on NVIDIA H200, sm_90, 132 multiprocessors with 227 KiB of shared memory"
    assert [line.split("  ")[0] for line in lines[3:15]] == [
        "batch",
        "1 chat, likeliest tokens",
        "1 chat, drawn tokens",
        "4 chats",
        "8 chats, likeliest tokens",
        "8 chats, tokens of top-k",
        "8 chats, drawn tokens",
        "64 chats, likeliest tokens",
        "64 chats, tokens of top-k",
        "64 chats, drawn tokens",
        "256 chats",
        "a prompt of 1,500 tokens",
    ]
    assert "1 chat, likeliest tokens: one launch in clusters, screened" in lines
    assert "persistent_decode CLUSTER=4 NUM_BLOCKS=120 NUM_WARPS=12 SPLITS=1 SCREENED=1" in text
    assert "SEATS=2" in text[text.index("4 chats: one launch") : text.index("8 chats, drawn tokens: fused chain")]
    assert "one launch of any kind: 8 rows are more than the 4 that one launch has room for" in text
    assert max(map(len, lines[1:])) <= 116


def test_a_large_head_is_screened_where_few_tokens_matter(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(FOLDER / "llama-3.1-8b"), "--arch", "sm_90")
    paragraphs = {each.partition(": ")[0]: each for each in text.split("\n\n")}
    choices = "likeliest tokens", "tokens of top-k", "drawn tokens"
    greedy, of_few, drawn = (paragraphs[f"64 chats, {tokens}"] for tokens in choices)
    assert greedy.splitlines()[0].endswith("warpgroup products, screened head")
    assert "screen_vocabulary TOKENS=64 STAGES=4" in greedy
    assert "its head" in greedy
    assert "choose_screened" in greedy
    assert of_few.splitlines()[0].endswith("warpgroup products, screened head")
    assert "screen_vocabulary TOKENS=64 STAGES=4" in of_few
    assert "list_screened" in of_few
    assert "sample_listed" in of_few
    assert "choose_screened" not in of_few
    assert "stream_k_linear" not in greedy
    assert drawn.splitlines()[0].endswith(": warpgroup products")
    assert "stream_k_linear" in drawn
    assert "screened head: tokens are drawn from all logits" in drawn
    assert "screened head: a vocabulary is screened for 64 rows at most" in " ".join(
        paragraphs["256 chats"].split()
    )


def test_a_family_of_other_parts_has_fast_steps_and_is_told_what_one_launch_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = json.loads((FOLDER / "gemma-2-2b" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16", "dtype": "bfloat16"}))
    text = shown(capsys, str(tmp_path), "--arch", "sm_90")
    names = [
        "fused chain",
        "fused chain",
        "fused chain",
        "warpgroup products",
        "warpgroup products",
        "merged launches",
    ]
    endings = tuple(f": {name}" for name in names)
    assert [line.split(": ")[1] for line in text.splitlines() if line.endswith(endings)] == names
    words = (
        "one launch of any kind; all layers in one launch: its norms come before and behind each half of a layer"
    )
    assert words in " ".join(text.split())
    assert "finish_logits" in text


def test_a_decoder_that_stays_on_its_modules_is_told_why() -> None:
    where = setting(replace(LLAMA, norm=replace(LLAMA.norm, offset=2.0)), "sm_90")
    asked = facts(where, 64)
    chosen = which_decode(asked)
    assert chosen.name == MODULES
    said = [part for part in decode_work(chosen.name, asked, chosen.refused) if isinstance(part, Fallback)]
    assert {part.why for part in said} == {"its norms multiply by 2 more than their weights"}


def test_a_model_that_norms_queries_and_keys_has_fast_steps(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(FOLDER / "qwen3-1.7b"), "--arch", "sm_90")
    names = [
        *[*["all layers in one launch, screened head"] * 2, "all layers in one launch"] * 3,
        *[*["warpgroup products, screened head"] * 2, "warpgroup products"],
        "warpgroup products",
        "merged launches",
    ]
    endings = tuple(f": {name}" for name in names)
    assert [line.split(": ")[1] for line in text.splitlines() if line.endswith(endings)] == names
    assert len(re.findall(r"\bcache: +heads_to_cache", text)) == len(names) - 9
    assert "all layers:     streamed_layers" in text
    assert "refused       one launch of any kind: one launch does not norm queries and keys" in text


def test_the_same_as_values(capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(shown(capsys, str(FOLDER / "llama-3.1-8b"), "--arch", "sm_90", "--json"))
    assert values["gpu"]["num_multiprocessors"] == 132
    heads = {(step["batch"], step["tokens"]): step["head"] for step in values["steps"]}
    assert heads["1 chat", "greedy"] == "screened head"
    assert heads["1 chat", "shortlist"] == "screened head"
    assert heads["1 chat", "drawn"] == "all logits"
    assert heads["a prompt of 1,500 tokens", "greedy"] is None
    drawn = next(step for step in values["steps"] if step["tokens"] == "drawn")
    assert drawn["head_refused"] == [{"head": "screened head", "since": "tokens are drawn from all logits"}]
    assert values["element"] == "bfloat16"
    steps = values["steps"]
    assert [(step["batch"], step["tokens"]) for step in steps[:3]] == [
        ("1 chat", "greedy"), ("1 chat", "shortlist"), ("1 chat", "drawn")
    ]  # fmt: skip
    assert len(steps) == 3 * len(CHATS) - 1 + 1  # 256 chats have all logits, and a prompt is one more
    assert steps[0]["step"] == "fused chain"
    streamed = [kernel for kernel in steps[0]["kernels"] if kernel["kernel"] == "streamed_linear"]
    assert [kernel["part"] for kernel in streamed] == ["out", "up", "down"]
    assert steps[0]["libraries"] == []
    assert {refused["since"] for refused in steps[0]["refused"]} == {
        "its heads are 128 wide and the kernel is for 64",
        "one launch for all layers is not faster for 218,103,808 weights of a layer and 1 rows",
    }
    assert steps[-1]["bucket"] == {"num_tokens": 1536, "num_seqs": 1, "context_len": 2048}


def test_prompts_and_contexts_are_no_longer_than_the_model_has(tmp_path: Path) -> None:
    config = json.loads((FOLDER / "opt-125m" / "config.json").read_text()) | {"max_position_embeddings": 200}
    (tmp_path / "config.json").write_text(json.dumps(config))
    report = look_at_model(str(tmp_path), KNOWN_GPUS["sm_90"])
    assert report.steps[-1].batch == "a prompt of 200 tokens"
    assert {step.bucket.context_len for step in report.steps} == {200}


def test_without_a_gpu_it_says_what_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "first_gpu", lambda: None)
    text = shown(capsys, str(FOLDER / "opt-125m"))
    assert "50,272 tokens, float32" in text
    assert "There is no GPU here. Where `pagedchat doctor` finds CPU kernels" in text
    assert "--arch sm_90" in text
    values = json.loads(shown(capsys, str(FOLDER / "opt-125m"), "--json"))
    assert (values["gpu"], values["uncaptured"], values["steps"]) == (None, "there is no GPU", [])


def test_the_gpu_that_is_there_is_taken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        main, "first_gpu", lambda: replace(KNOWN_GPUS["sm_80"], name="NVIDIA A30", num_multiprocessors=56)
    )
    assert "on NVIDIA A30, sm_80, 56 multiprocessors" in shown(capsys, str(FOLDER / "opt-125m"))


OPT_FOLDER = str(FOLDER / "opt-125m")
STEP = LeftOut("Steps", "fused chain", "2")
PREFILL = LeftOut("Prefills", "merged launches", "0.31")


def remember(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *left_out: LeftOut) -> None:
    """What a start on an A100 found."""
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(main, "first_gpu", lambda: KNOWN_GPUS["sm_80"])
    keep_check(OPT_FOLDER, KNOWN_GPUS["sm_80"].name, "float16", left_out)


def test_what_a_start_found_of_few_bits_says_nothing_of_16(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path))
    hopper = KNOWN_GPUS["sm_90"]
    keep_check(OPT_FOLDER, hopper.name, types_of("float16", "int8", "fp8"), [STEP])
    assert types_of("float16", "int8", "fp8") == "float16, weights in int8, over fp8"

    def found(**options: Any) -> bool:
        return look_at_model(OPT_FOLDER, hopper, is_here=True, **options).found is not None

    assert found(quantization="int8", cache_kind="fp8")
    assert not found()
    assert not found(quantization="int8")
    assert not found(cache_kind="fp8")


def test_steps_that_the_last_start_left_out_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remember(monkeypatch, tmp_path, STEP, PREFILL)
    text = shown(capsys, OPT_FOLDER)
    assert STEP.sentence in text
    assert PREFILL.sentence in text
    assert "fused chain: it gave other results than the model when it was tried out" in text
    values = json.loads(shown(capsys, OPT_FOLDER, "--json"))
    assert values["last_start"]["left_out"][0] == {"what": "Steps", "kind": "fused chain", "off": "2"}
    assert {step["step"] for step in values["steps"]} == {"library products", "modules"}
    elsewhere = json.loads(shown(capsys, OPT_FOLDER, "--arch", "sm_80", "--json"))
    assert elsewhere["last_start"] is None
    assert elsewhere["steps"][0]["step"] == "fused chain"


def test_where_no_step_was_right_none_is_captured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remember(monkeypatch, tmp_path, LeftOut("Prefills", "", "1"))
    assert "a prompt of 1,500 tokens" not in shown(capsys, OPT_FOLDER)
    remember(monkeypatch, tmp_path, LeftOut("Steps", "", "1"))
    assert "No step is captured, since none that was captured at the last start gave" in shown(capsys, OPT_FOLDER)


def test_what_cannot_be_captured_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "glm"}))
    foreign = look_at_model(str(tmp_path), KNOWN_GPUS["sm_90"])
    assert (foreign.uncaptured, foreign.foreign) == ("", "there is no module for 'glm'")
    assert "transformers' modules, since there is no module for 'glm'. They are captured" in model_text(foreign)
    assert (model_values(foreign)["steps"], model_values(foreign)["foreign"]) == ([], foreign.foreign)
    assert "there is no GPU" in look_at_model(str(tmp_path), None).uncaptured
    config = json.loads((FOLDER / "smollm-135m" / "config.json").read_text()) | {"head_dim": 72}
    (tmp_path / "config.json").write_text(json.dumps(config))
    odd = look_at_model(str(tmp_path), KNOWN_GPUS["sm_90"])
    assert odd.uncaptured == "the head size is 72 and they are for 64, 80, 96, 112, 128 and 256"
    old = look_at_model(str(FOLDER / "opt-125m"), replace(KNOWN_GPUS["sm_75"], compute_capability=(7, 0)))
    assert old.uncaptured == "the kernels need a GPU from sm_75 on"


def test_steps_of_replies_that_no_company_changes(capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(shown(capsys, str(FOLDER / "opt-125m"), "--arch", "sm_90", "--batch-invariant", "--json"))
    assert {step["step"] for step in values["steps"]} == {"modules"}
    text = shown(capsys, str(FOLDER / "opt-125m"), "--arch", "sm_90", "--batch-invariant")
    assert "a reply is to be the same in any company, bit for bit" in text
    assert "invariant_linear" in text
    assert "cuBLAS" not in text
    assert "decode_split" not in text
    turing = look_at_model(str(FOLDER / "qwen3-1.7b"), KNOWN_GPUS["sm_75"], batch_invariant=True)
    assert turing.uncaptured == "--batch-invariant takes tensor cores that multiply bfloat16"


@pytest.mark.parametrize(
    ("keywords", "kernel"),
    [({"batch_invariant": True}, "invariant_linear"), ({"quantization": "int8"}, "few_bits_linear")],
)
def test_of_a_prompt_the_last_layer_is_said_apart(keywords: dict[str, Any], kernel: str) -> None:
    report = look_at_model(str(FOLDER / "qwen3-1.7b"), KNOWN_GPUS["sm_90"], **keywords)
    work = [each for each in report.steps[-1].work if isinstance(each, Launch)]
    last = {each.part: each.kernel for each in work if each.part.startswith("last layer's ")}
    assert last == {f"last layer's {name}": kernel for name in ("out", "up", "down")}
    of_others = {each.part: (each.kernel, each.constants) for each in work if each.part not in last}
    of_last = {
        each.part.removeprefix("last layer's "): (each.kernel, each.constants) for each in work if each.part in last
    }
    assert all(of_others[name] != its_own for name, its_own in of_last.items())


def test_mixtures_go_through_one_kernel_where_no_company_may_change_a_reply(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "qwen3_moe_128")
    config = folder / "config.json"
    values = json.loads(config.read_text()) | {"moe_intermediate_size": 1024, "dtype": "bfloat16"}
    config.write_text(json.dumps(values))
    for exact, wanted in ((False, {"expert_linear", "expert_tiles"}), (True, {"expert_tiles"})):
        report = look_at_model(str(folder), KNOWN_GPUS["sm_90"], batch_invariant=exact)
        assert report.uncaptured == ""
        launched = {work.kernel for step in report.steps for work in step.work if isinstance(work, Launch)}
        assert launched & {"expert_linear", "expert_tiles", "expert_simt"} == wanted
        assert ("invariant_linear" in launched) == exact
        assert {"route_few", "sum_experts"} <= launched


@pytest.mark.parametrize(
    ("family", "architecture", "dtype", "way"),
    [
        ("qwen3_moe_128", "sm_90", "bfloat16", "expert_warpgroups"),
        ("qwen3_moe_128", "sm_90", "float16", "expert_warpgroups"),
        ("gpt_oss_64", "sm_90", "bfloat16", "expert_warpgroups"),
        ("qwen3_moe_128", "sm_80", "bfloat16", "expert_tiles"),
    ],
)
def test_experts_of_a_long_prompt(family: str, architecture: str, dtype: str, way: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, family)
    config = folder / "config.json"
    values = json.loads(config.read_text()) | {"max_position_embeddings": 4096, "dtype": dtype}
    config.write_text(json.dumps(values))
    prompt = look_at_model(str(folder), KNOWN_GPUS[architecture]).steps[-1]
    ways = [
        work.kernel if isinstance(work, Launch) else work.library for work in prompt.work if work.part == "experts"
    ]
    assert ways == [way]


def test_experts_of_few_bits_go_through_their_kernel(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "qwen3_moe_128")
    report = look_at_model(str(folder), KNOWN_GPUS["sm_90"], quantization="int4")
    for step in report.steps:
        kernels = {work.part: work.kernel for work in step.work if isinstance(work, Launch)}
        assert kernels["experts"] == "expert_few_bits"
        assert not {"up", "down"} & {work.part for work in step.work}
    one, *_, prompt = (
        work.constants["TOKENS"]
        for step in report.steps for work in step.work if isinstance(work, Launch) and work.part == "experts"
    )  # fmt: skip
    assert one == 8 < prompt


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["./nowhere"], 1, "There is no folder ./nowhere."),
        (["DIR"], 1, "DIR has no config.json."),
        ([str(FOLDER / "opt-125m"), "--compile"], 2, "--model and --compile exclude each other."),
        ([str(FOLDER / "opt-125m"), "--arch", "sm_80", "--arch", "sm_90"], 2, "--model takes one --arch."),
        ([str(FOLDER / "opt-125m"), "--arch", "sm_12"], 2, "--arch: invalid choice"),
    ],
)
def test_errors_are_one_sentence_and_a_hint(
    argv: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [each.replace("DIR", str(tmp_path)) for each in argv]
    assert cli.main(["doctor", "--model", *argv]) == code
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"pagedchat: {message.replace('DIR', str(tmp_path))}")
    assert len(lines) == 2


def test_an_architecture_that_nobody_knows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}))
    assert cli.main(["doctor", "--model", str(tmp_path), "--arch", "sm_90"]) == 1
    assert "does not know how to read a model of type 'nonsense'" in capsys.readouterr().err


def test_a_small_cache_has_its_own_kernels_and_no_whole_steps(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(FOLDER / "opt-125m"), "--arch", "sm_90", "--kv-cache-dtype", "fp8")
    assert "float16, over fp8" in text
    assert "one launch of any kind; all layers in one launch: its cache is fp8 and one launch reads 16 bits" in text
    assert "persistent_decode" not in text
    assert "prefill_wgmma" not in text
    assert "rows_to_bytes" in text
    plain = shown(capsys, str(FOLDER / "opt-125m"), "--arch", "sm_90")
    assert "persistent_decode" in plain
    assert "rows_to_bytes" not in plain
    report = look_at_model(str(FOLDER / "qwen3-1.7b"), KNOWN_GPUS["sm_75"], cache_kind="int8")
    assert report.uncaptured == "the cache is int8 and tensor cores do not multiply bfloat16"
