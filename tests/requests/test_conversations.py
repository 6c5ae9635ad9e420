"""Conversations as OpenAI's API has them: what becomes of messages and tools, and what is refused in words."""

from typing import Any

import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.chat.template import ChatPrompt, ChatTemplate
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.requests.conversations import chat_prompt
from tests.api.fakes_llm import FakeLoadedModel, use_fake_model

USER: Any = {"role": "user", "content": "Hi"}
BEGUN: Any = {"role": "assistant", "content": "He"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL: dict[str, Any] = {
    "id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bergen"}'}
}  # fmt: skip
TOOLS_TEMPLATE = (
    "{% if tools %}[{{ tools | tojson }}]{% endif %}"
    "{% for m in messages %}{{ m.role }}={{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.city }}){% endfor %};"
    "{% endfor %}{% if add_generation_prompt %}assistant{{ mark | default('=') }}{% endif %}"
)


def written(*messages: Any, **options: Any) -> str:
    return ChatTemplate(TOOLS_TEMPLATE).render_prompt(chat_prompt(list(messages), **options))


def test_a_template_is_told_of_tools_and_of_what_was_asked_of_them() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    answer = {"role": "tool", "content": "Rain.", "tool_call_id": "1"}
    assert written(USER, asked, answer, tools=[TOOL]) == (
        '[[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]]'
        "user=Hi;assistant=(weather Bergen);tool=Rain.;assistant="
    )


def test_arguments_that_are_no_json_stay_as_the_model_has_written_them() -> None:
    call = {**CALL, "function": {"name": "weather", "arguments": "{city"}}
    [message] = chat_prompt([{"role": "assistant", "content": "", "tool_calls": [call]}]).messages
    assert message["tool_calls"] == [call]
    [message] = chat_prompt([{"role": "assistant", "content": "a", "tool_calls": None}]).messages
    assert message == {"role": "assistant", "content": "a"}


def test_a_template_may_name_what_it_is_given() -> None:
    assert written(USER, chat_template_kwargs={"mark": ">"}) == "user=Hi;assistant>"
    assert written(USER) == "user=Hi;assistant="


def test_a_conversation_ends_where_it_is_wanted() -> None:
    assert written(USER, BEGUN) == "user=Hi;assistant=He;assistant="
    assert written(USER, BEGUN, add_generation_prompt=False) == "user=Hi;assistant=He;"
    assert written(USER, BEGUN, continue_final_message=True) == "user=Hi;assistant=He"
    plain = ChatTemplate()
    assert plain.render_prompt(chat_prompt([USER, BEGUN])) == "User: Hi\nAssistant: He\nAssistant:"
    assert (
        plain.render_prompt(chat_prompt([USER, BEGUN], add_generation_prompt=False)) == "User: Hi\nAssistant: He\n"
    )
    assert plain.render_prompt(chat_prompt([USER, BEGUN], continue_final_message=True)) == "User: Hi\nAssistant: He"


def test_system_text_that_a_template_leaves_out_is_not_folded_into_talk_with_tools() -> None:
    source = "{% for m in messages if m.role != 'system' %}{{ m.role }}={{ m.content }};{% endfor %}"
    system = {"role": "system", "content": "Be brief."}
    template = ChatTemplate(source)
    assert template.render_prompt(chat_prompt([system, USER])) == "user=Be brief.\n\nHi;"
    answer: Any = {"role": "tool", "content": "Rain.", "tool_call_id": "1"}
    assert template.render_prompt(chat_prompt([system, USER, answer])) == "user=Hi;tool=Rain.;"


def test_a_plain_transcript_has_no_place_for_tools_and_other_roles() -> None:
    with pytest.raises(RequestError, match="no chat template, so there is no telling it of tools"):
        ChatTemplate().render_prompt(chat_prompt([USER], tools=[TOOL]))
    with pytest.raises(RequestError, match=r"would know the role 'tool'\. There are system, user, assistant"):
        ChatTemplate().render_prompt(chat_prompt([USER, {"role": "tool", "content": "a"}]))


def test_nothing_asked_for_is_nothing() -> None:
    assert chat_prompt([USER], tools=[], chat_template_kwargs=None) == ChatPrompt(messages=[USER])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": {"a": 1}}, "^tools is"), ({"tools": [5]}, "^tools is"),
        ({"tools": [{"a": {1}}]}, "^tools has something in it that is not JSON"),
        ({"chat_template_kwargs": 5}, "^chat_template_kwargs is"),
        ({"chat_template_kwargs": {5: 1}}, "^chat_template_kwargs is"),
        ({"chat_template_kwargs": {"a": b"b"}}, "^chat_template_kwargs has something in it that is not JSON"),
        ({"chat_template_kwargs": {"messages": []}}, "^chat_template_kwargs has messages"),
        ({"add_generation_prompt": 1}, "^add_generation_prompt is"),
        ({"continue_final_message": "no"}, "^continue_final_message is"),
        ({"continue_final_message": True}, "^continue_final_message is True, but the last message is of the role"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        chat_prompt([USER], **options)


def test_messages_that_cannot_be_are_named() -> None:
    with pytest.raises(InvalidValueError, match=r"^tool_calls is"):
        chat_prompt([{"role": "assistant", "content": None, "tool_calls": 5}])  # type: ignore[typeddict-item]
    with pytest.raises(InvalidValueError, match=r"^messages has something in it that is not JSON"):
        chat_prompt([{**USER, "name": {1}}])
    nested: Any = "x"
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidValueError, match=r"^messages has something in it that is not JSON"):
        chat_prompt([{**USER, "name": nested}])


def test_the_library_takes_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_model(monkeypatch, FakeLoadedModel(chat_template=TOOLS_TEMPLATE))
    llm = LLM("fake")

    def prompt(*messages: Any, **options: Any) -> str:
        [output] = llm.chat(list(messages), SamplingParams(max_tokens=1), **options)
        return llm.get_tokenizer().decode(output.prompt_token_ids, skip_special_tokens=False)

    assert prompt(USER, tools=[TOOL]) == written(USER, tools=[TOOL])
    assert prompt(USER, chat_template_kwargs={"mark": "~"}) == "user=Hi;assistant~"
    assert prompt(USER, BEGUN, continue_final_message=True) == "user=Hi;assistant=He"
    assert prompt(USER, BEGUN, add_generation_prompt=False) == "user=Hi;assistant=He;"
    assert llm.stats().blocks_in_use == 0
