"""The life of a group whose members use different libraries, played once and then checked by many tests.

A `Cast` has the libraries: one founds the group, two join, one leaves cleanly, one is killed, while a
producer writes unique values without pause. `play` returns a `Story`: all events of all clients, on one
clock, and the group's final state. The invariants over it are small functions here; test_stories.py checks
them.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .clients import Client, Event, Fleet, Partition, eventually, group_offsets
from .tries import Plays

SESSION_MS = 6000
PARTITIONS = 6
RATE_PER_S = 150


@dataclass(frozen=True)
class Cast:
    """Libraries by their part. The one who stays to the end is the second to come."""

    assignor: str
    founder: str
    stayer: str
    joiner: str
    producer: str
    leaver: str = "founder"

    def __str__(self) -> str:
        return f"{self.assignor}: {self.founder} leaves, {self.joiner} dies, {self.stayer} stays"

    @property
    def libraries(self) -> set[str]:
        return {self.founder, self.stayer, self.joiner, self.producer}


@dataclass
class Story:
    """A played scenario: the clients with their events, the group's final offsets, and the rebalances to
    expect."""

    group: str
    topic: str
    members: list[Client]
    producer: Client
    steady_ns: tuple[int, int] = (0, 0)
    kept: dict[Partition, int] = field(default_factory=dict)
    """The group's offsets once all is read and each commit is confirmed."""
    final: dict[Partition, int] = field(default_factory=dict)
    """The same after one more commit of every position."""
    log_ends: dict[Partition, int] = field(default_factory=dict)
    rebalances: list[tuple[str, str]] = field(default_factory=list)
    """(cause, client id), in the order in which they must have happened."""

    @property
    def partitions(self) -> set[Partition]:
        return {(self.topic, partition) for partition in range(PARTITIONS)}


Stories = Plays[Cast, Story]


def play(cast: Cast, again: str, fleet: Fleet, admin: Client, lock: threading.Lock) -> Story:
    """Play one scenario; a TimeoutError names the step that the group did not complete."""
    title = "-".join([cast.assignor, cast.founder, cast.stayer, cast.joiner]) + again
    group = topic = f"story-{title}"
    with lock:
        admin.call("create_topics", topics=[{"name": topic, "partitions": PARTITIONS}])
    producer = fleet.producer(cast.producer, f"{title}-producer", idempotence=True)
    producer.call("stream", topic=topic, prefix="v", count=1_000_000, rate_per_s=RATE_PER_S)
    story = Story(group, topic, [], producer)

    def member(library: str, part: str) -> Client:
        client = fleet.launch(library, f"{title}-{part}")
        client.until("greeting", lambda: client.of("ready"))
        story.members.append(client)
        fleet.give(
            client,
            "consumer",
            group=group,
            topics=[topic],
            assignor=cast.assignor,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            commit="sync",
            metadata_max_age_ms=10_000,
        )
        story.rebalances.append(("member-joined", client.name))
        return client

    founder = member(cast.founder, "founder")
    shared(story, founder)
    stayer = member(cast.stayer, "stayer")
    shared(story, founder, stayer)
    joiner = member(cast.joiner, "joiner")
    shared(story, founder, stayer, joiner)

    settled(story)
    begin = time.monotonic_ns()
    time.sleep(2)
    story.steady_ns = (begin, time.monotonic_ns())

    founder.close()
    story.rebalances.append(("member-left", founder.name))
    shared(story, stayer, joiner)

    joiner.kill()
    story.rebalances.append(("session-expired", joiner.name))
    shared(story, stayer, within_s=SESSION_MS / 1000 + 10)

    time.sleep(0.5)
    producer.call("settle")
    wanted = set(producer.acked())
    eventually(
        "reading of the last value", lambda: wanted <= delivered(story), 20, among=[*story.members, producer]
    )
    stayer.until("its last commit", lambda: all_committed(stayer))
    everything = [[topic, partition] for partition in range(PARTITIONS)]
    with lock:
        story.kept = offsets(group_offsets(admin, group))
        story.log_ends = offsets(admin.call("list_offsets", partitions=everything, at="latest"))
    positions = stayer.call("position", partitions=everything)
    stayer.call("commit", offsets=[row for row in positions if row[2] >= 0])
    stayer.close()
    with lock:
        story.final = offsets(group_offsets(admin, group))
    return story


def shared(story: Story, *members: Client, within_s: float = 20) -> None:
    """Wait until these members hold all partitions between them, evenly."""
    share = PARTITIONS // len(members)
    eventually(
        f"group of {len(members)} with {share} partitions each",
        lambda: (
            all(len(member.holds()) == share for member in members)
            and set().union(*(member.holds() for member in members)) == story.partitions
        ),
        within_s,
        among=members,
    )


def settled(story: Story) -> None:
    """Wait until nothing moved for a second: who comes may join twice, the second time when all have
    what they should."""

    def still() -> bool:
        now = time.monotonic_ns()
        return not moves_within(story.members, now - 1_000_000_000, now)

    eventually("group in which nothing moves for a second", still, 20, among=story.members)


def offsets(rows: list[list[Any]]) -> dict[Partition, int]:
    return {(topic, partition): offset for topic, partition, offset, *_ in rows}


def delivered(story: Story) -> set[str]:
    return delivered_by(story.members)


def delivered_by(members: Iterable[Client]) -> set[str]:
    return {value for member in members for value in member.values()}


