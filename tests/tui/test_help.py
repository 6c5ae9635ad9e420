"""The page of help."""


def test_help(snap_compare, make_still_app):
    assert snap_compare(make_still_app(), terminal_size=(120, 40), press=["f1"])
