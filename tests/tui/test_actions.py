"""The keys."""


def test_no_two_actions_share_a_key():
    from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, PALETTE

    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
    keys = [key for action in actions for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))
    assert not {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+b", "ctrl+a", "f10", "f11"} & set(keys)