def all_committed(member: Client) -> bool:
    last_event = next((e for e in reversed(member.events) if e["event"] in ("records", "committed")), None)
    return last_event is None or last_event["event"] == "committed"


# Invariants of a story.


@dataclass
class Tenure:
    """One member's hold of one partition: from its assignment until it gave it up or ended."""

    member: str
    partition: Partition
    began_ns: int
    ended_ns: int | None = None
    offsets: list[int] = field(default_factory=list)


def tenures(members: Iterable[Client]) -> list[Tenure]:
    """Every tenure of every member, with the offsets delivered in it, in the order in which they began."""
    found: list[Tenure] = []
    for member in members:
        open_: dict[Partition, Tenure] = {}
        latest: dict[Partition, Tenure] = {}
        for event in member.events:
            partitions = [(topic, partition) for topic, partition in event.get("partitions", ())]
            if event["event"] == "assigned":
                for partition in partitions:
                    latest[partition] = open_[partition] = Tenure(member.name, partition, event["at"])
                    found.append(open_[partition])
            elif event["event"] in ("revoked", "lost"):
                for partition in partitions:
                    if partition in open_:
                        open_.pop(partition).ended_ns = event["at"]
            elif event["event"] == "records":
                for record in event["records"]:
                    latest[record["topic"], record["partition"]].offsets.append(record["offset"])
        for tenure in open_.values():
            tenure.ended_ns = member.ended_ns
    return sorted(found, key=lambda tenure: tenure.began_ns)


def commits(members: Iterable[Client]) -> dict[Partition, list[tuple[int, int, str]]]:
    """(time, offset, member) of each confirmed commit of a partition, in time."""
    by_partition: dict[Partition, list[tuple[int, int, str]]] = defaultdict(list)
    for member in members:
        for event in member.of("committed"):
            for topic, partition, offset, *_ in event["offsets"]:
                by_partition[topic, partition].append((event["at"], offset, member.name))
    return {partition: sorted(rows) for partition, rows in by_partition.items()}


def read_again(members: list[Client]) -> list[str]:
    """Deliveries of records that the group had committed before their reader was assigned the partition."""
    committed = commits(members)
    wrong = []
    for tenure in tenures(members):
        before = [offset for at, offset, _ in committed.get(tenure.partition, ()) if at < tenure.began_ns]
        if before and tenure.offsets and tenure.offsets[0] < max(before):
            wrong.append(
                f"{tenure.member} read {tenure.partition} from {tenure.offsets[0]}, committed: {max(before)}"
            )
    return wrong


def gaps(members: list[Client]) -> list[str]:
    """Places where, within one tenure, the next record was not the next offset."""
    return [
        f"{tenure.member} read {tenure.partition}: {a} and then {b}"
        for tenure in tenures(members)
        for a, b in zip(tenure.offsets, tenure.offsets[1:], strict=False)
        if b != a + 1
    ]


def shared_holds(members: list[Client]) -> list[str]:
    """Moments at which two members held the same partition."""
    wrong = []
    by_partition: dict[Partition, list[Tenure]] = defaultdict(list)
    for tenure in tenures(members):
        by_partition[tenure.partition].append(tenure)
    for held in by_partition.values():
        for one, next_one in itertools.pairwise(held):
            if one.ended_ns is None or one.ended_ns > next_one.began_ns:
                wrong.append(f"{one.partition}: {next_one.member} was assigned it while {one.member} held it")
    return wrong


def steps_back(members: list[Client]) -> list[str]:
    """Commits that are below one confirmed before."""
    wrong = []
    for partition, rows in commits(members).items():
        for (_, a, first), (_, b, second) in itertools.pairwise(rows):
            if b < a:
                wrong.append(f"{partition}: {first} committed {a}, then {second} {b}")
    return wrong


OUTLIVES_ITS_BROKER: dict[str, Any] = {"metadata_recovery_strategy": "none"}
"""Settings of a consumer that must not rebalance while its broker is down: a Java client whose only broker is
unreachable forgets all topics (KIP-899), and a leader may take that for a metadata change ("cached metadata
has changed")."""


def moves_within(members: list[Client], begin_ns: int, end_ns: int) -> list[Event]:
    """Return assignments and revocations in a span in which there should be none."""
    kinds = ("assigned", "revoked", "lost")
    events = [e for m in members for e in m.events if begin_ns < e["at"] < end_ns]
    return [e for e in events if e["event"] in kinds and e["partitions"]]


JAVA, CONFLUENT, KAFKA_PYTHON, AIOKAFKA = "java", "confluent-kafka", "kafka-python", "aiokafka"

CASTS: list[Cast] = [
    # assignor, who leaves, who stays, who joins and is killed, who produces
    Cast("range", CONFLUENT, KAFKA_PYTHON, AIOKAFKA, producer=CONFLUENT),
    Cast("range", JAVA, CONFLUENT, KAFKA_PYTHON, producer=AIOKAFKA),
    Cast("range", AIOKAFKA, JAVA, CONFLUENT, producer=KAFKA_PYTHON),
    Cast("range", KAFKA_PYTHON, AIOKAFKA, JAVA, producer=JAVA),
    Cast("roundrobin", AIOKAFKA, CONFLUENT, KAFKA_PYTHON, producer=CONFLUENT),
    Cast("roundrobin", CONFLUENT, AIOKAFKA, JAVA, producer=KAFKA_PYTHON),
    Cast("cooperative-sticky", JAVA, CONFLUENT, KAFKA_PYTHON, producer=CONFLUENT),
]
