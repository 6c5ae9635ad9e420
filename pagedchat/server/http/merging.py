"""Outputs of several requests as they come, where one body asks for several."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merged(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Everything that any of them has, with the place of the source. Ends with the last one, or with the first
    error, and then all of them are left."""
    if len(sources) == 1:
        async with aclosing(sources[0]) as only:
            async for item in only:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue()
    room = asyncio.Semaphore(1)  # a source goes on when its item is taken, or unread items would pile up

    async def pass_on(place: int, source: AsyncGenerator[T, None]) -> None:
        async with aclosing(source) as each:
            async for item in each:
                await room.acquire()
                queue.put_nowait((place, item))

    async def pass_on_all() -> None:
        async with asyncio.TaskGroup() as group:
            for place, source in enumerate(sources):
                group.create_task(pass_on(place, source))

    running = asyncio.ensure_future(pass_on_all())
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (found := await queue.get()) is not None:
            room.release()
            yield found
        await running
    except* Exception as errors:
        raise _first(errors) from None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
