"""Main of the engine process: `python -m pagedchat.service.child [--loader MODULE:FUNCTION] [--log-file FILE] FD`.

FD is one end of a socket pair inherited from the UI process: frames of commands come in, frames of events go out.
Standard output and error belong to the log file. When the UI is gone the socket ends, and so does this process; ^C
in the terminal is the UI's.
"""

import argparse
import faulthandler
import importlib
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.chat.template_process import TemplateProcess
from pagedchat.config import EngineConfig
from pagedchat.engine.core import EngineCore
from pagedchat.errors import PagedChatError, first_line
from pagedchat.events import EngineFailed, EngineNotice, LoadProgress, RunState
from pagedchat.garbage import rare_collections
from pagedchat.kv_events.publisher import BlockEventPublisher, publisher_of
from pagedchat.service.chats import Chats
from pagedchat.service.loop import EngineLoop, Inbox, Received, RunnerLost
from pagedchat.service.outbox import Outbox
from pagedchat.service.programs import Programs
from pagedchat.service.prompts import PrepareAside, PromptWorkshop
from pagedchat.service.publisher import Publisher
from pagedchat.service.rendering import RenderAside
from pagedchat.service.text_model import TextModel
from pagedchat.service.wire import Configure, Inbound, WireError, command_reader

if TYPE_CHECKING:
    from pagedchat.runtime.loading.loaded import LoadedModel

Loader = Callable[[EngineConfig, Callable[[LoadProgress], None]], "LoadedModel"]

DEFAULT_LOADER = "pagedchat.distributed.loading:load_model"
EXIT_OK, EXIT_NOT_STARTED, EXIT_CRASHED = 0, 1, 70
UI_GONE = (BrokenPipeError, ConnectionResetError)
"""What sending raises when nobody listens any more, be it while loading or later. That is no failure of ours."""
SECONDS_TO_END = 5.0
"""For a loop whose runner is lost."""
_READ_SIZE = 1 << 16
_STANDARD_ERROR = 2

log = logging.getLogger("pagedchat.engine")


def main(argv: list[str] | None = None) -> int:
    """Run an engine for whoever holds the other end of the socket; returns the exit code."""
    args = _parse(argv)
    _set_up_process()
    connection = socket.socket(fileno=args.fd)
    connection.set_inheritable(False)
    messages = _receive(connection)
    first = next(messages, None)
    if not isinstance(first, Configure):
        log.error("The first message was no configuration: %r", first)
        return EXIT_NOT_STARTED
    inbox: Inbox = Inbox()
    threading.Thread(target=_read, args=(messages, inbox), name="reader", daemon=True).start()
    outbox = Outbox(connection)
    publisher = Publisher(outbox.add, push=outbox.push, tells_steps=first.follows_steps)
    try:
        loop = _start(first.config, args, publisher, inbox)
        code = EXIT_NOT_STARTED if loop is None else _run(loop, publisher, args.log_file)
        outbox.push(wait=True)
        return code
    except UI_GONE:
        return EXIT_OK


