"""A template from elsewhere runs within limits of time and memory, and not in this process."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from pagedchat.chat.model_template import TemplateJob
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.template_process import TemplateProcess
from pagedchat.chat.turns import Turn
from pagedchat.errors import RequestError
from pagedchat.own_process import environment
from tests.fakes import CHAT_TEMPLATE

HI = Turn("user", "Hi")
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
POWER = "{{ 10**200000000 }}"
CALLS_ITSELF = "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}"
LARGE = "{{ 'x' * 10**10 }}"
GROWS = "{% set ns = namespace(x='x' * 1000) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"


@pytest.fixture(scope="module")
def process():
    process = TemplateProcess(seconds=0.5)
    yield process
    process.close()


@pytest.fixture(scope="module")
def patient():
    process = TemplateProcess(seconds=60)
    yield process
    process.close()


def job(source: str, content: str = "Hi") -> TemplateJob:
    return TemplateJob(source, {}, [{"role": "user", "content": content}], True)


def pid(process: TemplateProcess) -> int:
    assert process._worker is not None
    return process._worker._process.pid


def is_gone(number: int) -> bool:
    """Or dead, where nobody has asked how it ended yet."""
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_text_is_that_of_the_template(process):
    template = ChatTemplate(CHAT_TEMPLATE + "{{ bos_token }}", {"bos_token": "<s>"}, process.run)
    assert template.render([HI, Turn("assistant", "Hel")]) == "<|user|>Hi</s><|assistant|><s>Hel"
    assert template.render([Turn("user", "é🤗\x00")]) == "<|user|>é🤗\x00</s><|assistant|><s>"
    lone = Turn("user", "\ud800")  # no text, but no template is to fail by it
    assert "\ud800" in template.render([lone])


@pytest.mark.parametrize("source", [LOOPS, POWER], ids=["loops", "power"])
def test_template_that_does_not_end_is_ended(process, source):
    with pytest.raises(RequestError, match=r"chat template did not finish within 0\.5 s") as caught:
        process.run(job(source))
    assert "--raw" in caught.value.hint
    assert process.run(job("{{ 1 + 1 }}")) == "2"


@pytest.mark.skipif(sys.platform == "darwin", reason="no limit of memory there")
@pytest.mark.parametrize("source", [LARGE, GROWS], ids=["large", "grows"])
def test_template_that_fills_the_memory_is_refused(patient, source):
    with pytest.raises(RequestError, match="takes more memory than it may"):
        patient.run(job(source))
    assert patient.run(job("{{ 1 + 1 }}")) == "2"


def test_processor_time_has_a_limit_too_for_nobody_may_be_there_to_end_it():
    program = "from pagedchat.chat import template_worker as w; w.CPU_SECONDS = 0; w.main()"
    process = TemplateProcess((sys.executable, "-c", program), seconds=60)
    for _ in range(2):  # counted for each template anew
        assert process.run(job("a")) == "a"
    with pytest.raises(RequestError, match="ended the process that ran it"):
        process.run(job(LOOPS))
    process.close()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (CALLS_ITSELF, "recursion"),
        ("{{ 'x' * 300_000 }}", "300,000 characters"),
        ("{% for %}", "does not parse"),
        ("{{ " + "(" * 200_000 + ")" * 200_000 + " }}", "does not parse|ended the process|did not finish"),
        ("{{ raise_exception('No chats today') }}", "No chats today"),
        ("x" * 1_100_000, "1,100,000 characters; 1,048,576 are the most"),
        ("{{ raise_exception('word ' * 10**6) }}", "conversation: (word )*"),
        ("{{ ''.__class__.__mro__ }}", "unsafe|no attribute"),
    ],
)
def test_what_is_wrong_is_told_and_the_next_text_is_written(process, source, sentence):
    with pytest.raises(RequestError, match=sentence):
        process.run(job(source))
    assert process.run(job("{{ 1 + 1 }}")) == "2"


def test_process_is_kept_and_one_that_died_is_replaced(process):
    process.run(job("a"))
    first = pid(process)
    assert process.run(job("b")) == "b"
    assert pid(process) == first
    os.kill(first, signal.SIGKILL)
    process._worker._process.wait()
    assert process.run(job("c")) == "c"
    assert pid(process) != first


def test_a_death_in_the_middle_is_told():
    process = TemplateProcess(seconds=60)
    process.run(job("a"))
    killer = threading.Timer(0.05, os.kill, (pid(process), signal.SIGKILL))
    killer.start()
    with pytest.raises(RequestError, match="ended the process that ran it"):
        process.run(job(LOOPS))
    killer.join()
    process.close()


@pytest.mark.parametrize(
    "entry",
    [("/no/such/program",), (sys.executable, "-c", "pass"), (sys.executable, "-c", "print('nonsense' * 9)")],
    ids=["missing", "silent", "nonsense"],
)
def test_without_a_process_no_template_runs(entry):
    process = TemplateProcess(entry)
    process.start()
    with pytest.raises(RequestError, match="process in which chat templates run cannot be started") as caught:
        process.run(job("a"))
    assert "--raw" in caught.value.hint
    process.close()


def test_process_ends_when_nobody_has_it_any_more():
    process = TemplateProcess()
    process.start()
    number = pid(process)
    del process
    assert is_gone(number)


def test_process_ends_with_its_owner():
    program = (
        "import os\n"
        "from pagedchat.chat.template_process import TemplateProcess\n"
        "from tests.chat.test_template_process import LOOPS, job, pid\n"
        "process = TemplateProcess(seconds=60)\n"
        "process.run(job('a'))\n"
        "print(pid(process), flush=True)\n"
        "os._exit(0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    number, deadline = int(result.stdout), time.monotonic() + 10
    while not is_gone(number) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert is_gone(number)


def test_several_threads_get_their_own_texts(process):
    texts: dict[int, str] = {}
    threads = [
        threading.Thread(
            target=lambda i=i: texts.update({i: process.run(job("{{ messages[0].content }}", str(i)))})
        )
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {i: str(i) for i in range(8)}


def test_without_a_template_there_is_no_process(process):
    process.start()
    assert process.template(None, {}).kind == "plain"
    assert process._worker is None
