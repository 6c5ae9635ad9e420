import pytest

from tests.history.histories import close_history, open_history


@pytest.fixture
def history(tmp_path):
    found = open_history(tmp_path)
    yield found
    close_history(found)
