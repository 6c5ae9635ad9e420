"""`pagedchat replay` as far as it goes without a terminal."""

import json
import subprocess
import sys

from pagedchat.cli import main as cli
from tests.trace.recorded import RecordedEngine


def test_the_summary_of_a_recording(tmp_path, capsys) -> None:
    run = RecordedEngine(tmp_path / "run.trace", num_blocks=64)
    run.view.labels = {1: "1 tale\x1b[2J"}
    run.ask(1, 20)
    run.run(40)
    run.recorder.close()
    assert cli.main(["replay", str(tmp_path / "run.trace"), "--summary"]) == 0
    text = capsys.readouterr().out
    assert "steps     0 to 40, 40 reports" in text
    assert "chats     1 tale\n" in text
    assert "state     whole" in text
    (tmp_path / "cut.trace").write_bytes((tmp_path / "run.trace").read_bytes()[:-9])
    assert cli.main(["replay", str(tmp_path / "cut.trace"), "--summary", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["damage"] == "The file was cut after step 40."
    assert (summary["whole"], summary["last_step"], summary["seconds"]) == (False, 40, 1.95)
    assert summary["chats"] == {"1": "1 tale\x1b[2J"}
    assert summary["bytes_per_step"] == round(summary["num_bytes"] / 40, 1)


def test_a_replay_needs_a_terminal(tmp_path, capsys) -> None:
    RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
    assert cli.main(["replay", str(tmp_path / "run.trace")]) == 2
    assert "For its figures use --summary." in capsys.readouterr().err


def test_a_replay_loads_no_torch(tmp_path) -> None:
    RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
    check = "import sys, pagedchat.tui.replay.app, pagedchat.cli.replay; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_a_replay_has_the_settings_of_a_file(tmp_path, monkeypatch) -> None:
    from pagedchat.tui.kit import terminal_app

    RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
    settings = tmp_path / "config.toml"
    settings.write_text('ascii = true\ntheme = "nord"\n[keymap]\ninspector.goto = "G"\n')
    monkeypatch.setenv("PAGEDCHAT_CONFIG", str(settings))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = []
    monkeypatch.setattr(terminal_app, "run_on_terminal", lambda app: shown.append(app) or 0)
    assert cli.main(["replay", str(tmp_path / "run.trace")]) == 0
    [app] = shown
    assert (app.ascii, app.theme, app.keys) == (True, "nord", {"inspector.goto": "G"})
