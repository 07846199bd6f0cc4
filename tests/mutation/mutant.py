"""What a planted bug is, and how it gets into a copy of the source.

A row names one piece of text that stands exactly once in one file, and the text that takes its place.
Applying never guesses: text that is not there, or is there twice, is an error of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GROUPS = "groups/"
CLASSIC = "groups/classic/"
CONSUMER = "groups/consumer/"
OFFSETS = "groups/offsets/"
TRANSACTIONS = "transactions/"
DELIVERY = "delivery/"
SHARE = "groups/share/"
SHARE_STATE = "share_state/"
BROKER = "broker/"
LOG = "log/"


class RottenRow(Exception):
    """The text of a row does not occur exactly once in the source."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug: a plausible mistake."""

    name: str
    file: str
    """Below `src/konvene`."""
    ids: tuple[str, ...]
    """The invariant that it breaks, by its number, and the known bug of another broker that it brings
    back."""
    breaks: str
    """What goes wrong, in Kafka's terms."""
    old: str
    new: str
    level: int = 1
    """1: coordinators and members show it. 2: only a run of a whole broker can, and so no other is made.
    3: members of consumer groups show it. 4: random lives of the core of streams groups do. 5: members that
    transact show it. 6: a whole broker with clients that transact does. 7: members of share groups show
    it. 8: users of a broker with an authorizer do."""
    would_be_caught_by: str = ""
    """Of a survivor: what would have to be checked, or done, to find it."""

    def apply(self, source: Path) -> str:
        """Plant the bug in the tree `source`; give the file's text as it was."""
        path = source / self.file
        text = path.read_text("utf-8")
        path.write_text(self.planted(text), "utf-8")
        return text

    def planted(self, text: str) -> str:
        """The file's text with the bug in it. Raises `RottenRow`."""
        if (found := text.count(self.old)) != 1:
            raise RottenRow(f"{self.name}: its text stands {found} times in {self.file}")
        return text.replace(self.old, self.new)
