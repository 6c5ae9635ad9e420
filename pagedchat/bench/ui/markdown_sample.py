"""Markdown such as assistants write, to be recited while a benchmark looks on, and as what chats hold already."""

from pagedchat.chat.turns import Entry, Turn

SAMPLE = """
## How the lamp was found

Once there was a *fisher* who lived by the sea. Every morning she rowed out **before the sun** was up; every evening
she came home with the tide; see [the map](https://example.com/map) for where.

1. One day the net was heavy.
2. In it there was a `small brass lamp`:
   - old, and green at the rim,
   - with a chain that she *could not* open.
3. She put it on the shelf beside the window, where it caught the light.

```python
def light(lamp: Lamp, *, hours: int = 3) -> float:
    # how much oil it takes
    return sum(lamp.oil(hour) for hour in range(hours)) / 2.5
```

> Nobody on the quay looked up, and nobody asked.

| day    | fish | lamp    |
|:-------|-----:|---------|
| monday |   12 | dark    |
| friday |    3 | **lit** |

So it went on for a year, and the year after was much like the one before it.

"""
"""Some thirty lines."""


def old_entries(num_lines: int) -> list[Entry]:
    """Turns of so many lines, a question to each answer."""
    each = SAMPLE.count("\n") + 1
    entries: list[Entry] = []
    for number in range(-(-num_lines // each)):
        entries += [Entry(Turn("user", f"What then, number {number}?")), Entry(Turn("assistant", SAMPLE.strip()))]
    return entries
