"""Servers of the settings file: what is read, what is refused with its line, and that no key is ever printed."""

import pytest

from pagedchat.cli.options import _chat_parser
from pagedchat.cli.settings import with_settings
from pagedchat.errors import InvalidValueError
from pagedchat.remote.openai.address import ServerAddress

FILE = """
server = "lab"

[servers.lab]
url = "http://lab:8000"
api_key_env = "LAB_KEY"
timeout = 30
kind = "vllm"

[servers.cloud]
url = "https://cloud.example/v1"
model = "org/large"
"""


@pytest.fixture
def read(tmp_path):
    def read_all(text, *argv):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return with_settings(_chat_parser(), ["--config", str(path), *argv], {})

    return read_all


def test_servers_are_named_with_where_their_keys_are(read):
    args = read(FILE)
    assert args.servers["lab"] == ServerAddress(
        "lab", "http://lab:8000/v1", "", "LAB_KEY", 30, "vllm", is_named=True
    )
    assert args.servers["cloud"].model == "org/large"
    assert args.server == "lab"
    assert read("sessions = 2").servers == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("servers = 3", "line 1: servers is a table, not 3."),
        ('[servers]\nlab = "x"', "line 2: servers.'lab' is no table."),
        ('[servers.local]\nurl = "x"', "a server cannot be called 'local'."),
        ('[servers."a b"]\nurl = "x"', "a server cannot be called 'a b'."),
        ("[servers.lab]\nmodel = 'm'", "servers.lab has no url."),
        ("[servers.lab]\nurl = 3", "line 2: url is 3."),
        ("[servers.lab]\nurl = 'ftp://x'", "url is 'ftp://x': servers speak http or https."),
        ("[servers.lab]\nurl = 'x'\ntimeout = 0", "timeout is 0."),
        ("[servers.lab]\nurl = 'x'\nkind = 'vlm'", "line 3: kind is 'vlm'."),
        ("[servers.lab]\nurl = 'x'\nmodle = 'm'", "line 3: servers have no 'modle'. Did you mean model?"),
        ("[servers.lab]\nurl = 'x'\napi_key = 'sk-secret'", "line 3: keys are not kept in the settings file."),
        ("[servers.lab]\nurl = 'x'\napi_key_env = 'sk-secret'", "api_key_env is the name of a variable"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_its_line_and_without_a_key(read, text, said):
    with pytest.raises(InvalidValueError) as error:
        read(text)
    assert said in error.value.message
    assert "secret" not in str(error.value)


def test_what_holds_is_printed_as_it_is_written(read, capsys, tmp_path):
    with pytest.raises(SystemExit):
        read(FILE, "--print-config")
    printed = capsys.readouterr().out
    assert '[servers.lab]\nurl = "http://lab:8000/v1"\napi_key_env = "LAB_KEY"' in printed
    again = read(printed.replace("# ", "# "))
    assert again.servers == read(FILE).servers
