"""What is said of an engine's settings when the next one is ready."""

import pytest

from pagedchat.view.sentences.left_behind import NOTHING, LeftBehind, carried_over


def test_an_engine_of_which_nothing_was_asked_leaves_nothing_to_say():
    assert carried_over(NOTHING) == []


@pytest.mark.parametrize(
    ("left", "sentences"),
    [
        (LeftBehind(limit=40), "The engine runs again. As before, the limit is 40."),
        (LeftBehind(paused=True, pace=0.5),
         "The engine runs again. As before, it is paused and a step takes at least 500 ms."),
        (LeftBehind(num_pins=2), "The engine runs again. 2 pins went with the old engine's blocks."),
    ],
)  # fmt: skip
def test_what_is_set_again_and_what_is_not(left, sentences):
    [notice] = carried_over(left)
    assert (notice.message, notice.failed) == (sentences, False)
