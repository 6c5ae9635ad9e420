import stat

from pagedchat.remote.client_key import client_key


def test_the_key_is_made_once_and_nobody_else_reads_it(tmp_path):
    path = tmp_path / "state" / "client-key"
    key = client_key(path)
    assert len(key) >= 20
    assert client_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_key_is_replaced(tmp_path):
    path = tmp_path / "client-key"
    for nonsense in (b"", b"short", b"\xff" * 40, b"x" * 1000):
        path.write_bytes(nonsense)
        assert len(client_key(path)) >= 20
        assert client_key(path) == path.read_text().strip()


def test_where_none_can_be_kept_there_is_one_all_the_same(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert len(client_key(tmp_path / "file" / "client-key")) >= 20
