"""One engine process as the UI sees it, after its end too."""

import sys

from pagedchat.config import EngineConfig
from pagedchat.events import EngineEvent
from pagedchat.service.commands import Pause
from pagedchat.service.log_file import LogFile
from pagedchat.service.process import EngineProcess


async def test_what_is_said_to_a_process_that_is_gone_is_heard_by_nobody(tmp_path) -> None:
    heard: list[EngineEvent] = []
    process = await EngineProcess.start(
        EngineConfig(), LogFile(tmp_path), heard.append, [sys.executable, "-c", "raise SystemExit(3)"]
    )
    assert await process.wait() == 3
    process.send(Pause())
    process.kill()
    await process.close(1.0)
    assert await process.wait() == 3
    assert heard == []
    assert process.complaint == ""
