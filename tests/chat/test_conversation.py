"""What of a sequence the next prompt keeps. The invariant: the tokens always say exactly the text asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from pagedchat.chat.conversation import Conversation
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.turns import Turn
from pagedchat.errors import RequestError
from tests.fakes import BOS, CHAT_TEMPLATE, EOS, SPECIAL_TOKENS, byte_tokenizer

LINES = ["the cat sat on the mat", "the hat of the cat", "that hat is on the mat", "User: Assistant: hello there"]


def bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


BPE = bpe()
TOKENIZERS = {"bytes": byte_tokenizer(), "bpe": BPE}
MODEL, PLAIN = ChatTemplate(CHAT_TEMPLATE), ChatTemplate()


class Sequence:
    """A sequence and its conversation, brought from text to text as the engine does it."""

    def __init__(self, tokenizer: Tokenizer, add_bos: bool = False) -> None:
        self.tokenizer = tokenizer
        self.conversation = Conversation(tokenizer, add_bos)
        self.token_ids: list[int] = []

    def prompt(self, text: str) -> int:
        """Bring it to `text`; returns how many tokens were kept."""
        prompt = self.conversation.plan(text, self.token_ids)
        self.token_ids = self.token_ids[: prompt.num_kept] + prompt.token_ids
        self.conversation.set_prompt(prompt)
        return prompt.num_kept

    def reply(self, token_ids: list[int]) -> None:
        self.conversation.add_reply(self.token_ids, token_ids)
        self.token_ids = self.token_ids + token_ids

    def say(self, text: str) -> None:
        """A reply in as many tokens as possible: not the encoding that the tokenizer would choose."""
        self.reply([i for char in text for i in self.tokenizer.encode(char, add_special_tokens=False).ids])

    @property
    def text(self) -> str:
        return self.tokenizer.decode(self.token_ids, skip_special_tokens=False)


@pytest.fixture(params=TOKENIZERS, name="seq")
def _seq(request) -> Sequence:
    return Sequence(TOKENIZERS[request.param])


def turns(*texts: str) -> list[Turn]:
    return [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(texts)]


def end(seq: Sequence) -> list[int]:
    return [seq.tokenizer.token_to_id(EOS)]


def test_new_conversation_is_encoded_whole(seq):
    assert seq.prompt(MODEL.render(turns("the cat"))) == 0
    assert seq.text == "<|user|>the cat</s><|assistant|>"


@pytest.mark.parametrize("ended", [True, False], ids=["eos", "stopped by the user"])
def test_next_turn_keeps_every_token_that_was_generated(seq, ended):
    seq.prompt(MODEL.render(turns("the cat")))
    seq.say("the hat 🤗")
    if ended:
        seq.reply(end(seq))
    held = list(seq.token_ids)
    text = MODEL.render(turns("the cat", "the hat 🤗", "that mat"))
    assert seq.prompt(text) == len(held)
    assert seq.token_ids[: len(held)] == held
    assert seq.text == text


def test_asking_again_keeps_the_prompt_and_adds_nothing(seq):
    text = MODEL.render(turns("the cat"))
    seq.prompt(text)
    prompt_ids = list(seq.token_ids)
    seq.say("the hat")
    assert seq.prompt(text) == len(prompt_ids)
    assert seq.token_ids == prompt_ids


def test_going_on_with_an_ended_reply_drops_only_its_end(seq):
    seq.prompt(MODEL.render(turns("the cat")))
    seq.say("the hat")
    held = list(seq.token_ids)
    seq.reply(end(seq))
    assert seq.prompt(MODEL.render(turns("the cat", "the hat"))) == len(held)
    assert seq.token_ids == held


def test_edited_turn_keeps_what_is_before_it(seq):
    seq.prompt(MODEL.render(turns("the cat")))
    seq.say("the hat")
    before = list(seq.token_ids)
    seq.prompt(MODEL.render(turns("the cat", "the hat", "that mat")))
    seq.say("the mat")
    text = MODEL.render(turns("the cat", "the hat", "on the mat"))
    assert seq.prompt(text) >= len(before)
    assert seq.token_ids[: len(before)] == before
    assert seq.text == text


def test_stop_string_of_the_plain_transcript_is_kept_as_the_next_label(seq):
    seq.prompt(PLAIN.render(turns("the cat")))
    seq.say(" hello there\nUser:")
    held = len(seq.token_ids)
    assert seq.prompt(PLAIN.render(turns("the cat", "hello there", "that mat"))) == held
    assert seq.text == "User: the cat\nAssistant: hello there\nUser: that mat\nAssistant:"


def test_stop_string_cut_from_the_turn_is_rewound(seq):
    seq.prompt(MODEL.render(turns("the cat")))
    num_prompt = len(seq.token_ids)
    seq.say("the hat###")
    text = MODEL.render(turns("the cat", "the hat", "that mat"))
    assert seq.prompt(text) >= num_prompt
    assert seq.text == text


def test_template_that_trims_falls_back_to_common_tokens(seq):
    trimming = ChatTemplate(CHAT_TEMPLATE.replace("m['content']", "m['content'] | trim"))
    seq.prompt(trimming.render(turns("the cat")))
    num_prompt = len(seq.token_ids)
    seq.say("  the hat  ")
    text = trimming.render(turns("the cat", "  the hat  ", "that mat"))
    assert num_prompt <= seq.prompt(text) < len(seq.token_ids)
    assert seq.text == text


def test_rewound_sequence_is_known_up_to_the_cut(seq):
    seq.prompt(MODEL.render(turns("the cat")))
    num_prompt = len(seq.token_ids)
    seq.say("the hat")
    seq.token_ids = seq.token_ids[: num_prompt + 2]
    seq.conversation.rewind(num_prompt + 2)
    text = MODEL.render(turns("the cat", "the hat", "that mat"))
    assert seq.prompt(text) >= num_prompt
    assert seq.text == text


def test_fork_goes_its_own_way(seq):
    seq.prompt(MODEL.render(turns("the cat")))
    seq.say("the hat")
    twin = Sequence(seq.tokenizer)
    twin.conversation, twin.token_ids = seq.conversation.fork(), list(seq.token_ids)
    held = len(twin.token_ids)
    seq.prompt(MODEL.render(turns("on the mat")))
    assert twin.prompt(MODEL.render(turns("the cat", "the hat", "that mat"))) == held


@pytest.fixture
def with_bos() -> Tokenizer:
    return byte_tokenizer(add_bos=True)


def test_bos_stands_once_at_the_very_beginning(with_bos):
    seq = Sequence(with_bos, add_bos=True)
    seq.prompt(PLAIN.render(turns("a")))
    seq.say(" b")
    seq.prompt(PLAIN.render(turns("a", "b", "c")))
    assert seq.text == f"{BOS}User: a\nAssistant: b\nUser: c\nAssistant:"


def test_bos_in_the_text_is_not_doubled(with_bos):
    seq = Sequence(with_bos, add_bos=True)
    seq.prompt(f"{BOS}hello")
    assert seq.text == f"{BOS}hello"


def test_models_own_template_gets_no_bos_but_its_own(with_bos):
    seq = Sequence(with_bos, add_bos=False)
    seq.prompt("hello")
    assert seq.text == "hello"


def test_end_token_of_a_tokenizer_is_not_taken_for_bos(with_bos):
    with_bos.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}", special_tokens=[(BOS, 0), (EOS, 1)]
    )
    seq = Sequence(with_bos, add_bos=True)
    seq.prompt("hello")
    assert seq.text == f"{BOS}hello"


def test_tokenizer_that_changes_the_start_of_a_text_encodes_it_whole():
    tokenizer = byte_tokenizer()
    tokenizer.normalizer = normalizers.Prepend("_")
    seq = Sequence(tokenizer)
    seq.prompt("ab")
    seq.say("c")
    kept = seq.prompt("abcd")
    assert seq.token_ids == tokenizer.encode("abcd").ids
    assert kept == len(tokenizer.encode("ab").ids)


def test_text_that_cannot_be_encoded_is_a_request_error():
    seq = Sequence(Tokenizer(models.WordLevel({"a": 0}, unk_token="<unk>")))
    with pytest.raises(RequestError, match="cannot encode"):
        seq.prompt("b")


STEP = st.tuples(
    st.sampled_from(["reply", "ended", "again", "edit", "continue"]),
    st.text(st.sampled_from("the cat\n🤗 "), min_size=1, max_size=12),
)


@settings(deadline=None)
@given(st.sampled_from(sorted(TOKENIZERS)), st.lists(STEP, max_size=12))
def test_any_walk_holds_the_text_asked_for(name, steps):
    seq, texts = Sequence(TOKENIZERS[name]), ["the cat"]
    for action, text in steps:
        if action == "again" and len(texts) > 1:
            texts = texts[:-2] or ["on"]
        elif action == "edit":
            texts[-1 if len(texts) % 2 else -2] = text
        elif action == "continue" and len(texts) % 2 == 0:
            texts[-1] += text
        elif len(texts) % 2 == 0:
            texts.append(text)
        seq.prompt(MODEL.render(turns(*texts)))
        assert seq.text == MODEL.render(turns(*texts))
        if action in ("reply", "ended") and len(texts) % 2:
            seq.say(text)
            seq.reply(end(seq) if action == "ended" else [])
            texts.append(text)


# --- replies that begin with given tokens -----------------------------------------------------------------


def test_tokens_with_which_a_reply_begins_are_kept_as_far_as_they_are_held():
    tokenizer = byte_tokenizer()
    conversation = Conversation(tokenizer, add_bos=False)
    prompt = conversation.plan("Q: hi A:", [])
    conversation.set_prompt(prompt)
    held = [*prompt.token_ids, *tokenizer.encode(" hello", add_special_tokens=False).ids]
    conversation.add_reply(prompt.token_ids, held[len(prompt.token_ids) :])
    begun = tokenizer.encode(" help", add_special_tokens=False).ids
    again = conversation.plan("Q: hi A:", held, begun)
    assert again.num_kept == len(prompt.token_ids) + len(" hel")
    assert again.token_ids == begun[-1:]
    assert (again.num_begun, again.num_tokens) == (len(begun), len(prompt.token_ids))
    conversation.rewind(again.num_kept)
    conversation.set_prompt(again)
    conversation.add_reply(held[: again.num_tokens], begun)
    following = conversation.plan("Q: hi A: help Q:", [*prompt.token_ids, *begun])
    assert following.num_kept == len(prompt.token_ids) + len(begun)
