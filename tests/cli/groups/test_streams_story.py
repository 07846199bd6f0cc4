"""The transcripts of a growing application in `docs/streams.md` equal the output of the commands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.commands import running_broker
from tests.cli.office import SETTINGS, TIMEOUT_S, StreamsEnvironment, word_count_topology

from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import InternalTopic, Subtopology, Task, Topology

PAGE = Path(__file__).parents[3] / "docs" / "streams.md"

END = 40_000
ENDS = {Task("1", 0): END, Task("1", 1): END}


class Transcript:
    """Members ann and bob of application `words`, and the output of each recorded command."""

    def __init__(self, env: StreamsEnvironment) -> None:
        self.env = env
        self.outputs: list[tuple[str, str]] = []
        self.clusters: list[Cluster] = []
        self.members: list[StreamsMember] = []

    def join(self, name: str, topology: Topology) -> StreamsMember:
        cluster = Cluster(self.env.broker.address, ClientSettings(client_id=name))
        settings = StreamsMemberSettings(member_id=f"{name}-1", process_id=f"p-{name}")
        member = StreamsMember(cluster, "words", topology, settings=settings)
        self.clusters.append(cluster)
        self.members.append(member)
        return member

    async def run_until(self, condition: Callable[[], bool]) -> None:
        """Run all members until the condition is true and each of them is stable."""
        async with asyncio.timeout(TIMEOUT_S):
            while not (condition() and all(m.state is MemberState.STABLE for m in self.members)):
                for member in self.members:
                    await member.ensure()
                await asyncio.sleep(0.005)

    async def record(self, *args: str) -> None:
        result = await asyncio.to_thread(self.env.groups, *args)
        self.outputs.append((f"konvene groups {' '.join(args)}", result.out))

    async def play(self) -> None:
        ann = self.join("ann", word_count_topology("words", "lines"))
        ann.report(ENDS, ENDS)
        await self.run_until(lambda: len(ann.assignment.active) == 4)

        bob = self.join("bob", word_count_topology("words", "lines"))
        bob.report({Task("1", 1): 10_000}, ENDS)
        await self.run_until(lambda: bool(bob.assignment.warmup and bob.assignment.active))
        await self.record("describe", "words", "--members")
        await self.record("describe", "words", "--state")

        bob.report({Task("1", 1): END - 900}, ENDS)
        await self.run_until(lambda: Task("1", 1) in bob.assignment.active)
        bob.report({Task("1", 1): END}, {Task("1", 1): END})
        await self.record("describe", "words", "--members")
        await self.record("history", "words", "--limit", "2")

        self.members.remove(bob)
        await bob.leave()
        await self.run_until(lambda: len(ann.assignment.active) == 4)
        # Created in advance: otherwise the group is NotReady for a moment.
        await asyncio.to_thread(self.env.broker.create, "words-sums-changelog", 0, 0)
        bob = self.join("bob", with_sums())
        bob.report({Task("1", 1): END}, {})
        await self.run_until(
            lambda: len(bob.assignment.active) > 2 and ann.membership.epoch == bob.membership.epoch
        )
        await self.record("describe", "words", "--state")
        await self.record("describe", "words", "--members")
        await self.record("history", "words", "--limit", "2")

    async def end(self) -> None:
        for member in self.members:
            await member.leave()
        for cluster in self.clusters:
            await cluster.close()


def with_sums() -> Topology:
    """Return the application's next topology, which also keeps sums."""
    counts = word_count_topology("words", "lines")
    sums = Subtopology("2", ("lines",), state_changelog_topics=(InternalTopic("words-sums-changelog"),))
    return Topology((*counts.subtopologies, sums), epoch=1)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, str]]]:
    settings = SETTINGS | {"konvene.streams.mode": "kip"}
    with running_broker(tmp_path_factory.mktemp("broker"), settings) as broker:
        broker.create("lines", 3, 3)

        async def job() -> list[tuple[str, str]]:
            transcript = Transcript(StreamsEnvironment(broker))
            try:
                await transcript.play()
            finally:
                await transcript.end()
            return transcript.outputs

        yield asyncio.run(job())


VARIABLE_TEXT = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}": "TIME",
    r"\b\d+ ms\b|\b\d+\.\d s\b": "SPAN",
    r"\S+:\d{4,5} \(1\)": "BROKER",
    r"(?<=\S) {2,}": " ",
}
"""Times, durations, addresses and column widths, which differ in each run."""


def normalized(text: str) -> str:
    for pattern, replacement in VARIABLE_TEXT.items():
        text = re.sub(pattern, replacement, text)
    return text


def test_page_shows_the_output_of_each_command(outputs: list[tuple[str, str]]) -> None:
    """All commands with all their lines, in order."""
    page = normalized(PAGE.read_text("utf-8"))
    position = 0
    for command, output in outputs:
        transcript = f"$ {command}\n{normalized(output)}"
        assert transcript in page[position:], transcript
        position = page.index(transcript, position) + len(transcript)
