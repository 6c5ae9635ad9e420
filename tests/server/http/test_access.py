"""Who may ask: keys, hosts, pages in browsers, WebSockets."""

from typing import Any

import pytest

from pagedchat.server.http.access import Access
from tests.server.serving import served_app

KEY = "s3cret"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", "There is no API key. Send it as Authorization: Bearer KEY."),
        ("Bearer wrong", "The API key is not the one of this server. Send it as Authorization: Bearer KEY."),
        (f"Basic {KEY}", "There is no API key. Send it as Authorization: Bearer KEY."),
        ("Bearer s3cre\xe9", "The API key is not the one of this server. Send it as Authorization: Bearer KEY."),
    ],
)
async def test_without_the_key_nobody_is_served(header: str, said: str) -> None:
    async with served_app(api_key=KEY) as server:
        for answer in (
            await server.get("/v1/models", headers={"authorization": header}),
            await server.get("/nothing", headers={"authorization": header}),
            await server.get("/metrics", headers={"authorization": header}),
            await server.post("/v1/completions", {"prompt": "a"}, headers={"authorization": header}),
        ):
            assert answer.status == 401
            assert answer.error == {
                "message": said, "type": "authentication_error", "param": None, "code": "invalid_api_key",
            }  # fmt: skip
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_with_the_key_everybody_is_served_under_any_name() -> None:
    async with served_app(api_key=KEY) as server:
        answer = await server.get("/v1/models", headers={"authorization": f"Bearer {KEY}"}, host="gpu.example.org")
        assert answer.status == 200
        assert (await server.get("/health", host="10.0.0.1")).status == 200  # for load balancers


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "a.localhost"])
async def test_this_machine_is_served_without_a_key(host: str) -> None:
    async with served_app() as server:
        assert (await server.get("/v1/models", host=host)).status == 200


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "localhost.example.org", "", "a/b", "[::1"])
async def test_names_that_others_made_point_here_are_not_served(host: str) -> None:
    async with served_app() as server:
        answer = await server.get("/v1/models", host=host)
        assert (answer.status, answer.error["type"]) == (403, "permission_error")


async def test_pages_of_other_origins_are_served_only_where_they_may_be() -> None:
    async with served_app() as server:
        answer = await server.get("/v1/models", headers={"origin": "https://example.org"})
        assert answer.status == 403
        assert answer.error["message"] == (
            "Pages of this origin are not served. Start the server with --cors-origin ORIGIN."
        )
        assert (await server.get("/v1/models", headers={"origin": "http://localhost"})).status == 200
    async with served_app(origins=("https://example.org",)) as server:
        answer = await server.get("/v1/models", headers={"origin": "https://example.org"})
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        assert (await server.get("/v1/models", headers={"origin": "https://other.org"})).status == 403


async def test_a_websocket_is_refused_before_it_is_accepted() -> None:
    sent: list[Any] = []

    async def app(*_: object) -> None:
        raise AssertionError

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/attach",
        "headers": [(b"host", b"localhost"), (b"origin", b"http://evil")],
    }
    await Access(app)(scope, receive, send)  # type: ignore[arg-type]
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]
