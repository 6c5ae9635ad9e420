"""`/tokenize` and `/detokenize`."""

from tests.server.serving import served_app


async def test_text_becomes_tokens_and_text_again() -> None:
    async with served_app() as server:
        told = (await server.post("/tokenize", {"prompt": "abä", "return_token_strs": True})).json
        assert (told["count"], told["max_model_len"], len(told["tokens"])) == (4, 1000, 4)
        assert told["token_strs"][:2] == ["a", "b"]
        assert (await server.post("/detokenize", {"tokens": told["tokens"]})).json == {"prompt": "abä"}


async def test_a_conversation_goes_through_the_template() -> None:
    async with served_app() as server:
        tokens = (await server.post("/tokenize", {"messages": [{"role": "user", "content": "a"}]})).json["tokens"]
        assert (await server.post("/detokenize", {"tokens": tokens})).json == {
            "prompt": "<|user|>a</s><|assistant|>"
        }


async def test_texts_of_too_many_tokens_are_not_told() -> None:
    async with served_app() as server:
        answer = await server.post("/tokenize", {"prompt": "a" * 4097, "return_token_strs": True})
        assert answer.error["param"] == "return_token_strs"
        assert answer.error["message"] == "The texts of 4,097 tokens are too many; at most 4,096 are told."
