import pickle

import pytest

from pagedchat.errors import (
    DeviceError,
    InvalidValueError,
    KernelCompileError,
    KernelError,
    ModelError,
    PagedChatError,
    RequestError,
)


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
