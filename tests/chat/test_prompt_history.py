from pagedchat.chat.prompt_history import MAX_PROMPTS, PromptHistory, default_path


def test_prompts_are_there_in_the_next_run(tmp_path):
    path = tmp_path / "state" / "history.jsonl"
    PromptHistory(path).add("one\ntwo")
    assert list(PromptHistory(path)) == ["one\ntwo"]


def test_without_a_file_prompts_are_kept_for_this_run():
    history = PromptHistory()
    history.add("kept")
    assert list(history) == ["kept"]
    assert list(PromptHistory()) == []


def test_empty_and_repeated_prompts_are_left_out(tmp_path):
    history = PromptHistory(tmp_path / "history.jsonl")
    for prompt in ("a", "a", "  ", "b", "a"):
        history.add(prompt)
    assert list(history) == ["a", "b", "a"]


def test_history_is_bounded_in_memory_and_on_disk(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'{{"text": "{index}"}}\n' for index in range(3 * MAX_PROMPTS)))
    history = PromptHistory(path)
    assert len(history) == MAX_PROMPTS
    assert history[-1] == str(3 * MAX_PROMPTS - 1)
    assert len(path.read_text().splitlines()) == MAX_PROMPTS


def test_nobody_else_may_read_it(tmp_path):
    path = tmp_path / "state" / "history.jsonl"
    PromptHistory(path).add("a secret")
    assert [path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777] == [0o600, 0o700]
    path.write_text("".join(f'{{"text": "{index}"}}\n' for index in range(3 * MAX_PROMPTS)))
    path.chmod(0o644)
    assert len(PromptHistory(path)) == MAX_PROMPTS  # rewritten, since it was too long
    assert path.stat().st_mode & 0o777 == 0o600


def test_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"text": "good"}\nnonsense\n{"text": 3}\n[]\n\xff\xfe\n')
    assert list(PromptHistory(path)) == ["good"]


def test_a_file_that_cannot_be_written_is_no_error(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    history = PromptHistory(blocker / "history.jsonl")
    history.add("kept")
    assert list(history) == ["kept"]


def test_default_path_is_the_program_s_own():
    assert default_path().name == "prompt_history.jsonl"
    assert "pagedchat" in default_path().parts


def test_a_file_that_others_could_read_is_closed_as_soon_as_it_is_read(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"text": "old"}\n')
    path.chmod(0o644)
    assert PromptHistory(path)[0] == "old"
    assert path.stat().st_mode & 0o777 == 0o600
