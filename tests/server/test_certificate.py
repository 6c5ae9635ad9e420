"""A server with a certificate: whom it is believed by, and every file that cannot be one, with its sentence."""

import asyncio
import json
from pathlib import Path

import pytest

from pagedchat import events as ev
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.remote.address import address_of
from pagedchat.remote.attached import AttachedLink
from pagedchat.remote.openai.address import server_address
from pagedchat.remote.openai.link import OpenAILink
from pagedchat.remote.stats import ask_server
from pagedchat.remote.tls import FILE_VARIABLE
from pagedchat.server.options import ServeOptions
from pagedchat.service.commands import EngineLink
from tests.certificates import Certificate, make_certificate
from tests.server.test_run import Run, run

UNKNOWN = "its certificate is not believed: self-signed certificate"
NAME_IT = "Name its authority's certificate, or its own: SSL_CERT_FILE=FILE."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def with_tls(folder: Path, made: Certificate):
    return run(folder, ssl_certfile=str(made.certificate), ssl_keyfile=str(made.key))


async def first(link: EngineLink, kind: type[ev.EngineEvent]) -> ev.EngineEvent:
    """The first event of the kind, or the failure that comes in its stead."""
    await link.start()
    try:
        async with asyncio.timeout(20):
            async for event in link.events():
                if isinstance(event, kind | ev.EngineFailed):
                    return event
    finally:
        await link.close()
    raise AssertionError("the events have ended")


async def failure(link: EngineLink) -> tuple[str, str]:
    event = await first(link, ev.EngineFailed)
    assert isinstance(event, ev.EngineFailed)
    return event.message, event.hint


async def port_of(running: Run) -> int:
    url = await running.url
    assert url.startswith("https://127.0.0.1:")
    return int(url.removesuffix("/v1").rpartition(":")[2])


async def test_clients_that_name_the_certificate_are_served(
    tmp_path: Path, made: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    monkeypatch.setenv(FILE_VARIABLE, str(made.certificate))
    async with with_tls(tmp_path, made) as running:
        port = await port_of(running)
        address = address_of("--attach", f"https://localhost:{port}")
        assert isinstance(await first(AttachedLink(address), ev.EngineReady), ev.EngineReady)
        server = server_address(f"https://127.0.0.1:{port}", {})
        assert isinstance(await first(OpenAILink(server), ev.EngineReady), ev.EngineReady)
        async with openai.AsyncOpenAI(base_url=await running.url, api_key="none") as client:
            assert [model.id async for model in client.models.list()] == ["fake"]
        told = await asyncio.to_thread(ask_server, address, "")
        assert json.loads(json.dumps(told))["serves"]["url"] == await running.url


async def test_nobody_believes_a_certificate_that_nobody_knows(tmp_path: Path, made: Certificate) -> None:
    async with with_tls(tmp_path, made) as running:
        where = f"127.0.0.1:{await port_of(running)}"
        address = address_of("--attach", f"https://{where}")
        said = f"The server at {where} cannot be attached to: {UNKNOWN}."
        assert await failure(AttachedLink(address)) == (said, NAME_IT)
        link = OpenAILink(server_address(f"https://{where}", {}))
        assert await failure(link) == (f"{where} cannot be reached: {UNKNOWN}.", NAME_IT)
        with pytest.raises(PagedChatError) as refused:
            await asyncio.to_thread(ask_server, address, "")
        assert str(refused.value) == f"The server at {where} cannot be asked: {UNKNOWN}. {NAME_IT}"


async def test_who_speaks_http_where_tls_is_spoken_is_told_of_it(tmp_path: Path, made: Certificate) -> None:
    async with with_tls(tmp_path, made) as running:
        where = f"127.0.0.1:{await port_of(running)}"
        address = address_of("--attach", f"http://{where}")
        assert (await failure(AttachedLink(address)))[1] == "Look at the address; with TLS it has https://."
        link = OpenAILink(server_address(f"http://{where}", {}))
        assert (await failure(link))[1] == "If it speaks TLS, its URL begins with https://."
        with pytest.raises(PagedChatError, match="with TLS it has https://"):
            await asyncio.to_thread(ask_server, address, "")


async def test_who_speaks_tls_where_http_is_spoken_is_told_of_it(tmp_path: Path) -> None:
    async with run(tmp_path) as running:
        where = (await running.url).removeprefix("http://").removesuffix("/v1")
        address = address_of("--attach", f"https://{where}")
        said = f"The server at {where} cannot be attached to: it does not speak TLS."
        assert await failure(AttachedLink(address)) == (said, "Write http:// in the place of https://.")
        with pytest.raises(PagedChatError, match="it does not speak TLS"):
            await asyncio.to_thread(ask_server, address, "")


async def test_a_file_of_certificates_that_is_none_is_told_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, reason in ((None, "no such file or directory"), ("no", "it has no certificates in PEM")):
        path = tmp_path / "authority"
        if text is not None:
            path.write_text(text)
        monkeypatch.setenv(FILE_VARIABLE, str(path))
        said = f"The file that SSL_CERT_FILE names cannot be used: {reason} ({path})."
        hint = "Name one with certificates in PEM, or unset the variable."
        address = address_of("--attach", "https://127.0.0.1:9")
        assert await failure(AttachedLink(address)) == (said, hint)
        assert await failure(OpenAILink(server_address("https://127.0.0.1:9", {}))) == (said, hint)


def refused(**options: str) -> str:
    with pytest.raises(InvalidValueError) as caught:
        ServeOptions(**options)  # type: ignore[arg-type]  # texts all
    return str(caught.value)


def test_files_that_are_no_certificate_are_refused_by_name(tmp_path: Path, made: Certificate) -> None:
    certificate, missing = str(made.certificate), str(tmp_path / "missing")
    assert refused(ssl_keyfile=str(made.key)) == (
        "--ssl-keyfile is given, but no --ssl-certfile. Give both, or neither."
    )
    assert refused(ssl_certfile=missing).startswith(
        f"--ssl-certfile {missing} cannot be read: no such file or directory."
    )
    assert refused(ssl_certfile=certificate, ssl_keyfile=missing).startswith(f"--ssl-keyfile {missing} cannot be")
    assert refused(ssl_certfile=certificate, ssl_keyfile=str(made.another_key)).startswith(
        f"The key in {made.another_key} is not that of the certificate."
    )
    assert refused(ssl_certfile=certificate, ssl_keyfile=str(made.locked_key)).startswith(
        f"The key in {made.locked_key} has a passphrase."
    )
    assert refused(ssl_certfile=certificate).startswith(
        f"--ssl-certfile {certificate} and its key are no certificate in PEM."
    )
