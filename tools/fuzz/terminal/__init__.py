"""Text as a hostile model would write it, through what the screen does with it, into a terminal emulator."""
