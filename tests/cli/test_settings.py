"""The command line over the environment over the settings file; what --print-config prints."""

import re
import tomllib
from pathlib import Path

import pytest

from pagedchat.cli import main as cli
from pagedchat.cli.engine_options import engine_config, sampling_overrides
from pagedchat.cli.known_settings import OF_ONE_RUN, known_settings
from pagedchat.cli.options import _chat_parser
from pagedchat.cli.settings import with_settings
from pagedchat.cli.themes import chosen_theme
from pagedchat.errors import InvalidValueError

EACH = """
json = true
sessions = 3
system = "Be brief."
when-full = "drop"
ephemeral = true
markdown = "off"
thoughts = "open"
raw = true
trace = "run.trace"
ascii = true
theme = "nord"
metrics-port = 0
server = ["lab"]
api-key-env = "LAB_KEY"
model = "m"
beside = "n"
tokenizer = "t"
device = "cpu"
dtype = "float32"
quantize = "int8"
attention-backend = "torch"
model-implementation = "native"
tensor-parallel-size = 2
batch-invariant = true
logprobs = 3
temperature = 0
top-p = 0.5
top_k = 5
min-p = 0.1
repetition-penalty = 1.5
presence-penalty = 1
frequency-penalty = -1
max-tokens = 10
stop = ["a", "b"]
seed = 4
block-size = 32
num-blocks = 100
kv-cache-memory = "1MiB"
gpu-memory-utilization = 0.5
swap-space = 1024
kv-cache-dtype = "int8"
no-prefix-caching = true
max-num-seqs = 3
max-model-len = 512
max-num-batched-tokens = 64
preemption-mode = "swap"
speculate = "lookup"
kv-events-endpoint = "tcp://*:5557"
kv-events-replay-endpoint = "tcp://*:5558"
kv-events-topic = "kv"
kv-events-buffer = 5
kv-events-hwm = 5
kv-events-encoding = "array"
kv-events-hashes = "bytes"
"""
"""Every setting, none as it is by default."""


@pytest.fixture
def read(tmp_path):
    """Settings of a file, of variables and of a command line."""

    def read_all(text="", *argv, **environ):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return with_settings(_chat_parser(), ["--config", str(path), *argv], environ)

    return read_all


def refused(read, *args, **environ):
    with pytest.raises(InvalidValueError) as caught:
        read(*args, **environ)
    assert "\n" not in caught.value.message
    return caught.value.message


# --- what holds ------------------------------------------------------------------------------------------


def test_every_option_that_is_not_of_one_run_is_a_setting():
    parser = _chat_parser()
    shown = {action.option_strings[-1] for action in parser._actions if "==SUPPRESS==" not in (action.help or "")}
    of_one_run = {action.option_strings[-1] for action in parser._actions if action.dest in OF_ONE_RUN}
    assert {f"--{setting.name}" for setting in known_settings(parser)} == shown - of_one_run


def test_every_setting_of_a_file_reaches_what_it_sets(read):
    assert len(tomllib.loads(EACH)) == len(known_settings(_chat_parser()))
    args, before = read(EACH), read()
    same = [setting.dest for setting in known_settings(_chat_parser())
            if getattr(args, setting.dest) == getattr(before, setting.dest)]  # fmt: skip
    assert same == []
    config, overrides = engine_config(args), sampling_overrides(args)
    assert (config.cache.kv_cache_memory, config.cache.enable_prefix_caching, config.seed) == (1 << 20, False, 4)
    assert (overrides.top_k, overrides.stop, overrides.temperature) == (5, ["a", "b"], 0)
    assert args.trace == Path("run.trace")


def test_the_command_line_is_over_the_environment_is_over_the_file(read):
    file = "sessions = 2\ntop-k = 2\nseed = 2\n"
    args = read(file, "--sessions", "4", PAGEDCHAT_SESSIONS="3", PAGEDCHAT_TOP_K="3")
    assert (args.sessions, args.top_k, args.seed) == (4, 3, 2)


