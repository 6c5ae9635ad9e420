"""Commands about the engine: pause and step it, slow it down, and put its pool under pressure.

What the engine makes of a limit, a pin or an eviction is its own answer, an `EngineNotice`; here is only checked
what can be known without asking it.
"""

import math

from pagedchat.bounds import shown
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, no_argument, whole_number
from pagedchat.view.sentences.figures import engine_text
from pagedchat.view.sentences.server_words import totals_words

MAX_STEPS = 100_000
MAX_PACE_MS = 60_000
_SLOW_USAGE = "/slow MS|off"


def _pause(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/pause")
    context.engine.pause()


def _run(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/run")
    context.engine.run()


def _step(context: CommandContext, count: str) -> None:
    context.engine.step(whole_number(count or "1", "The number of steps", "/step [n]", low=1, high=MAX_STEPS))


def _slow(context: CommandContext, argument: str) -> None:
    pace = 0.0 if argument == "off" else _milliseconds(argument) / 1000
    context.engine.set_pace(pace)
    context.say(f"A step takes at least {argument} ms now." if pace else "Steps run as fast as they can.")


def _milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise CommandError(
            f"The pace is a number of milliseconds a step, not {shown(text)}.", f"Type {_SLOW_USAGE}"
        ) from None
    if not (math.isfinite(number) and 0 <= number <= MAX_PACE_MS):
        raise CommandError(f"A step can take from 0 to {MAX_PACE_MS} ms, not {number:g}.", f"Type {_SLOW_USAGE}")
    return number


def _limit(context: CommandContext, argument: str) -> None:
    context.engine.check_pool()
    total = context.engine.live().info.num_blocks
    number = None if argument == "off" else whole_number(
        argument, "The limit in blocks", "/limit N|off", low=1, high=total
    )  # fmt: skip
    context.engine.limit(number)


def _pin(context: CommandContext, argument: str) -> None:
    context.engine.check_pool()
    context.engine.pin(context.block_id(argument, "/pin ID"))


def _unpin(context: CommandContext, argument: str) -> None:
    context.engine.unpin(context.block_id(argument, "/unpin [ID]") if argument else None)


def _evict(context: CommandContext, argument: str) -> None:
    context.engine.check_pool()
    context.engine.evict(context.block_id(argument, "/evict ID"))


def _flush(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/flush")
    context.engine.flush()


def _stats(context: CommandContext, argument: str) -> None:
    no_argument(argument, "/stats")
    if context.view.server is not None:
        context.tell(totals_words(context.view.server))
        return
    context.tell(engine_text(context.engine.live()))


COMMANDS = (
    SlashCommand("pause", "", "Hold the scheduler before its next step", _pause),
    SlashCommand("run", "", "Let the scheduler run on", _run),
    SlashCommand("step", "[n]", "So many steps of the scheduler, then a pause", _step),
    SlashCommand("slow", "MS|off", "Slow motion: a step takes at least so long", _slow,
                 choices=("100", "500", "off"), title="Slow motion"),
    SlashCommand("limit", "N|off", "The pool uses at most N blocks", _limit, choices=("off",),
                 title="Limit the pool"),
    SlashCommand("pin", "ID", "Keep a findable block from being evicted", _pin, title="Pin a block"),
    SlashCommand("unpin", "[ID]", "Let a pinned block be evicted again, or all", _unpin, title="Unpin blocks"),
    SlashCommand("evict", "ID", "Make a cached block free", _evict, title="Evict a block"),
    SlashCommand("flush", "", "Make every cached block free", _flush, title="Flush the prefix cache"),
    SlashCommand("stats", "", "The engine's totals", _stats, title="Engine totals"),
)  # fmt: skip
