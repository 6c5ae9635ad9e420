import errno
import pickle

import pytest

from pagedchat.errors import (
    DeviceError,
    IntegrityError,
    InvalidValueError,
    KernelCompileError,
    KernelError,
    ModelError,
    PagedChatError,
    RequestError,
    first_line,
    is_of_one_request,
    is_out_of_memory,
)
from tests.faulty_tokenizer import PanicException


def test_error_reads_as_sentence_and_hint() -> None:
    error = ModelError("There is no model x.", "Check the name.")
    assert (error.message, error.hint) == ("There is no model x.", "Check the name.")
    assert str(error) == "There is no model x. Check the name."


def test_error_without_hint_ends_after_the_sentence() -> None:
    assert str(RequestError("The prompt has no tokens.")) == "The prompt has no tokens."


@pytest.mark.parametrize(
    "cls", [PagedChatError, InvalidValueError, ModelError, DeviceError, RequestError, KernelError]
)
def test_error_survives_the_way_between_processes(cls: type[PagedChatError]) -> None:
    copy = pickle.loads(pickle.dumps(cls("What.", "Do this.")))
    assert type(copy) is cls
    assert (copy.message, copy.hint) == ("What.", "Do this.")


def test_invalid_value_is_a_value_error_for_users_of_the_library() -> None:
    assert issubclass(InvalidValueError, ValueError)


def test_compilers_log_survives_the_way_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(KernelCompileError("What.", "Do this.", "k.cu(1): error")))
    assert type(copy) is KernelCompileError
    assert (copy.message, copy.hint, copy.log) == ("What.", "Do this.", "k.cu(1): error")
    assert str(copy) == "What. Do this."


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (KeyError("lost"), True),
        (MemoryError(), True),
        (PanicException("overflow"), True),
        (IntegrityError("block 3"), False),
        (AssertionError(), False),
        (BrokenPipeError(), False),
        (ConnectionResetError(), False),
        (KeyboardInterrupt(), False),
        (SystemExit(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_which_errors_end_one_request_alone(error: BaseException, own: bool) -> None:
    assert is_of_one_request(error) == own


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("unable to mmap 29172176 bytes from file <x>: Cannot allocate memory (12)"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB."), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (OSError(errno.ENOENT, "out of memory"), False),
        (ValueError("out of memory"), False),
    ],
    ids=str,
)
def test_what_says_that_memory_ran_out(error: BaseException, is_one: bool) -> None:
    assert is_out_of_memory(error) == is_one


def test_first_line_of_an_error_ends_a_sentence() -> None:
    assert first_line(ValueError("\nNot so.\nBecause.")) == "Not so"
    assert first_line(MemoryError()) == "MemoryError"
