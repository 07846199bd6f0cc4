"""What `docs/streams.md` shows of an application that grows and changes is what commands print of one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.commands import serving
from tests.cli.office import LONG_S, SETTINGS, Office, words

from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import InternalTopic, Subtopology, Task, Topology

PAGE = Path(__file__).parents[3] / "docs" / "streams.md"

END = 40_000
ENDS = {Task("1", 0): END, Task("1", 1): END}


class Story:
    """Ann and bob run `words`; each shown command is kept with what it printed."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.shown: list[tuple[str, str]] = []
        self.clusters: list[Cluster] = []
        self.members: list[StreamsMember] = []

    def join(self, name: str, topology: Topology) -> StreamsMember:
        cluster = Cluster(self.office.broker.address, ClientSettings(client_id=name))
        settings = StreamsMemberSettings(member_id=f"{name}-1", process_id=f"p-{name}")
        member = StreamsMember(cluster, "words", topology, settings=settings)
        self.clusters.append(cluster)
        self.members.append(member)
        return member

    async def until(self, holds: Callable[[], bool]) -> None:
        """All members work until something is so, and all have what they are to have."""
        async with asyncio.timeout(LONG_S):
            while not (holds() and all(m.state is MemberState.STABLE for m in self.members)):
                for each in self.members:
                    await each.ensure()
                await asyncio.sleep(0.005)

    async def show(self, *line: str) -> None:
        said = await asyncio.to_thread(self.office.groups, *line)
        self.shown.append((f"konvene groups {' '.join(line)}", said.out))

    async def play(self) -> None:
        ann = self.join("ann", words("words", "lines"))
        ann.report(ENDS, ENDS)
        await self.until(lambda: len(ann.assignment.active) == 4)

        bob = self.join("bob", words("words", "lines"))
        bob.report({Task("1", 1): 10_000}, ENDS)
        await self.until(lambda: bool(bob.assignment.warmup and bob.assignment.active))
        await self.show("describe", "words", "--members")
        await self.show("describe", "words", "--state")

        bob.report({Task("1", 1): END - 900}, ENDS)
        await self.until(lambda: Task("1", 1) in bob.assignment.active)
        bob.report({Task("1", 1): END}, {Task("1", 1): END})
        await self.show("describe", "words", "--members")
        await self.show("history", "words", "--limit", "2")

        self.members.remove(bob)
        await bob.leave()
        await self.until(lambda: len(ann.assignment.active) == 4)
        # Else the broker makes it, and the group is not ready for a moment.
        await asyncio.to_thread(self.office.broker.create, "words-sums-changelog", 0, 0)
        bob = self.join("bob", with_sums())
        bob.report({Task("1", 1): END}, {})
        await self.until(
            lambda: len(bob.assignment.active) > 2 and ann.membership.epoch == bob.membership.epoch
        )
        await self.show("describe", "words", "--state")
        await self.show("describe", "words", "--members")
        await self.show("history", "words", "--limit", "2")

    async def end(self) -> None:
        for each in self.members:
            await each.leave()
        for cluster in self.clusters:
            await cluster.close()


def with_sums() -> Topology:
    """The application's next topology: it keeps sums, too."""
    counts = words("words", "lines")
    sums = Subtopology("2", ("lines",), state_changelog_topics=(InternalTopic("words-sums-changelog"),))
    return Topology((*counts.subtopologies, sums), epoch=1)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, str]]]:
    settings = SETTINGS | {"konvene.streams.mode": "kip"}
    with serving(tmp_path_factory.mktemp("broker"), settings) as broker:
        broker.create("lines", 3, 3)

        async def job() -> list[tuple[str, str]]:
            story = Story(Office(broker))
            try:
                await story.play()
            finally:
                await story.end()
            return story.shown

        yield asyncio.run(job())


NOT_ALWAYS_SO = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}": "TIME",
    r"\b\d+ ms\b|\b\d+\.\d s\b": "SPAN",
    r"\S+:\d{4,5} \(1\)": "BROKER",
    r"(?<=\S) {2,}": " ",
}
"""What is another one each time: when, for how long, where the broker is; and so the widths of columns."""


def plain(text: str) -> str:
    for pattern, word in NOT_ALWAYS_SO.items():
        text = re.sub(pattern, word, text)
    return text


def test_the_page_shows_what_commands_print(shown: list[tuple[str, str]]) -> None:
    """Each command with all its lines, in this order."""
    page = plain(PAGE.read_text("utf-8"))
    at = 0
    for command, out in shown:
        told = f"$ {command}\n{plain(out)}"
        assert told in page[at:], told
        at = page.index(told, at) + len(told)
