"""A chat's command as a request: what each kind of server is sent of it."""

from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.remote.openai.kinds import UNKNOWN, kind_of
from pagedchat.remote.openai.request import asked
from pagedchat.service.commands import Generate

ALL = SamplingOverrides(
    temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.2,
    frequency_penalty=0.3, max_tokens=64, stop=["END"], stop_token_ids=[2], seed=7, ignore_eos=False,
    speculate="lookup",
)  # fmt: skip
ASKED = [Turn("system", "Be brief."), Turn("user", "Hi")]


def request(kind, turns=ASKED, overrides=ALL, raw=False, seed=None):
    return asked(Generate(1, 2, turns, overrides, raw), "org/m", kind, seed)


def test_openais_own_parameters_go_to_everybody_and_others_only_to_who_takes_them():
    unknown = request(UNKNOWN)
    assert unknown.arguments["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
    ]  # fmt: skip
    assert unknown.arguments["temperature"] == 0.5
    assert unknown.arguments["stop"] == ["END"]
    assert "extra_body" not in unknown.arguments
    assert set(unknown.left_out) == {"top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos"}


def test_vllm_takes_all_and_llama_cpp_calls_one_otherwise():
    vllm = request(kind_of("vllm"))
    assert vllm.left_out == []
    assert vllm.arguments["extra_body"]["repetition_penalty"] == 1.1
    llama = request(kind_of("llamacpp"))
    assert (llama.arguments["extra_body"]["repeat_penalty"], llama.left_out) == (1.1, ["stop_token_ids"])


def test_what_is_not_set_is_not_sent():
    arguments = request(UNKNOWN, overrides=SamplingOverrides()).arguments
    assert set(arguments) == {"model", "stream", "stream_options", "messages"}
    assert request(UNKNOWN, overrides=SamplingOverrides(), seed=3).arguments["seed"] == 3
    assert request(UNKNOWN, seed=3).arguments["seed"] == 7


def test_a_reply_is_gone_on_with_where_that_is_known():
    turns = [*ASKED, Turn("assistant", "Hello, ")]
    vllm = request(kind_of("vllm"), turns)
    assert vllm.arguments["extra_body"]["continue_final_message"] is True
    assert vllm.arguments["extra_body"]["add_generation_prompt"] is False
    assert vllm.continues
    assert request(kind_of("llamacpp"), turns).continues
    assert not request(UNKNOWN, turns).continues


def test_raw_text_goes_as_a_prompt_and_is_always_gone_on_with():
    turns = [Turn("user", "The sea "), Turn("assistant", "is"), Turn("user", " deep")]
    found = request(UNKNOWN, turns, raw=True)
    assert (found.arguments["prompt"], found.continues) == ("The sea is deep", True)
    assert "messages" not in found.arguments


def test_without_usage_only_that_is_missing():
    found = request(kind_of("vllm"))
    assert found.arguments["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert set(found.arguments) - set(found.without_usage().arguments) == {"stream_options"}