def test_what_a_file_switches_on_the_command_line_switches_off(read):
    file = "raw = true\nno-prefix-caching = true\nbatch-invariant = true\n"
    args = read(file, "--no-raw", "--prefix-caching", "--no-batch-invariant")
    assert (args.raw, args.enable_prefix_caching, args.batch_invariant) == (False, True, False)


@pytest.mark.parametrize(("word", "means"), [("1", True), ("Yes", True), ("off", False), ("false", False)])
def test_a_switch_of_the_environment(read, word, means):
    assert read("", PAGEDCHAT_RAW=word).raw is means


def test_an_empty_variable_sets_nothing(read):
    assert read("sessions = 2", PAGEDCHAT_SESSIONS="").sessions == 2


def test_the_file_may_be_named_by_a_variable(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("sessions = 5")
    assert with_settings(_chat_parser(), [], {"PAGEDCHAT_CONFIG": str(path)}).sessions == 5


# --- what cannot be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\ntemprature = 1", "line 2: there is no setting 'temprature'. Did you mean temperature?"),
        ("TOP_P = 1", "line 1: there is no setting 'TOP_P'. Did you mean top-p?"),
        ("[engine]\nseed = 1", "line 2: there is no setting 'engine'."),
        ("prompt = 'x'", "line 1: there is no setting 'prompt'."),
        ('temperature = "warm"', "line 1: temperature is 'warm'."),
        ("seed = 1\ntemperature = true", "line 2: temperature is True."),
        ("sessions = 2.0", "line 1: sessions is 2.0."),
        ("raw = 1", "line 1: raw is 1."),
        ("stop = [1]", "line 1: stop is [1]."),
        ("model = 3", "line 1: model is 3."),
        ("temperature = nan", "line 1: temperature is nan."),
        ("top-p = 2", "line 1: top_p is 2."),
        ("max-tokens = 0", "line 1: max_tokens is 0."),
        ("sessions = 10", "line 1: --sessions: '10' is not a number from 1 to 9."),
        ("metrics-port = -1", "line 1: --metrics-port: '-1' is not a port from 0 to 65535."),
        ("block-size = 17", "line 1: --block-size is 17."),
        ("num-blocks = 0", "line 1: --num-blocks is 0."),
        ("gpu-memory-utilization = 0", "line 1: --gpu-memory-utilization is 0."),
        ("swap-space = -1", "line 1: --swap-space: "),
        ('kv-cache-memory = "lots"', "line 1: --kv-cache-memory: "),
        ("max-num-seqs = 0", "line 1: --max-num-seqs is 0."),
        ("max-num-batched-tokens = 99999999", "line 1: --max-num-batched-tokens is 99999999."),
        ('when-full = "explode"', "line 1: --when-full is 'explode'."),
        ('device = "tpu"', "line 1: --device is 'tpu'."),
        ('theme = "nerd"', "line 1: --theme is 'nerd'. Did you mean nord?"),
        ("keymap = 3", "line 1: keymap is a table of keys, not 3."),
        ("[keymap]\nchat.nu = 'f5'", "line 2: there is no action 'chat.nu'. Did you mean chat.new?"),
        ("[keymap]\nchat.new = 'cntrl+x'", "line 2: chat.new cannot have the key 'cntrl+x'. Did you mean ctrl+x?"),
        ("[keymap]\nchat.new = 'x'", "line 2: chat.new cannot have the key 'x', which writes a letter."),
        ("[keymap]\nchat.new = ''", "line 2: 'chat.new' is ''."),
        ("[keymap]\nchat.new = 'ctrl+i'", "line 2: chat.new cannot have the key 'ctrl+i'."),
        ("[keymap]\nchat.new = 'f9'", "line 2: the key 'f9' has two actions, chat.new and chat.fork."),
    ],
)
def test_a_setting_that_cannot_be_names_file_and_line(read, text, message):
    assert f"config.toml, {message}" in refused(read, text)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PAGEDCHAT_SESSIONS": "many"}, "PAGEDCHAT_SESSIONS: sessions is 'many'."),
        ({"PAGEDCHAT_RAW": "maybe"}, "PAGEDCHAT_RAW: raw is 'maybe'."),
        ({"PAGEDCHAT_TEMPERATURE": "-1"}, "PAGEDCHAT_TEMPERATURE: temperature is -1."),
    ],
)
def test_a_variable_that_cannot_be_is_named(read, environ, message):
    assert refused(read, "", **environ) == message


