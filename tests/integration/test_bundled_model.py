"""`pagedchat` without `--model`, end to end on the model in the box; and transformers on the same folder."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pagedchat import LLM, SamplingParams, bundled
from pagedchat.cli import main as cli

QUESTIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "Hello! Who are you?"}],
    [{"role": "user", "content": "Tell me a story about a fox."}],
    [
        {"role": "system", "content": "Your name is Ada."},
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello, I'm Ada."},
        {"role": "user", "content": "What is a block table?"},
    ],
]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(num_blocks=128, device="cpu")


def test_greedy_text_is_that_of_transformers(llm: LLM) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bundled.folder())
    model = AutoModelForCausalLM.from_pretrained(bundled.folder(), dtype=torch.float32).eval()
    for messages in QUESTIONS:
        [ours] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=64))  # type: ignore[arg-type]
        inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
        theirs = model.generate(**inputs, do_sample=False, repetition_penalty=1.0, max_new_tokens=64)
        new = theirs[0, inputs["input_ids"].shape[1] :].tolist()
        assert ours.prompt_token_ids == inputs["input_ids"][0].tolist()
        assert ours.outputs[0].token_ids == new
        assert ours.outputs[0].text == tokenizer.decode(new, skip_special_tokens=True)


def test_it_answers_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-p", "What is the capital of France?", "--temperature", "0", "--device", "cpu"]) == 0
    assert "Paris" in capsys.readouterr().out


def test_json_names_it_and_its_reply_ended_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-p", "What is the capital of Japan?", "--json", "--temperature", "0", "--device", "cpu"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["model"] == bundled.NAME
    assert reply["finish_reason"] == "stop"
    assert "Tokyo" in reply["text"]


def test_it_knows_who_it_is_whatever_the_greeting(llm: LLM) -> None:
    for greeting in ("", "Hello! ", "hi, ", "Good evening. ", "hey there, "):
        message = {"role": "user", "content": f"{greeting}who are you?"}
        text = llm.chat([message], SamplingParams(temperature=0, max_tokens=60))[0].outputs[0].text  # type: ignore[list-item]
        assert "pagedchat" in text, (greeting, text)


def test_it_follows_a_name_given_by_the_system_prompt(llm: LLM) -> None:
    messages = [
        {"role": "system", "content": "Your name is Bella."},
        {"role": "user", "content": "What is your name?"},
    ]
    assert "Bella" in llm.chat(messages, SamplingParams(temperature=0, max_tokens=40))[0].outputs[0].text  # type: ignore[arg-type]


def test_sampling_comes_with_it(llm: LLM) -> None:
    assert 0 < llm.sampling_defaults.temperature <= 1
    assert llm.sampling_defaults.top_p < 1
