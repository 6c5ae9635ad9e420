"""Which of a repository's GGUF models a name means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.errors import ModelError
from pagedchat.gguf_choice import MOST_SHOWN, find_gguf, ggufs_in, no_such_gguf, typed_name
from pagedchat.gguf_names import GgufNames
from pagedchat.hub_names import HubName, hub_name

USUAL = [f"n-{tag}.gguf" for tag in ("Q2_K", "Q4_K_M", "Q4_K_S", "Q6_K", "Q8_0", "BF16")]
LARGE = [
    *(f"Q4_K_M/n-Q4_K_M-0000{part}-of-00002.gguf" for part in (1, 2)),
    *(f"Q8_0/n-Q8_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)),
]
PLACES = st.sampled_from(("", "Q4_K_M/", "Q8_0/", "old/", "a/b/"))
STEMS = st.sampled_from(("n", "n-7B", "n-13B", "n.i1", "mmproj-n", "n-imatrix", "N_instruct"))
TAGS = st.sampled_from(
    ("", "-Q4_K_M", "-q4_k_m", "-UD-Q4_K_M", ".Q8_0", "_Q4_K", "-Q4_K", "-IQ4_XS", "-F16", "-mix", "-Q8_0-imat")
)
PARTS = st.sampled_from(("", "-00001-of-00001", "-00001-of-00002", "-00002-of-00002"))
REPOSITORIES = st.lists(
    st.tuples(PLACES, STEMS, TAGS, PARTS).map(lambda pieces: "".join(pieces) + ".gguf"), max_size=12, unique=True
)
ASKED = st.sampled_from(
    ("o/n", "o/n:Q4_K_M", "o/n:q4_k_m", "o/n:Q4_K", "o/n:Q8_0", "o/n:UD-Q4_K_M", "o/n:7b", "o/n:mix", "o/n/n.gguf")
)


def named(text: str) -> HubName:
    found = hub_name(text)
    assert found is not None
    return found


def chosen(text: str, files: list[str], *, loosely: bool = True) -> str | None:
    found = find_gguf(named(text), ggufs_in(files), loosely=loosely)
    return found and found.files[0]


def refusal(text: str, files: list[str]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        find_gguf(named(text), ggufs_in(files))
    return caught.value


@pytest.mark.parametrize("tag", ["Q4_K_M", "q4_k_m", "Q4_k_M"])
def test_a_tag_in_any_letters(tag: str) -> None:
    assert chosen(f"o/n:{tag}", USUAL) == "n-Q4_K_M.gguf"
    assert chosen(f"o/n:{tag}", LARGE) == LARGE[0]
    assert chosen(f"o/n:{tag}", ["n.q4_k_m.gguf", "n.q8_0.gguf"]) == "n.q4_k_m.gguf"
    assert chosen(f"o/n:{tag}", ["n_q4_k_m.gguf", "n_q4_0.gguf"]) == "n_q4_k_m.gguf"


def test_a_tag_may_stand_in_the_folder_alone() -> None:
    assert chosen("o/n:Q8_0", ["Q4_K_M/n.gguf", "Q8_0/n.gguf"]) == "Q8_0/n.gguf"


def test_a_tag_that_is_there_goes_before_longer_ones() -> None:
    assert chosen("o/n:Q4_K", ["n-Q4_K.gguf", "n-Q4_K_M.gguf"]) == "n-Q4_K.gguf"
    assert chosen("o/n:Q4_K_M", ["n-UD-Q4_K_M.gguf", "n-Q4_K_M.gguf"]) == "n-Q4_K_M.gguf"
    assert chosen("o/n:UD-Q4_K_M", ["n-UD-Q4_K_M.gguf", "n-Q4_K_M.gguf"]) == "n-UD-Q4_K_M.gguf"


def test_a_piece_of_a_tag_counts_where_it_is_nobodys_own() -> None:
    assert chosen("o/n:Q4_K", ["n-Q4_K_M.gguf", "n-Q8_0.gguf"]) == "n-Q4_K_M.gguf"
    assert chosen("o/n:Q4_K", ["n-Q4_K_M.gguf", "n-Q8_0.gguf"], loosely=False) is None
    assert chosen("o/n:Q4_K_XL", ["n-UD-Q4_K_XL.gguf"]) == "n-UD-Q4_K_XL.gguf"
    assert chosen("o/n:Q4_K_M", ["n-UD-Q4_K_M.gguf"], loosely=False) is None


def test_other_words_of_a_name_are_tags_too() -> None:
    sizes = ["n-7B-Q4_0.gguf", "n-13B-Q4_0.gguf"]
    assert chosen("o/n:7b", sizes) == "n-7B-Q4_0.gguf"
    assert chosen("o/n:13B-Q4_0", sizes) == "n-13B-Q4_0.gguf"
    assert chosen("o/n:gguf", sizes) is None
    assert chosen("o/n:00001", LARGE) is None


def test_a_piece_that_is_in_several_is_asked_about() -> None:
    error = refusal("o/n:Q4_K", USUAL)
    assert error.message == "o/n:Q4_K can be 2 GGUF models."
    assert error.hint == "Name one of them: o/n:Q4_K_M or o/n:Q4_K_S."


def test_models_with_the_same_tag_are_asked_about_by_their_files() -> None:
    error = refusal("o/n:Q4_0", ["n-7B-Q4_0.gguf", "n-13B-Q4_0.gguf"])
    assert error.hint == "Name one of them: o/n/n-13B-Q4_0.gguf or o/n/n-7B-Q4_0.gguf."


@pytest.mark.parametrize("file", LARGE[2:])
def test_a_file_by_its_path_whichever_part_it_is(file: str) -> None:
    assert chosen(f"o/n/{file}", LARGE) == LARGE[2]
    assert chosen(f"o/n/{file.rpartition('/')[2]}", LARGE) is None


def test_without_a_tag_the_only_one_or_the_usual_ones() -> None:
    assert chosen("o/n", ["n-Q2_K.gguf", "mmproj-n-F16.gguf", "n-imatrix.gguf", "README.md"]) == "n-Q2_K.gguf"
    assert chosen("o/n", USUAL) == "n-Q4_K_M.gguf"
    assert chosen("o/n", [file for file in USUAL if "Q4_K_M" not in file]) == "n-Q8_0.gguf"
    assert chosen("o/n", []) is None


def test_without_a_tag_and_without_the_usual_ones_it_is_asked() -> None:
    error = refusal("o/n", [f"n-{tag}.gguf" for tag in ("Q2_K", "Q3_K_M", "Q4_0", "Q5_K_M", "Q6_K", "BF16")])
    assert error.message == "o/n can be 6 GGUF models."
    assert error.hint == "Name one of them: o/n:Q3_K_M, o/n:Q5_K_M, o/n:Q2_K, o/n:Q4_0 or another."


def test_what_is_not_there_is_said_with_what_is_nearest() -> None:
    error = no_such_gguf(named("o/n:Q4_K_X"), ggufs_in(USUAL))
    assert error.message == "o/n has no GGUF model called Q4_K_X."
    assert error.hint == "It has o/n:Q4_K_M, o/n:Q4_K_S, o/n:Q2_K, o/n:Q6_K and 2 more."
    error = no_such_gguf(named("o/n/m.gguf"), ggufs_in(["n-Q4_0.gguf"]))
    assert (error.message, error.hint) == ("o/n has no GGUF model called m.gguf.", "It has o/n:Q4_0.")
    assert no_such_gguf(named("o/n:Q4_0"), []).message == "o/n has no GGUF model."


def test_what_cannot_be_typed_is_no_choice() -> None:
    odd = ["../n.gguf", "/n.gguf", "a//n.gguf", "a\\n.gguf", "a:n.gguf", "\x1b[2J.gguf", "n" * 600 + ".gguf"]
    assert ggufs_in(odd) == []


@given(REPOSITORIES, ASKED, st.booleans())
def test_a_choice_is_one_of_them_or_names_some_that_are(files: list[str], text: str, loosely: bool) -> None:
    models = ggufs_in(files)
    try:
        found = find_gguf(named(text), models, loosely=loosely)
        error = None if found else no_such_gguf(named(text), models)
    except ModelError as raised:
        found, error = None, raised
    assert found is None or found in models
    if error is not None:
        listed = [word.strip(".,") for word in error.hint.split() if word.startswith(("o/n:", "o/n/"))]
        assert len(listed) == min(len(models), MOST_SHOWN) or "can be" in error.message
        assert all(find_gguf(named(name), models) in models for name in listed)


@given(REPOSITORIES)
def test_the_name_to_be_typed_means_the_model(files: list[str]) -> None:
    models = ggufs_in(files)
    names = [typed_name("o/n", model, models) for model in models]
    assert len(set(names)) == len(names)
    for name, model in zip(names, models, strict=True):
        assert find_gguf(named(name), models, loosely=False) == model


@pytest.mark.parametrize(
    ("file", "tag"),
    [
        ("n-Q4_K_M.gguf", "Q4_K_M"), ("n.q4_k_m.GGUF", "Q4_K_M"), ("n_q8_0.gguf", "Q8_0"),
        ("n-UD-IQ1_S.gguf", "UD-IQ1_S"),
        ("n-f16.gguf", "F16"), ("n-fp16.gguf", "FP16"), ("n-BF16-00001-of-00009.gguf", "BF16"),
        ("IQ4_XS/n.gguf", "IQ4_XS"),
        ("n-Q4_K_M-imat.gguf", "Q4_K_M"), ("n-mxfp4_moe.gguf", "MXFP4_MOE"), ("n-4k-q4.gguf", "Q4"),
        ("n-TQ1_0.gguf", "TQ1_0"),
        ("Qwen3-8B.gguf", ""), ("model.gguf", ""), ("n-00001-of-00002.gguf", ""), ("seq4_0.gguf", ""),
        ("n-Q4_0é.gguf", "Q4_0"),
    ],
)  # fmt: skip
def test_how_weights_are_stored_stands_in_the_name(file: str, tag: str) -> None:
    assert GgufNames((file,), 1).tag == tag
