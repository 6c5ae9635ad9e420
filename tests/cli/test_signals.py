"""Signals end a command without a screen in order: real processes without a model."""

import signal
import subprocess
import sys

import pytest

from pagedchat.cli.signals import ENDING, ended_in_order

WORK = """
import sys, time
from pagedchat.cli import main as cli, oneshot

def work(*_, **__):
    try:
        print("at work", flush=True)
        while True:
            time.sleep(0.01)
    finally:
        print("in order", flush=True)

oneshot.run_oneshot = work
sys.exit(cli.main(["-p", "x"]))
"""


USUAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
"""
"""Whoever runs the tests may ignore some, as under nohup, and a program inherits that."""


# Work sleeps in short pieces: a signal that comes just before a long sleep is seen by Python only after it.


def end(*, number: int, program: str = WORK) -> tuple[int, str, str]:
    with subprocess.Popen(
        [sys.executable, "-c", USUAL + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(number)
        said, complaint = process.communicate(timeout=60)
    return process.returncode, said, complaint


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING], ids=lambda number: number.name)
def test_a_signal_ends_in_order_with_the_code_that_shells_expect(number: signal.Signals) -> None:
    assert end(number=number) == (128 + number, "in order\n", "")


STUBBORN = """
import sys, time
from pagedchat.cli import main as cli, oneshot, signals
signals.GRACE = 0.2

def work(*_, **__):
    while True:
        try:
            print("at work", flush=True)
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            pass

oneshot.run_oneshot = work
sys.exit(cli.main(["-p", "x"]))
"""


def test_work_that_swallows_a_signal_is_ended_all_the_same() -> None:
    assert end(number=signal.SIGTERM, program=STUBBORN) == (-signal.SIGTERM, "at work\n", "")


def test_work_that_swallows_a_signal_and_ends_by_itself_does_not_count_as_done() -> None:
    program = STUBBORN.replace("pass", "return 0").replace("0.2", "60")
    assert end(number=signal.SIGTERM, program=program) == (143, "", "")


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_in_order():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_has_the_systems_own_effect() -> None:
    with ended_in_order() as ending:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        ending.is_over()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert (ending.has_begun, ending.exit_code) == (True, 143)
