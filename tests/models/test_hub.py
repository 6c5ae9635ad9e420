"""The way to a model: a folder, the cache, and a hub that is a small server on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pagedchat.errors import ModelError
from pagedchat.models.hub import find_config, find_model, find_tokenizer
from tests.helpers_models import make_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Prints what was found and what was reported, as JSON; in a process of its own, since the hub's library reads its
# settings once.
ASK = """
import json, sys
from pagedchat.errors import ModelError
from pagedchat.models.hub import find_config, find_model, find_tokenizer
reports = []
others = {"tokenizer": find_tokenizer, "config": lambda name, _report: find_config(name)}
find = others[sys.argv[2]] if sys.argv[2:] else find_model
try:
    folder = find(sys.argv[1], lambda *report: reports.append(report))
    folder = folder.parent if folder.is_file() else folder
    print(json.dumps({"files": sorted(p.name for p in folder.iterdir()), "reports": reports}))
except ModelError as error:
    print(json.dumps({"message": error.message, "hint": error.hint}))
"""


@dataclass
class Hub:
    url: str
    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    status: int = 200

    def ask(self, home: Path, name: str = "some/model", *more: str, offline: bool = False) -> dict[str, Any]:
        environment = os.environ | {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": str(int(offline)),
        }
        environment |= {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
        command = [sys.executable, "-c", ASK, name, *more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = make_checkpoint(tmp_path / "origin", "opt")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"x" * 1000,
        "README.md": b"text",
        "flax_model.msgpack": b"y",
    }
    state = Hub("", files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self, with_body: bool) -> None:
            path = self.path.split("?")[0]
            state.asked.append(path)
            headers, body = {"X-Repo-Commit": COMMIT}, b""
            status = state.status
            if status != 200:
                pass
            elif path.startswith("/api/models/some/model"):
                siblings = [{"rfilename": name, "size": len(data)} for name, data in state.files.items()]
                body = json.dumps({"id": "some/model", "sha": COMMIT, "siblings": siblings}).encode()
            elif path.startswith("/some/model/resolve/main/"):
                name = path.removeprefix("/some/model/resolve/main/")
                body = state.files[name]
                headers["ETag"] = f'"{len(body)}-{name.replace("/", "-")}"'
            else:
                status, headers["X-Error-Code"] = 404, "RepoNotFound"
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def test_download_takes_what_is_needed_and_tells_how_it_goes(hub: Hub, tmp_path: Path) -> None:
    answer = hub.ask(tmp_path / "home")
    assert answer["files"] == ["config.json", "model.safetensors", "tokenizer.json"]
    total = sum(len(hub.files[name]) for name in answer["files"])
    done = [report[1] for report in answer["reports"]]
    assert done == sorted(done)
    assert answer["reports"][-1] == ["model.safetensors", total, total]
    assert {report[2] for report in answer["reports"]} == {total}

    hub.asked.clear()
    again = hub.ask(tmp_path / "home")
    assert (again["files"], again["reports"], hub.asked) == (answer["files"], [], [])


def test_bin_is_taken_where_there_is_nothing_else(hub: Hub, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    assert "pytorch_model.bin" in hub.ask(tmp_path / "home")["files"]


def test_tokenizer_alone(hub: Hub, tmp_path: Path) -> None:
    assert hub.ask(tmp_path / "home", "some/model", "tokenizer")["files"] == ["config.json", "tokenizer.json"]


def test_config_alone(hub: Hub, tmp_path: Path) -> None:
    assert hub.ask(tmp_path / "home", "some/model", "config")["files"] == ["config.json"]
    hub.asked.clear()
    assert hub.ask(tmp_path / "home", "some/model", "config", offline=True)["files"] == ["config.json"]
    assert hub.asked == []
    assert (
        "model hub cannot be reached"
        in hub.ask(tmp_path / "other", "some/model", "config", offline=True)["message"]
    )
    assert "no model on the hub" in hub.ask(tmp_path / "home", "some/other", "config")["message"]


def test_download_that_broke_off_is_taken_up_again(hub: Hub, tmp_path: Path) -> None:
    whole = hub.files.pop("model.safetensors"), hub.files.pop("pytorch_model.bin")
    hub.ask(tmp_path / "home")
    hub.files["model.safetensors"] = whole[0]
    assert "model.safetensors" in hub.ask(tmp_path / "home")["files"]


def test_a_gguf_model_in_several_files_is_fetched_and_used_without_the_hub(hub: Hub, tmp_path: Path) -> None:
    parts = {f"Q8_0/m-Q8_0-0000{number}-of-00002.gguf": b"GGUF" * 99 * number for number in (1, 2)}
    hub.files = {"m-Q2_K.gguf": b"GGUF", "config.json": b"{}", **parts}
    answer = hub.ask(tmp_path / "home", "some/model:q8_0")
    assert answer["files"] == sorted(name.removeprefix("Q8_0/") for name in parts)
    total = sum(map(len, parts.values()))
    assert answer["reports"][-1] == [list(parts)[1], total, total]
    hub.asked.clear()
    for name in ("some/model:Q8_0", "some/model"):
        again = hub.ask(tmp_path / "home", name, offline=True)
        assert (again["files"], again["reports"], hub.asked) == (answer["files"], [], [])


def test_model_that_does_not_exist(hub: Hub, tmp_path: Path) -> None:
    for name in ("some/other", "some/other:Q4_0", "no such model"):
        answer = hub.ask(tmp_path / "home", name)
        assert answer["message"] == f"There is no folder and no model on the hub called {name}."
        assert "spelling" in answer["hint"]


def test_hub_that_fails_or_cannot_be_reached(hub: Hub, tmp_path: Path) -> None:
    hub.status = 400
    assert "hub refused some/model" in hub.ask(tmp_path / "home")["message"]
    hub.url = "http://127.0.0.1:9"
    for offline in (False, True):
        answer = hub.ask(tmp_path / "home", offline=offline)
        assert "the model hub cannot be reached" in answer["message"]
        assert "folder" in answer["hint"]


def test_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_model(str(tmp_path)) == tmp_path
    assert find_tokenizer(str(tmp_path)) == tmp_path
    assert find_config(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "a/b/c"])
def test_folder_that_does_not_exist(name: str) -> None:
    with pytest.raises(ModelError, match="There is no folder"):
        find_model(name)


def test_gguf_file_that_does_not_exist() -> None:
    with pytest.raises(ModelError, match=r"There is no file ./m-00001-of-00003.gguf\.") as caught:
        find_model("./m-00001-of-00003.gguf")
    assert caught.value.hint.startswith("Give an existing file")


def test_file_in_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(ModelError, match="is a file, not a folder"):
        find_model(str(path))


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-of-this-name/x", "/" + "a" * 5000])
def test_name_that_cannot_be_a_folder(name: str) -> None:
    with pytest.raises(ModelError, match="cannot be looked for") as caught:
        find_model(name)
    assert len(caught.value.message) < 450