def _set_up_process() -> None:
    """^C is left to the UI; what is said, and where a native library dies, is in the log at once.

    Where the disk is full it is not, and nobody who says something fails for that. With `PAGEDCHAT_LOG=debug` our
    own modules say more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    sys.stdout = sys.stderr = io.TextIOWrapper(_Log(), "utf-8", "backslashreplace", write_through=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if os.environ.get("PAGEDCHAT_LOG") == "debug":
        logging.getLogger("pagedchat").setLevel(logging.DEBUG)


class _Log(io.RawIOBase):
    """What standard output and error lead to, which is the log."""

    def fileno(self) -> int:
        return _STANDARD_ERROR

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # a buffer of any kind
        with suppress(OSError):
            os.write(_STANDARD_ERROR, data)
        return len(data)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pagedchat.service.child")
    parser.add_argument("--loader", default=DEFAULT_LOADER, metavar="MODULE:FUNCTION")
    parser.add_argument("--log-file", default="")
    parser.add_argument("fd", type=int)
    return parser.parse_args(argv)


# --- what comes in ----------------------------------------------------------------------------------


def _receive(connection: socket.socket) -> Iterator[Inbound]:
    reader = command_reader()
    while data := connection.recv(_READ_SIZE):
        yield from reader.feed(data)
    reader.finish()


def _read(messages: Iterator[Inbound], inbox: Inbox) -> None:
    """The reader thread. At the end of the messages the whole process ends, whatever it is doing."""
    code = EXIT_OK
    try:
        for message in messages:
            if not isinstance(message, Configure):
                inbox.put(Received(message, time.monotonic()))
    except ConnectionResetError:
        pass  # it left without reading to the end
    except (WireError, OSError):
        log.exception("The connection to the UI broke.")
        code = EXIT_CRASHED
    log.info("The UI is gone.")
    logging.shutdown()
    os._exit(code)


# --- loading ----------------------------------------------------------------------------------------


def _start(config: EngineConfig, args: argparse.Namespace, publisher: Publisher, inbox: Inbox) -> EngineLoop | None:
    """Load the model; `None` after having told the UI why that is not possible."""
    templates = TemplateProcess()
    templates.start()  # beside the loading, so that no prompt waits for it
    try:
        block_events = publisher_of(config.kv_events)  # said at once, where that cannot be
        loaded = _loader(args.loader)(config, publisher.add_progress)
        text_model = _text_model(loaded, templates)
        dump_dir = Path(args.log_file).parent if args.log_file else None
        loop = _engine(loaded, text_model, publisher, inbox, dump_dir, block_events)
    except UI_GONE:
        raise
    except PagedChatError as error:
        log.error("The engine could not start: %s", error)
        publisher.send_now(EngineFailed(error.message, error.hint))
        return None
    except Exception as error:
        log.exception("The engine could not start.")
        publisher.send_now(EngineFailed(f"The engine could not start: {first_line(error)}.", _see(args.log_file)))
        return None
    info = loaded.info
    log.info("Ready: %s on %s, %d blocks of %d tokens", info.model, info.device, info.num_blocks, info.block_size)
    log.info("Attention goes through the %s backend. %s", info.attention_backend, info.attention_reason)
    publisher.send_now(loaded.info)
    publisher.send_now(RunState(paused=False))
    if loaded.notices:
        publisher.send_now(EngineNotice(" ".join(loaded.notices), failed=True))
    return loop


def _loader(name: str) -> Loader:
    module, _, function = name.partition(":")
    loader: Loader = getattr(importlib.import_module(module), function)
    return loader


def _text_model(loaded: "LoadedModel", templates: TemplateProcess) -> TextModel:
    template = templates.template(loaded.chat_template, loaded.special_tokens)
    return TextModel(loaded.tokenizer, template, loaded.sampling_defaults)


def _engine(
    loaded: "LoadedModel",
    text_model: TextModel,
    publisher: Publisher,
    inbox: Inbox,
    dump_dir: Path | None,
    block_events: BlockEventPublisher | None,
) -> EngineLoop:
    core = EngineCore(
        loaded.limits, loaded.runner, grammars=loaded.grammars, draft=loaded.draft, first_id=FIRST_OF_PROGRAMS
    )
    renderer = RenderAside(text_model, lambda rendered: inbox.put(Received(rendered, time.monotonic())))
    loaded.tell_of_loss(lambda: _end_soon(inbox))
    chats = Chats(core, publisher, text_model, renderer=renderer)
    workshop = PromptWorkshop(text_model, loaded.grammars)
    preparer = PrepareAside(workshop, lambda prepared: inbox.put(Received(prepared, time.monotonic())))
    programs = Programs(core, publisher, preparer, text_model.tokenizer)
    if block_events is not None:
        block_events.start(core)
        log.info("Block events are published at %s.", block_events.endpoint)
    return EngineLoop(
        core,
        chats,
        programs,
        publisher,
        inbox,
        dump_dir=dump_dir,
        spare_work=loaded.prepare_more,
        block_events=block_events,
    )


def _end_soon(inbox: Inbox) -> None:
    """The runner is lost. The loop says so and ends, unless it waits for ever for what will not come any more."""
    inbox.put(Received(RunnerLost(), time.monotonic()))
    waits = threading.Timer(SECONDS_TO_END, os._exit, (EXIT_CRASHED,))
    waits.daemon = True
    waits.start()


# --- running ----------------------------------------------------------------------------------------


def _run(loop: EngineLoop, publisher: Publisher, log_file: str) -> int:
    try:
        with rare_collections():
            loop.run()
    except UI_GONE:
        raise
    except Exception as error:
        log.exception("The engine crashed.")
        message, hint = f"The engine crashed: {first_line(error)}.", f"Ask again. {_see(log_file)}"
        loop.chats.fail_all(message, hint)
        loop.programs.fail_all(message, hint)
        publisher.flush()
        return EXIT_CRASHED
    return EXIT_OK


def _see(log_file: str) -> str:
    return f"The details are in {log_file}." if log_file else "The details are in the engine's log."


if __name__ == "__main__":
    sys.exit(main())
