"""A server in a thread of its own, over an engine process with a fake model: for programs that are looked at."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagedchat.config import EngineConfig
from pagedchat.server.hub import EngineHub
from pagedchat.service.client import EngineClient
from tests.server.attach_serving import Served, serving
from tests.service.fake_engine import ENTRY


class _Engine:
    """What `serving` wants of a rig: a hub."""

    def __init__(self, hub: EngineHub) -> None:
        self.hub = hub


@contextmanager
def program_server(loader: str, log_dir: Path) -> Iterator[str]:
    """Serve; gives the address."""
    address: list[str] = []
    ready, ending = threading.Event(), []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        hub = EngineHub(EngineClient(EngineConfig(), log_dir, (*ENTRY, f"tests.service.fake_engine:{loader}")))
        await hub.start()
        async with serving(_Engine(hub)) as served:  # type: ignore[arg-type]
            address.append(_where(served))
            done = asyncio.Event()
            ending.append(lambda: loop.call_soon_threadsafe(done.set))
            ready.set()
            await done.wait()
        await hub.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield address[0]
    finally:
        for end in ending:
            end()
        thread.join()


def _where(served: Served) -> str:
    return f"127.0.0.1:{served.port}"
