"""The dump of an engine whose books disagree, as a file beside the log."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pagedchat.engine.core import EngineCore
from pagedchat.engine.dump import dump_of
from pagedchat.events import StepReport
from pagedchat.private_files import write_file

log = logging.getLogger("pagedchat.engine")


def write_dump(core: EngineCore, message: str, report: StepReport, directory: Path | None) -> str:
    """Write the dump.

    Args:
        core: the engine.
        message: what is wrong.
        report: of the step in which that was found.
        directory: where the file goes; None writes none.

    Returns:
        The file's path; empty where it could not be written.
    """
    if directory is None:
        return ""
    path = directory / f"integrity-{datetime.now(UTC):%Y%m%d-%H%M%S}-step-{report.step}.json"
    try:
        write_file(path, msgspec.json.format(msgspec.json.encode(dump_of(core, message, report)), indent=1))
    except OSError:
        log.exception("The dump could not be written.")
        return ""
    return str(path)
