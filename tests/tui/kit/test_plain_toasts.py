from textual.app import App
from textual.widgets._toast import Toast

from pagedchat.tui.kit.plain_toasts import PlainToasts


async def test_names_of_files_are_no_commands_to_the_terminal_and_no_markup() -> None:
    app: App[None] = PlainToasts()
    async with app.run_test(notifications=True) as pilot:
        app.screen.notify("a\x1b]0;title\x07[red]\x9b2J.trace does not exist.", severity="error")
        await pilot.pause()
        (toast,) = app.screen.query(Toast)
        assert str(toast.render()) == "a[red].trace does not exist."
