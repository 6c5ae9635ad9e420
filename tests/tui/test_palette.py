"""The palette lists all that keys do."""


def test_every_action_is_in_the_palette(make_app):
    from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS

    app = make_app()
    titles = {command.title for command in app.get_system_commands(app.chats)}
    assert {action.title for action in (*CHAT_ACTIONS, *APP_ACTIONS)} <= titles
