"""Members of a streams group with stateful tasks, which report their restore progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.groups.streams.members import Member, Play

END = 100_000
"""Length of each changelog."""
ACCEPTABLE = 10_000
TOPOLOGY = "0:orders!counts"
"""Six stateful tasks: 0_0 to 0_5."""

Task = tuple[str, int]


class Story(Play):
    """A scenario with the changelog topic that tracks which member ran each task last."""

    def __init__(self, **settings: str) -> None:
        self.lines: list[str] = []
        self.ran: dict[Task, Restorer] = {}
        self.cold: list[tuple[str, Task]] = []
        """Members that became active for a task far behind its changelog although its last owner was still
        alive."""
        super().__init__(**settings)
        self.run("topic counts partitions=6")

    def run(self, command: str) -> list[str]:
        self.lines = super().run(command)
        return self.lines


@dataclass
class Restorer(Member):
    """Restores `pace` records of each copy between two heartbeats, and all of a task before running it."""

    pace: int = 50_000
    version: int = 1
    reports: bool = True
    disk: dict[Task, int] = field(default_factory=dict)

    def beat_and_track(self, story: Story, **more: str) -> list[str]:
        """Send one heartbeat with all reports; return the transcript lines that followed."""
        for role, name, partition in sorted(self.owns):
            read = END if role == "active" else self.disk.get((name, partition), 0) + self.pace
            self.disk[name, partition] = min(END, read)
        if self.reports:
            more = {
                "offsets": format_offsets(self.disk),
                "ends": format_offsets({(name, partition): END for _, name, partition in self.owns}),
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
        """Return the member's tasks in a role."""
        return sorted((name, partition) for had, name, partition in self.owns if had == role)


def format_offsets(offsets: dict[Task, int]) -> str:
    """Return offsets in the notation of scenarios."""
    return ",".join(f"{name}-{p}:{offset}" for (name, p), offset in sorted(offsets.items())) or "-"


def restorer(name: str, **more: Any) -> Restorer:
    """Return a member in a process of its own, unless another is named."""
    return Restorer(name, more.pop("process", name), TOPOLOGY, **more)


def rounds(story: Story, members: Sequence[Restorer], count: int = 1) -> list[str]:
    """Let every member heartbeat in turn; return the transcript lines that followed."""
    return [line for _ in range(count) for member in members for line in member.beat_and_track(story)]


def causes(lines: list[str]) -> list[str]:
    """Return why epochs were bumped, as `3: member-joined bob-1`."""
    return [
        f"{line.split()[2]}: {line.partition('Assigning: ')[2]}"
        for line in lines
        if line.startswith("why epoch") and "Assigning" in line
    ]
