"""Servers by name and URL: what is read, what is refused, and that keys are nowhere."""

import pytest

from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.remote.openai.address import ServerAddress, server_address

LAB = ServerAddress("lab", "http://lab:8000/v1", "org/usual", "LAB_KEY", is_named=True)


@pytest.mark.parametrize(
    ("text", "url", "name", "model"),
    [
        ("localhost:8000", "http://localhost:8000/v1", "localhost:8000", ""),
        ("http://10.0.0.4:8000/v1/", "http://10.0.0.4:8000/v1", "10.0.0.4:8000", ""),
        ("https://host/api/v2#org/model", "https://host/api/v2", "host", "org/model"),
        ("[::1]:9000", "http://[::1]:9000/v1", "[::1]:9000", ""),
    ],
)
def test_a_url_is_completed(text, url, name, model):
    address = server_address(text, {})
    assert (address.url, address.name, address.model) == (url, name, model)
    assert server_address(address.text, {}) == address


def test_a_name_leads_to_the_settings_file_and_back():
    named = {"lab": LAB}
    assert server_address("lab", named) is LAB
    other = server_address("lab#org/other", named)
    assert (other.model, other.key_env, other.text) == ("org/other", "LAB_KEY", "lab#org/other")
    with pytest.raises(InvalidValueError, match="There is no server called 'lap'; there are 'lab'"):
        server_address("lap", named)


@pytest.mark.parametrize(
    "text", ["", "ftp://x", "http://", "http://a:b:c", "http://x:99999", "http://x\x1b[2J", "a b"]
)
def test_what_is_no_url_is_refused_without_escapes(text):
    with pytest.raises(InvalidValueError) as error:
        server_address(text, {})
    assert "\x1b" not in str(error.value)
    assert "--server" in str(error.value)


@pytest.mark.parametrize("text", ["http://user:secret@host/v1", "https://host/v1?key=secret"])
def test_a_key_in_a_url_is_refused_and_not_repeated(text):
    with pytest.raises(InvalidValueError) as error:
        server_address(text, {})
    assert "secret" not in str(error.value)
    assert "--api-key-env" in str(error.value)


def test_a_key_is_taken_from_its_variable_when_it_is_wanted():
    assert LAB.key({"LAB_KEY": " sk-1 "}) == "sk-1"
    assert ServerAddress("x", "http://x/v1").key({}) == ""
    with pytest.raises(PagedChatError, match="LAB_KEY, and that variable has nothing in it"):
        LAB.key({})
    with pytest.raises(PagedChatError, match="printable ASCII"):
        LAB.key({"LAB_KEY": "sk-\n1"})
    assert "sk" not in repr(LAB)


def test_figures_stand_beside_the_api_and_keys_in_the_clear_are_known():
    assert LAB.figures_url == "http://lab:8000/metrics"
    assert LAB.sends_key_in_the_clear
    assert not ServerAddress("x", "http://127.0.0.1:1/v1", key_env="K").sends_key_in_the_clear
    assert not ServerAddress("x", "https://x/v1", key_env="K").sends_key_in_the_clear
    assert not ServerAddress("x", "http://x/v1").sends_key_in_the_clear
