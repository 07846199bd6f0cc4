"""A consumer group under load: its topic, a producer that writes all the time, and all present and former
members.

A test starts and stops members and waits with `share` for an even assignment. At the end `keeps` checks the
invariants of any group: every acknowledged value was read, no partition had two owners, nothing committed was
read again, and no commit went back. Rebalance listeners give the times, on the machine's one clock.
"""

from typing import Any

from ..brokers import Broker
from ..clients import Client, Fleet, Partition, eventually, group_offsets
from ..conftest import Admins
from ..history import Rebalance, history
from ..stories import (
    AIOKAFKA,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    all_committed,
    commits,
    delivered_by,
    gaps,
    read_again,
    shared_holds,
    steps_back,
)

SESSION_MS = 3000
"""Of groups whose members die: the time until the broker gives them up."""

CLASSIC_SESSION_MS = 20_000
PARTITIONS = 6
RATE_PER_S = 100

__all__ = ["AIOKAFKA", "CONFLUENT", "JAVA", "KAFKA_PYTHON", "PARTITIONS", "SESSION_MS", "Group"]


class Group:
    """A group named after its topic. Invariants are checked over all members that it ever had."""

    def __init__(self, name: str, fleet: Fleet, admins: Admins, broker: Broker) -> None:
        self.name = name
        self.topic = name
        self.fleet = fleet
        self.admins = admins
        self.admin = admins[KAFKA_PYTHON]
        self.broker = broker
        self.partitions: set[Partition] = set()
        self.members: list[Client] = []
        self.producer: Client | None = None

    def __repr__(self) -> str:
        return f"<group {self.name}: " + ", ".join(member.name for member in self.members) + ">"

    # Before the first member joins.

    def has(self, partitions: int = PARTITIONS, topic: str | None = None) -> None:
        """Make a topic, by default the one of the group's own name."""
        name = topic or self.topic
        self.admin.call("create_topics", topics=[{"name": name, "partitions": partitions}])
        self.partitions |= {(name, partition) for partition in range(partitions)}

    def expires_soon(self) -> None:
        """Give the group a session of `SESSION_MS`."""
        configs = {"consumer.session.timeout.ms": str(SESSION_MS)}
        self.admins[CONFLUENT].call("alter_configs", group=self.name, configs=configs)

    def is_fed(self, prefix: str = "v", **settings: Any) -> None:
        """Start a producer that writes unique values until `keeps` is called."""
        self.producer = self.fleet.producer(CONFLUENT, f"{self.name}-producer", idempotence=True, **settings)
        self.feed_on(prefix)

    def feed_on(self, prefix: str) -> None:
        assert self.producer is not None
        self.producer.call("stream", topic=self.topic, prefix=prefix, count=10**6, rate_per_s=RATE_PER_S)

    # Members.

    def join(self, library: str, name: str, protocol: str = "consumer", **settings: Any) -> Client:
        return self.give(self.launch(library, name), protocol, **settings)

    def join_all(self, libraries: tuple[str, ...], name: str, **settings: Any) -> list[Client]:
        """Several members at once: their processes start side by side."""
        clients = [self.launch(library, f"{name}-{number}") for number, library in enumerate(libraries)]
        return [self.give(client, **settings) for client in clients]

    def launch(self, library: str, name: str) -> Client:
        """A process that is not yet a member, for its start is what takes long."""
        return self.fleet.launch(library, f"{self.name}-{name}")

    def give(self, client: Client, protocol: str = "consumer", **settings: Any) -> Client:
        settings = {"commit": "sync", "metadata_max_age_ms": 2000} | settings
        if protocol == "classic":
            settings = {"session_timeout_ms": CLASSIC_SESSION_MS} | settings
        if "pattern" not in settings:
            settings.setdefault("topics", sorted({topic for topic, _ in self.partitions}))
        self.members.append(client)
        self.fleet.give(client, "consumer", group=self.name, protocol=protocol, **settings)
        return client

    def share(self, *members: Client, within_s: float = 30) -> None:
        """Wait until these members hold everything between them, none more than one partition more than
        another."""

        def shared() -> bool:
            holds = [member.holds() for member in members]
            sizes = {len(held) for held in holds}
            everything = set().union(*holds) == self.partitions
            return everything and sum(map(len, holds)) == len(self.partitions) and max(sizes) - min(sizes) < 2

        eventually(f"even shares of {len(members)}", shared, within_s, among=members)

    def is_read_by(self, *members: Client) -> None:
        """Wait until each of these has read something more than it has now."""
        seen = {member.name: len(member.records()) for member in members}

        def read() -> bool:
            return all(len(member.records()) > seen[member.name] for member in members)

        eventually("new records for everybody", read, 20, among=members)

    # The broker's description.

    def describe(self) -> dict[str, Any]:
        """Return state, epochs and members as Java's admin client describes them."""
        description: dict[str, Any] = self.admins[JAVA].call("describe_epochs", group=self.name)
        return description

    def settled(self, members: int) -> dict[str, Any]:
        """The same once the group is Stable with so many members."""

        def stable() -> dict[str, Any] | None:
            description = self.describe()
            return (
                description
                if description["state"] == "Stable" and len(description["members"]) == members
                else None
            )

        return eventually(f"stable group of {members}", stable, 20, among=self.members)

    def kind(self) -> str | None:
        """`Consumer` or `Classic`, as the group is listed."""
        rows = self.admins[CONFLUENT].call("list_groups")
        return next((row["type"] for row in rows if row["group"] == self.name), None)

    def becomes(self, kind: str) -> None:
        eventually(f"group listed as {kind}", lambda: self.kind() == kind, 20, among=self.members)

    def committed(self) -> dict[Partition, int]:
        return {(topic, p): offset for topic, p, offset, _ in group_offsets(self.admin, self.name)}

    def ends(self) -> dict[Partition, int]:
        rows = self.admin.call("list_offsets", partitions=sorted(self.partitions), at="latest")
        return {(topic, partition): offset for topic, partition, offset, *_ in rows}

    def past(self) -> list[Rebalance] | None:
        """Return every rebalance with its causes, or None where the broker does not record them."""
        return history(self.broker, self.name) if self.broker.explains else None

    # The promises.

    def all_is_read(self) -> None:
        """Stop the producer, and wait until each acknowledged value was delivered to some member."""
        assert self.producer is not None
        self.producer.call("settle")
        wanted = set(self.producer.acked())
        assert len(wanted) > 50
        assert self.producer.of("failed") == []

        def read() -> bool:
            return wanted <= delivered_by(self.members)

        eventually("every acknowledged value", read, 30, among=self.members)

    def keeps(self, *, except_times_of: tuple[Client, ...] = ()) -> None:
        """Check all invariants of a group. The times of a suspended member are not compared, since it cannot
        report when it lost a partition or when a commit was confirmed."""
        self.all_is_read()
        here = [member for member in self.members if member.process.poll() is None]
        eventually("the last commits", lambda: all(map(all_committed, here)), 20, among=here)
        awake = [member for member in self.members if member not in except_times_of]
        assert shared_holds(awake) == []
        assert read_again(awake) == []
        assert steps_back(awake) == []
        assert gaps(self.members) == []
        confirmed = {
            partition: max(row[1] for row in rows) for partition, rows in commits(self.members).items()
        }
        committed = self.committed()
        assert {p: o for p, o in confirmed.items() if committed.get(p, -1) < o} == {}


FATAL = -150
"""librdkafka's code of a fatal error; the broker's error is in its message."""


def is_refused(member: Client, code: int, words: str) -> None:
    """Wait until a member is rejected: with Kafka's code in Java, in librdkafka with a fatal error whose
    message contains these words."""
    error = member.until("a refusal", lambda: member.of("error"), 20)[0]["error"]
    if member.library == JAVA:
        assert error["code"] == code, error
    else:
        assert error["code"] == FATAL and words in error["message"], error
