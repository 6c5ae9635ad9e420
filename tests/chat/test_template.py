"""What a model is given to read."""

import pytest

from pagedchat.chat.template import ChatTemplate, render_raw
from pagedchat.chat.turns import Turn
from pagedchat.errors import RequestError
from tests.fakes import CHAT_TEMPLATE

SYSTEM, HI, HELLO, BYE = (
    Turn("system", "Be brief."),
    Turn("user", "Hi"),
    Turn("assistant", "Hello!"),
    Turn("user", "Bye"),
)
STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "[{{ m.role }}]{{ m.content | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
FORGETFUL = (
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_models_own_template():
    template = ChatTemplate(CHAT_TEMPLATE)
    assert (template.kind, template.stop_strings) == ("model", ())
    assert template.render([SYSTEM, HI]) == "<|system|>Be brief.</s><|user|>Hi</s><|assistant|>"
    assert template.render([HI, HELLO, BYE]).endswith("<|assistant|>Hello!</s><|user|>Bye</s><|assistant|>")
    assert template.render([HI, HELLO], add_generation_prompt=False) == "<|user|>Hi</s><|assistant|>Hello!</s>"


def test_open_reply_is_continued_as_it_is():
    open_reply = Turn("assistant", " Hel")
    assert ChatTemplate(CHAT_TEMPLATE).render([HI, open_reply]) == "<|user|>Hi</s><|assistant|> Hel"
    assert ChatTemplate(STRICT).render([HI, open_reply]) == "[user]Hi[assistant] Hel"
    assert ChatTemplate().render([HI, open_reply]) == "User: Hi\nAssistant: Hel"
    assert ChatTemplate().render([HI, Turn("assistant", "Hel")]) == "User: Hi\nAssistant: Hel"


def test_plain_transcript():
    template = ChatTemplate()
    assert template.kind == "plain"
    text = "Be brief.\n\nUser: Hi\nAssistant: Hello!\nUser: Bye\n"
    assert template.render([SYSTEM, HI, HELLO, BYE]) == text + "Assistant:"
    assert template.render([SYSTEM, HI, HELLO, BYE], add_generation_prompt=False) == text


def test_plain_transcript_stops_at_the_users_next_turn():
    assert "\nUser:" in ChatTemplate().stop_strings


def test_a_reply_keeps_the_space_that_it_brought():
    turns = [HI, Turn("assistant", " Hello!"), BYE]
    assert ChatTemplate().render(turns) == "User: Hi\nAssistant: Hello!\nUser: Bye\nAssistant:"


def test_special_tokens_are_variables():
    template = ChatTemplate(STRICT, {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.render([HI]) == "<s>[user]Hi</s>[assistant]"


@pytest.mark.parametrize("source", [STRICT, FORGETFUL])
def test_system_text_that_a_template_will_not_have_opens_the_first_prompt(source):
    text = ChatTemplate(source).render([SYSTEM, HI])
    assert "user" in text
    assert text.index("Be brief.\n\nHi") > text.index("user")


def test_turns_that_do_not_alternate_are_joined_where_a_template_refuses_them():
    assert ChatTemplate(STRICT).render([HI, BYE]) == "[user]Hi\n\nBye[assistant]"


def test_template_that_refuses_everything_is_a_request_error():
    with pytest.raises(RequestError, match="No chats today"):
        ChatTemplate("{{ raise_exception('No chats today') }}").render([SYSTEM, HI])


@pytest.mark.parametrize("source", ["{{ messages[7].content.x.y }}", "{{ 1 // 0 }}", "{{ ''.__class__.mro() }}"])
def test_template_that_fails_is_a_request_error(source):
    with pytest.raises(RequestError, match="chat template"):
        ChatTemplate(source).render([HI])


@pytest.mark.parametrize("source", ["{% for %}", "{{ " + "(" * 100_000, "{% if 1 %}" * 5_000])
def test_template_that_does_not_parse_is_a_request_error(source):
    with pytest.raises(RequestError, match="does not parse"):
        ChatTemplate(source).render([HI])


def test_text_has_a_bound_that_grows_with_the_conversation():
    source = "{{ messages[0].content * 4 }}{{ 'x' * 262144 }}"
    assert len(ChatTemplate(source).render([HI])) == 262144 + 8
    with pytest.raises(RequestError, match="makes 262,153 characters of this conversation; 262,152 are the most"):
        ChatTemplate(source + "y").render([HI])


def test_conventions_of_chat_templates():
    source = (
        "{% for m in messages %}\n"
        "    {% if m.role == 'assistant' %}\n"
        "        {% generation %}{{ m.content }}{% endgeneration %}\n"
        "    {% endif %}\n"
        "    {% if loop.index > 1 %}{% break %}{% endif %}\n"
        "{% endfor %}\n"
        "{{ {'a': '<é>'} | tojson }} {{ strftime_now('%Y') | length }} {{ tools is none }}"
    )
    text = ChatTemplate(source).render([HI, HELLO, BYE])
    assert text.split() == ['Hello!{"a":', '"<é>"}', "4", "True"]


def test_text_of_a_turn_is_never_a_template():
    assert "{{ 1 + 1 }}" in ChatTemplate(CHAT_TEMPLATE).render([Turn("user", "{{ 1 + 1 }}")])


def test_raw_text_is_joined_as_it_is():
    assert render_raw([HI, HELLO, BYE]) == "HiHello!Bye"
