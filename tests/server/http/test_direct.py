"""Endpoints past the router answer as those behind it do."""

import pytest

from tests.server.serving import served_app

PATHS = ["/v1/completions", "/v1/chat/completions", "/v1/responses"]


@pytest.mark.parametrize("path", PATHS)
async def test_other_methods_are_the_routers_to_refuse(path: str) -> None:
    async with served_app() as server:
        answer = await server.get(path)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("path", PATHS)
async def test_errors_are_told_as_everywhere(path: str) -> None:
    async with served_app() as server:
        answer = await server.post(path, b"{")
        assert (answer.status, answer.error["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_goes_while_it_asks_is_nobodys_error(path: str) -> None:
    async with served_app() as server:
        call = server.begin(path, b"{", is_whole=False)
        call.leave()
        assert (await call.over()).status == 499


@pytest.mark.parametrize("path", PATHS)
async def test_keys_and_hosts_are_asked_for_before(path: str) -> None:
    async with served_app(api_key="s3cret") as server:
        assert (await server.post(path, {})).status == 401
    async with served_app() as server:
        assert (await server.post(path, {}, host="page.example.org")).status == 403
