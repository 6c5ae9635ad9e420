"""`/health`, `/metrics`, `/version`, `/openapi.json`, `/v1/models`: what the server says of itself."""

from pagedchat import __version__
from pagedchat.events import EngineDied, LoadProgress
from tests.server.serving import MODEL, served_app
from tests.service.fake_engine import ready_info


async def test_while_the_model_is_loaded_nobody_is_served_and_is_told_why() -> None:
    async with served_app(start=False) as server:
        server.opened.served.state.fold(LoadProgress("weights", "reading shards"))
        for path, method in (("/health", "GET"), ("/v1/models", "GET"), ("/v1/completions", "POST")):
            answer = await server.begin(path, {"prompt": "a"}, method=method).over()
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
            assert answer.error == {
                "message": "The model is being loaded: reading shards.",
                "type": "server_error",
                "param": None,
                "code": "engine_not_ready",
            }
        assert b"pagedchat:engine_up 0.0" in (await server.get("/metrics")).body


async def test_after_the_engine_died_nobody_is_served_until_it_is_back() -> None:
    async with served_app() as server:
        state = server.opened.served.state
        assert (await server.get("/health")).status == 200
        state.fold(EngineDied(-9, "", restarting=True))
        answer = await server.complete()
        assert answer.status == 503
        assert answer.error["message"] == "The engine ended unexpectedly; another one is being started."
        state.fold(ready_info())
        assert (await server.complete()).status == 200


async def test_metrics_have_vllms_names_and_count_requests() -> None:
    async with served_app() as server:
        await server.complete(max_tokens=3, n=2, temperature=1, stream=True)
        await server.complete(max_tokens=3)  # told as a whole: nobody knows when its first token came
        answer = await server.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.body.decode().splitlines()
        label = 'engine="0",model_name="fake"'
        assert (
            f'vllm:request_success_total{{engine="0",finished_reason="length",model_name="{MODEL}"}} 3.0' in lines
        )
        assert f"vllm:prompt_tokens_total{{{label}}} 4.0" in lines
        assert f"vllm:time_to_first_token_seconds_count{{{label}}} 2.0" in lines
        assert f"vllm:generation_tokens_total{{{label}}} 9.0" in lines


async def test_the_model_is_listed_under_each_of_its_names() -> None:
    async with served_app(names=("one", "org/two")) as server:
        models = (await server.get("/v1/models")).json
        assert [(card["id"], card["root"], card["max_model_len"]) for card in models["data"]] == [
            ("one", "fake", 1000),
            ("org/two", "fake", 1000),
        ]
        assert (await server.get("/v1/models/org/two")).json["id"] == "org/two"
        assert (await server.get("/v1/models/three")).error["code"] == "model_not_found"
        assert (await server.complete(model="org/two")).json["model"] == "one"


async def test_version_and_description() -> None:
    async with served_app() as server:
        assert (await server.get("/version")).json == {"version": __version__}
        page = (await server.get("/openapi.json")).json
        assert page["openapi"] == "3.1.0"
        body = page["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body == {"$ref": "#/components/schemas/ChatBody"}
        assert page["components"]["schemas"]["ChatBody"]["additionalProperties"] is False
        refs = [each for each in str(page).split("'") if each.startswith("#/components/schemas/")]
        assert {ref.rpartition("/")[2] for ref in refs} <= set(page["components"]["schemas"])
