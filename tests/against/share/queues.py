"""A topic and the share group that reads it, and the members that tests hire."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from ..clients import Client, Event, Fleet, eventually

JAVA = pytest.param("java", marks=pytest.mark.java)
SHARERS = [JAVA, "confluent-kafka"]
"""The libraries that have a share consumer."""

EXPLICIT = {"mode": "explicit"}


class Crew:
    """Processes that are members of one group after another."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.resting: dict[str, list[Client]] = defaultdict(list)
        self.hired: list[Client] = []

    def hire(self, library: str, **settings: Any) -> Client:
        resting = self.resting[library]
        client = resting.pop() if resting else self.fleet.launch(library)
        client.events.clear()
        self.fleet.give(client, "sharer", **settings)
        self.hired.append(client)
        return client

    def rest(self) -> None:
        """Let all members leave the group and keep their processes for reuse; forget processes that have
        exited."""
        for client in self.hired:
            if client.process.poll() is None:
                client.call("leave")
                self.resting[client.library].append(client)
        self.hired.clear()


class Queue:
    """A topic, and a group of the same name that begins with its first record."""

    def __init__(self, admin: Client, writer: Client, crew: Crew, name: str, partitions: int = 1) -> None:
        self.admin = admin
        self.writer = writer
        self.crew = crew
        self.name = name
        admin.call("create_topics", topics=[{"name": name, "partitions": partitions}])
        self.configure(**{"share.auto.offset.reset": "earliest"})

    def configure(self, **settings: str) -> None:
        self.admin.call("alter_configs", group=self.name, configs=settings)

    def member(self, library: str, **settings: Any) -> Client:
        return self.crew.hire(library, group=self.name, topics=[self.name], **settings)

    def write(self, *values: str, partition: int = 0) -> None:
        rows = [
            {"topic": self.name, "partition": partition, "key": value, "value": value} for value in values
        ]
        self.writer.call("send", records=rows)

    def at(self, *offsets: int) -> list[list[Any]]:
        return [[self.name, 0, offset] for offset in offsets]

    def acknowledge(self, member: Client, kind: str, *offsets: int) -> None:
        member.call("acknowledge", type=kind, offsets=self.at(*offsets))

    def commit(self, member: Client) -> str | None:
        """What was answered of the one partition: nothing, or the name of an error."""
        ((_topic, _partition, error),) = member.call("commit")
        return None if error is None else str(error)


def deliveries(records: list[Event]) -> list[tuple[str, int]]:
    """Values and how often each was delivered."""
    return [(record["value"], record["delivery_count"]) for record in records]


def poll(member: Client, within_ms: int = 10_000) -> list[tuple[str, int]]:
    return deliveries(member.call("poll", within_ms=within_ms, within_s=within_ms / 1000 + 20))


def poll_all(member: Client, count: int) -> list[tuple[str, int]]:
    """So many records, in as many polls as it takes; each poll but the last accepts what came before it."""
    found: list[tuple[str, int]] = []
    while len(found) < count:
        more = poll(member)
        assert more, f"{len(found)} of {count} records\n{member.story()}"
        found += more
    return found


def offsets_of(member: Client, event: str) -> Iterator[tuple[str, int, int]]:
    for each in member.of(event):
        for topic, partition, offsets in each["offsets"]:
            for offset in offsets:
                yield topic, partition, offset


def accepted(member: Client, count: int) -> list[int]:
    """Wait until so many of its acknowledgements were confirmed; return their offsets."""
    eventually(
        "acknowledgements", lambda: len(list(offsets_of(member, "acknowledged"))) >= count, 20, among=[member]
    )
    return sorted(offset for _, _, offset in offsets_of(member, "acknowledged"))
