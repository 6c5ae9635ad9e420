"""Bodies that are not what they must be: OpenAI's form of error, with the parameter named."""

from typing import Any

from tests.server.serving import served_app

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]
WRONG: list[tuple[str, Any, str | None, str | None, str]] = [
    (CHAT, b"", None, "invalid_json", "The body is not valid JSON: Input data was truncated."),
    (CHAT, b"{", None, "invalid_json", "The body is not valid JSON: Input data was truncated."),
    (CHAT, b"\xff\xfe", None, "invalid_json", "The body is not valid JSON: invalid character (byte 0)."),
    (CHAT, b"[]", None, "invalid_type", "The body: expected `object`, got `array`."),
    (CHAT, {}, "messages", "missing_required_parameter", "messages is missing."),
    (CHAT, {"messages": USER, "foo": 1}, "foo", "unknown_parameter", "There is no parameter 'foo'."),
    (
        CHAT,
        {"messages": USER, "max_token": 1},
        "max_token",
        "unknown_parameter",
        "There is no parameter 'max_token'. Did you mean max_tokens?",
    ),
    (
        CHAT,
        {"messages": [{"role": "user", "text": ""}]},
        "messages[0].text",
        "unknown_parameter",
        "There is no parameter 'messages[0].text'.",
    ),
    (
        CHAT,
        {"messages": [{"role": "user", "content": 5}]},
        "messages[0].content",
        "invalid_type",
        "messages[0].content: expected `str | array | null`, got `int`.",
    ),
    (
        CHAT,
        {"messages": [{"role": "king"}]},
        "messages[0].role",
        "invalid_type",
        "messages[0].role: invalid enum value 'king'.",
    ),
    (CHAT, {"messages": []}, "messages", "invalid_value", "messages is empty. Give at least one."),
    (CHAT, {"messages": USER, "n": "1"}, "n", "invalid_type", "n: expected `int | null`, got `str`."),
    (
        CHAT,
        {"messages": USER, "temperature": -1},
        "temperature",
        "invalid_value",
        "temperature is -1.0. It must be a number from 0 to 1000.",
    ),
    (
        CHAT,
        {"messages": USER, "top_logprobs": 21, "logprobs": True},
        "top_logprobs",
        "invalid_value",
        "top_logprobs is 21. It must be from 0 to 20.",
    ),
    (
        CHAT,
        {"messages": USER, "top_logprobs": 2},
        "top_logprobs",
        None,
        "top_logprobs is given, but logprobs is not true.",
    ),
    (
        CHAT,
        {"messages": USER, "model": "gpt-9"},
        "model",
        "model_not_found",
        "The model 'gpt-9' is not served here. This server has one model at a time: 'fake'.",
    ),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
        None,
        "messages[0].content[0].type is 'image_url'. Models read text, nothing else.",
    ),
    (
        CHAT,
        {"messages": USER, "stream_options": {"include_usage": True}},
        "stream_options",
        None,
        "stream_options are given, but stream is not true.",
    ),
    (
        CHAT,
        {"messages": USER, "functions": [{}]},
        "functions",
        "unsupported_parameter",
        "functions is [{}]. Give functions as tools, which came after them.",
    ),
    (
        CHAT,
        {"messages": USER, "tool_choice": "required"},
        "tool_choice",
        None,
        "tool_choice wants a call, but there are no tools.",
    ),
    (
        CHAT,
        {"messages": USER, "response_format": {"type": "json_object"}, "guided_regex": "a"},
        "response_format",
        None,
        "response_format and guided_regex both ask for a form. Give one of them.",
    ),
    (
        CHAT,
        {"messages": USER, "response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "missing_required_parameter",
        "response_format.json_schema is missing.",
    ),
    (
        CHAT,
        {"messages": USER, "guided_grammar": "a" * 65_537},
        "guided_grammar",
        "invalid_value",
        "guided_grammar has 65,537 characters. At most 65,536 can be.",
    ),
    (
        CHAT,
        {"messages": USER, "continue_final_message": True},
        "continue_final_message",
        "invalid_value",
        "continue_final_message is True, but the last message is of the role 'user'. "
        "Only what an assistant has begun to say can be continued.",
    ),
    (
        TEXT,
        {"prompt": []},
        "prompt",
        "invalid_value",
        "prompt is empty. Give a text, its tokens, or a list of either.",
    ),
    (
        TEXT,
        {"prompt": ["a", 1]},
        "prompt",
        "invalid_value",
        "prompt has entries of several kinds. Give a text, its tokens, or a list of either.",
    ),
    (TEXT, {"prompt": ["a"] * 1025}, "prompt", None, "prompt has 1,025 entries. At most 1,024 can be."),
    (TEXT, {"prompt": ""}, "prompt", None, "The prompt has no tokens. Give at least one token."),
    (
        TEXT,
        {"prompt": "a", "suffix": "b"},
        "suffix",
        "unsupported_parameter",
        "suffix is 'b'. Text is gone on with, never filled in.",
    ),
    (
        TEXT,
        {"prompt": "a", "stop": ["x"] * 65},
        "stop",
        "invalid_value",
        "There are 65 stop strings. One request may have at most 64.",
    ),
    (
        TEXT,
        {"prompt": "a", "best_of": 2, "stream": True},
        "best_of",
        None,
        "best_of is larger than n, so there is nothing to stream before all is done.",
    ),
    (
        TEXT,
        {"prompt": "a", "logit_bias": {"x": 1}},
        "logit_bias",
        "invalid_value",
        "A token id of logit_bias is 'x'. It must be a whole number from 0 to 2147483647.",
    ),
    (
        "/v1/responses",
        {"input": "a", "previous_response_id": "x"},
        "previous_response_id",
        "unsupported_parameter",
        "previous_response_id is 'x'. Nothing is stored: send the whole conversation.",
    ),
    ("/v1/responses", {"input": []}, "input", "invalid_value", "input is empty. Give a text, or items."),
    (
        "/v1/responses",
        {"input": [{"type": "function_call_output", "output": "1"}]},
        "input[0].call_id",
        "missing_required_parameter",
        "input[0].call_id is missing.",
    ),
    (
        "/v1/responses",
        {"input": "a", "max_output_tokens": 0},
        "max_output_tokens",
        "invalid_value",
        "max_output_tokens is 0. It must be a whole number from 1 to 2147483647.",
    ),
    (
        "/v1/responses",
        {"input": "a", "include": ["file_search_call.results"]},
        "include[0]",
        None,
        "include[0] is 'file_search_call.results'. There is message.output_text.logprobs.",
    ),
    ("/tokenize", {}, "prompt", None, "Give either prompt or messages."),
    ("/detokenize", {"tokens": [-1]}, "tokens", None, "The model has 260 tokens, and none with the id -1."),
]


