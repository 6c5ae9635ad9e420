"""Where each token of a reply stands in its text, however the text is made."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.bundled import MODEL_FOLDER
from pagedchat.chat.replies import Reply
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence, TokenLogprobs
from pagedchat.events import packed, unpacked
from tests.fakes import byte_tokenizer
