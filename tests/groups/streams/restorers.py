"""Members of a streams group whose tasks have state, and who say how far they have come with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.groups.streams.members import Member, Play

END = 100_000
"""How long each changelog is."""
ACCEPTABLE = 10_000
TOPOLOGY = "0:orders!counts"
"""Six tasks with state: 0_0 to 0_5."""

Task = tuple[str, int]


class Story(Play):
    """A group's world in which the changelog is there, and which remembers who ran what."""

    def __init__(self, **settings: str) -> None:
        self.lines: list[str] = []
        self.ran: dict[Task, Restorer] = {}
        self.cold: list[tuple[str, Task]] = []
        """Who was given what to run with too much to read, though somebody had run it who is still there."""
        super().__init__(**settings)
        self.say("topic counts partitions=6")

    def say(self, command: str) -> list[str]:
        self.lines = super().say(command)
        return self.lines


@dataclass
class Restorer(Member):
    """It reads `pace` records of each copy between two heartbeats, and all of a task before it runs it."""

    pace: int = 50_000
    version: int = 1
    reports: bool = True
    disk: dict[Task, int] = field(default_factory=dict)

    def tell(self, story: Story, **more: str) -> list[str]:
        """One heartbeat, with all that there is to say; the lines that tell what followed."""
        for role, name, partition in sorted(self.owns):
            read = END if role == "active" else self.disk.get((name, partition), 0) + self.pace
            self.disk[name, partition] = min(END, read)
        if self.reports:
            more = {
                "offsets": told(self.disk),
                "ends": told({(name, partition): END for _, name, partition in self.owns}),
            } | more
        before = self.active
        self.beat(story, version=str(self.version), **more)
        for task in self.active:
            last, behind = story.ran.get(task, self), END - self.disk.get(task, 0)
            if task not in before and last is not self and last.epoch > 0 and behind > ACCEPTABLE:
                story.cold.append((self.name, task))
            story.ran[task] = self
        return story.lines

    @property
    def active(self) -> list[Task]:
        return self.having("active")

    @property
    def warmup(self) -> list[Task]:
        return self.having("warmup")

    def having(self, role: str) -> list[Task]:
        """Its tasks in a role."""
        return sorted((name, partition) for had, name, partition in self.owns if had == role)


def told(offsets: dict[Task, int]) -> str:
    """In a scenario's words."""
    return ",".join(f"{name}-{p}:{offset}" for (name, p), offset in sorted(offsets.items())) or "-"


def restorer(name: str, **more: Any) -> Restorer:
    """In a process of its own, unless another is named."""
    return Restorer(name, more.pop("process", name), TOPOLOGY, **more)


def rounds(story: Story, members: Sequence[Restorer], count: int = 1) -> list[str]:
    """Everybody heartbeats in turn; the lines that tell what followed."""
    return [line for _ in range(count) for member in members for line in member.tell(story)]


def causes(lines: list[str]) -> list[str]:
    """Why epochs began, as `3: member-joined bob-1`."""
    return [
        f"{line.split()[2]}: {line.partition('Assigning: ')[2]}"
        for line in lines
        if line.startswith("why epoch") and "Assigning" in line
    ]
