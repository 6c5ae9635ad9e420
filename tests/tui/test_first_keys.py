"""What is typed before the first frame is drawn is not lost."""

import pyte

from tests.terminal_program import READY, TerminalProgram

TYPED = "written before the first frame"


def shown(program):
    """The lines of the screen."""
    screen = pyte.Screen(120, 40)
    pyte.ByteStream(screen).feed(program.written)
    return screen.display


def test_keys_typed_at_once_after_the_start_are_in_the_composer():
    with TerminalProgram() as program:
        program.press(TYPED)
        program.wait_for("\x1b[?1049h")
        program.press(" and after")
        program.wait_for(READY)
        program.wait_until(
            lambda: any(f"› {TYPED} and after" in line for line in shown(program)), "the keys are lost"
        )


def test_a_key_that_quits_is_kept_too():
    with TerminalProgram() as program:
        program.wait_for("\x1b[?1049h")
        program.press("\x11")
        assert program.wait_for_end() == 0
        assert program.is_left()


SLOW_TO_TAKE_KEYS = """
import time
from textual.drivers.linux_driver import LinuxDriver
taken = LinuxDriver._patch_lflag
LinuxDriver._patch_lflag = classmethod(lambda cls, flags: time.sleep(0.5) or taken(flags))
"""


def test_nor_does_the_system_take_it_for_itself_before_the_keys_are_the_programs():
    """A terminal takes ^Q for the end of a ^S, and such keys are lost, until the screen takes them."""
    with TerminalProgram(before=SLOW_TO_TAKE_KEYS) as program:
        program.wait_for("\x1b[?1049h")
        program.press("\x11")
        assert program.wait_for_end() == 0
        assert program.is_left()


def test_a_paste_with_escapes_and_keys_in_it_is_text():
    with TerminalProgram() as program:
        program.wait_for(READY)
        program.press("\x1b[200~\x1b[31mred\x1b[0m\rnot sent \x11not quit\x1b[201~ end")
        program.wait_until(
            lambda: any(r"not sent \x11not quit end" in line for line in shown(program)),
            "it is not in the composer",
        )
        assert any(r"› \x1b[31mred\x1b[0m" in line for line in shown(program))