async def test_what_cannot_be_is_refused_and_the_parameter_named() -> None:
    async with served_app() as server:
        for path, body, param, code, said in WRONG:
            answer = await server.post(path, body)
            assert answer.headers["content-type"] == "application/json"
            error = answer.error
            assert (error["param"], error["code"]) == (param, code), (body, error)
            assert error["message"] == said
            assert answer.status == (404 if code == "model_not_found" else 400)
            assert error["type"] == ("not_found_error" if answer.status == 404 else "invalid_request_error")


async def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    depth = 3000
    schema = b'{"a":' * depth + b"1" + b"}" * depth
    body = b'{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":' + schema + b"}"
    async with served_app() as server:
        answer = await server.post(CHAT, body)
        assert (answer.status, answer.error["message"]) == (400, "The body is nested too deeply.")


async def test_ten_megabytes_of_prompt_are_refused_before_they_are_tokenised() -> None:
    text = "a" * 10_000_000
    async with served_app() as server:
        for path, body, param in (
            (TEXT, {"prompt": text}, "prompt"),
            (CHAT, {"messages": [{"role": "user", "content": text}]}, "messages"),
            ("/v1/responses", {"input": text}, "input"),
            ("/tokenize", {"prompt": text}, "prompt"),
        ):
            answer = await server.post(path, body)
            assert (answer.status, answer.error["param"]) == (400, param)
            assert answer.error["code"] == "context_length_exceeded"
            assert answer.error["message"].startswith(
                f"{param} has 10,000,000 characters. The model's context is 1,000"
            )


async def test_more_tokens_or_turns_than_a_context_has_are_refused_before_they_are_looked_at() -> None:
    async with served_app() as server:
        for path, body, param in (
            (TEXT, {"prompt": [1] * 1001}, "prompt"),
            (CHAT, {"messages": USER * 1001}, "messages"),
            ("/v1/responses", {"input": USER * 1001}, "input"),
        ):
            error = (await server.post(path, body)).error
            assert (error["param"], error["code"]) == (param, "context_length_exceeded")
            assert error["message"] == f"{param} has 1,001 entries. The model's context is 1,000 tokens."


async def test_a_prompt_of_more_tokens_than_a_context_has_is_refused() -> None:
    async with served_app() as server:
        answer = await server.complete(prompt="a" * 1001)
        assert (answer.error["param"], answer.error["code"]) == ("prompt", "context_length_exceeded")


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with served_app(max_body=2000) as server:
        answer = await server.complete(prompt="a" * 2000)
        assert answer.status == 413
        assert answer.error["message"] == "The body has more than 1.95 KiB, which is the most that is read."
        assert (answer.error["param"], answer.error["code"]) == ("prompt", "request_too_large")


async def test_what_says_that_it_is_no_json_is_not_read() -> None:
    async with served_app() as server:
        answer = await server.post(TEXT, {"prompt": "a"}, headers={"content-type": "text/plain"})
        assert answer.status == 415
        assert answer.error["type"] == "invalid_request_error"
        assert answer.error["message"] == "The body is 'text/plain'. Send JSON, as Content-Type: application/json."


async def test_paths_and_methods_that_are_not_there_are_told_in_the_same_form() -> None:
    async with served_app() as server:
        answer = await server.get("/v2")
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        answer = await server.get(TEXT)
        assert (answer.status, answer.error["code"], answer.headers["allow"]) == (405, "method_not_allowed", "POST")
