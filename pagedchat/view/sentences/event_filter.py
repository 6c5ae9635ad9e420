"""Which event lines are wanted: kinds, switched one by one or in groups, and a piece of text. Pure."""

from dataclasses import dataclass, replace

from pagedchat.view.sentences.event_lines import GROUPS, EventLine, Group

_GROUPS: dict[str, tuple[Group, ...]] = {
    "changes": ("sequences", "blocks"),
    "all": ("sequences", "blocks", "steps"),
    "blocks": ("blocks",),
    "sequences": ("sequences",),
    "steps": ("steps",),
}
FILTERS = tuple(_GROUPS)
"""Names of the groups; `changes` is all but the steps, which would push everything else out of sight."""
CHOSEN = "chosen"
"""The name of any other choice of kinds."""

_KINDS = {name: frozenset(kind for kind in GROUPS if GROUPS[kind] in groups) for name, groups in _GROUPS.items()}


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a line must be to be shown."""

    kinds: frozenset[str] = _KINDS["changes"]
    text: str = ""
    """Part of the line, in lower case; empty passes all."""

    @property
    def name(self) -> str:
        """What this choice of kinds is called."""
        return next((name for name, kinds in _KINDS.items() if kinds == self.kinds), CHOSEN)

    def passes(self, line: EventLine) -> bool:
        """Whether the line is wanted."""
        return line.kind in self.kinds and (not self.text or self.text in str(line).lower())

    def next_group(self) -> "EventFilter":
        """The group of kinds that comes after this one; the first one after a choice of one's own."""
        index = FILTERS.index(self.name) + 1 if self.name in FILTERS else 0
        return replace(self, kinds=_KINDS[FILTERS[index % len(FILTERS)]])

    def with_kinds(self, kinds: frozenset[str]) -> "EventFilter":
        """Other kinds, the same text."""
        return replace(self, kinds=kinds)

    def with_text(self, text: str) -> "EventFilter":
        """Another text, the same kinds."""
        return replace(self, text=text.strip().lower())