def test_bounds_hold_on_the_command_line_too(read):
    assert refused(read, "", "--top-p", "2") == "top_p is 2.0."
    assert refused(read, "", "--theme", "nerd") == "--theme is 'nerd'. Did you mean nord?"


def test_a_file_that_was_named_must_be_there(tmp_path):
    with pytest.raises(InvalidValueError, match="cannot be read"):
        with_settings(_chat_parser(), ["--config", str(tmp_path / "none")], {})


def test_a_setting_that_cannot_be_ends_the_program_with_a_sentence_and_changes_nothing(tmp_path, capsys):
    path = tmp_path / "config.toml"
    path.write_text("temprature = 1\n")
    assert cli.main(["--config", str(path)]) == cli.EXIT_USAGE
    assert "there is no setting 'temprature'" in capsys.readouterr().err
    assert path.read_text() == "temprature = 1\n"


# --- what is printed ------------------------------------------------------------------------------------


def print_config(read, capsys, *args, **environ):
    with pytest.raises(SystemExit) as ended:
        read(*args, "--print-config", **environ)
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_print_config_says_where_each_value_is_from(read, capsys):
    text = "top-k = 2\n[keymap]\nchat.fork = '^X'\n"
    out = print_config(read, capsys, text, "--seed", "5", PAGEDCHAT_SESSIONS="3", PAGEDCHAT_SESSSIONS="4")
    lines = [re.sub(r" +# (.*/)?", " # ", line) for line in out.splitlines()]
    assert {"top-k = 2 # config.toml, line 1", "seed = 5 # command line", "sessions = 3 # PAGEDCHAT_SESSIONS",
            "block-size = 16 # default", '"chat.fork" = "ctrl+x" # config.toml, line 3',
            '"chat.new" = "ctrl+n" # default'} <= set(lines)  # fmt: skip
    assert "# PAGEDCHAT_SESSSIONS is in the environment; no setting is called so." in out


def test_what_is_printed_can_be_saved_and_says_the_same(read, capsys):
    out = print_config(read, capsys, EACH + '[keymap]\n"inspector.zoom_in" = ["+", "x"]\n')
    first, again = read(EACH), read(out)
    again.keymap = {}
    names = [setting.dest for setting in known_settings(_chat_parser())]
    assert {name: getattr(again, name) for name in names} == {name: getattr(first, name) for name in names}


def test_which_colours_there_will_be_is_printed(read, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("pagedchat.cli.settings.remembered_path", lambda: tmp_path / "remembered.json")
    lines = [re.sub(" +", " ", line) for line in print_config(read, capsys, "", COLORFGBG="0;15").splitlines()]
    assert 'theme = "auto" # default: textual-light now' in lines
    (tmp_path / "remembered.json").write_text('{"theme": "nord"}')
    lines = [re.sub(" +", " ", line) for line in print_config(read, capsys, "").splitlines()]
    assert 'theme = "auto" # default: nord now' in lines


# --- colours --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "remembered", "colors", "theme"),
    [
        ("auto", None, "", "textual-dark"),
        ("auto", None, "0;15", "textual-light"),
        ("auto", None, "15;0", "textual-dark"),
        ("auto", "nord", "0;15", "nord"),
        ("auto", "gone", "", "textual-dark"),
        ("light", "nord", "", "textual-light"),
        ("dark", "nord", "0;15", "textual-dark"),
        ("gruvbox", "nord", "", "gruvbox"),
    ],
)
def test_the_colours_to_start_with(name, remembered, colors, theme):
    assert chosen_theme(name, remembered, {"COLORFGBG": colors}) == theme
