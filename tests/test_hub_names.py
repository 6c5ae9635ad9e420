"""What a name means on the hub."""

import pytest

from pagedchat.hub_names import HubName, hub_name

FILE = "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf"


@pytest.mark.parametrize("before", ["", "hf.co/", "huggingface.co/", "https://huggingface.co/", "https://hf.co/"])
def test_a_model_a_tag_and_a_file(before: str) -> None:
    assert hub_name(f"{before}Qwen/Qwen2.5-0.5B") == HubName(f"{before}Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B")
    assert hub_name(f"{before}o/n:q4_k_m") == HubName(f"{before}o/n:q4_k_m", "o/n", tag="q4_k_m")
    assert hub_name(f"{before}o/n/{FILE}") == HubName(f"{before}o/n/{FILE}", "o/n", file=FILE)


def test_old_models_have_no_owner() -> None:
    assert hub_name("gpt2") == HubName("gpt2", "gpt2")
    assert hub_name("hf.co/gpt2") == HubName("hf.co/gpt2", "hf.co/gpt2")


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "/", "o/", "/n", "./n", "../n", "~/n", "o/n:", "o/n:a b", "o/n:a:b", "o/n:../d", "a/b:c/../d",
        "n:Q4_0", "o/n/d", "o/n/d/", "o/n/../m.gguf", "o/n//m.gguf", "o/n/./m.gguf", "o/n/d:e.gguf",
        "o/n/m.gguf:Q4_0", "o/n/d\\m.gguf", "o/n/\x1b[2J.gguf", "o/n/\0.gguf", "C:/models/m.gguf",
        "C:m.gguf", "C:\\m.gguf", "o--n/m", "o/n..m", "o/n.git", "é/n", "o/" + "n" * 97,
        "o/n:" + "t" * 97, "o/n/" + "m" * 600 + ".gguf", "o/n/.gguf", "o/n/d/.m.gguf", "no such model",
    ],
)  # fmt: skip
def test_what_can_be_no_name_there(text: str) -> None:
    assert hub_name(text) is None
