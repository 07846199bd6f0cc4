"""The broker and members are killed under load, while a ledger is kept of every record.

A record whose acceptance was confirmed to a member is never delivered again. A record without confirmation
may be redelivered, until it is accepted. In the end the lag is zero and every written record was delivered.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..brokers import Broker
from ..clients import Client, Fleet, eventually, meet_the_coordinator
from ..conftest import a_running_broker
from .conftest import SETTINGS
from .queues import Crew, Queue

pytestmark = pytest.mark.java

KILLS = {"konvene": (8, 4), "kafka": (2, 2)}
"""How often the broker is killed, and how often a member. Apache Kafka needs eight seconds to come back."""

GROUP = "load"
LEFT_WITHIN_S = {"konvene": 60, "kafka": 150}
"""Longer than a lock, of which there may be several one after another."""

PARTITIONS = 3
RATE_PER_S = 300
SEED = 932
OFTEN = "25"
"""Delivery count limit, high enough that no record is archived here."""

KINDS = [
    ("java", {"mode": "explicit"}),
    ("confluent-kafka", {"mode": "explicit"}),
    ("java", {"mode": "implicit"}),
    ("confluent-kafka", {"mode": "implicit"}),
]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    more = {"group.share.max.delivery.count.limit": OFTEN, "group.share.session.timeout.ms": "3000"}
    with a_running_broker(tmp_path / "broker", SETTINGS | more, kill=True) as broker:
        yield broker


class Ledger:
    """Deliveries and confirmed acceptances of each record, as members report them: `(partition, offset)` of
    one topic."""

    def __init__(self, members: list[Client]) -> None:
        self.delivered: Counter[tuple[int, int]] = Counter()
        self.values: dict[tuple[int, int], str] = {}
        self.accepted: Counter[tuple[int, int]] = Counter()
        self.times: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for member in members:
            for event in list(member.events):
                self._read(event)

    def _read(self, event: dict[str, object]) -> None:
        at = int(str(event["at"]))
        if event["event"] == "records":
            for record in event["records"]:  # type: ignore[attr-defined]
                where = (record["partition"], record["offset"])
                self.delivered[where] += 1
                self.values[where] = record["value"]
                self.times.setdefault(where, []).append((at, "delivered"))
        elif event["event"] == "acknowledged":
            for _, partition, offsets in event["offsets"]:  # type: ignore[attr-defined]
                for offset in offsets:
                    self.accepted[partition, offset] += 1
                    self.times.setdefault((partition, offset), []).append((at, "accepted"))

    def taken_back(self) -> dict[tuple[int, int], list[tuple[int, str]]]:
        """Return records whose acceptance was confirmed more than once, or that were delivered afterwards."""
        return {
            where: deliveries
            for where, deliveries in self.times.items()
            if self.accepted[where] > 1 or [what for _, what in sorted(deliveries)][-1:] != ["accepted"]
            if self.accepted[where]
        }


def test_kills_lose_nothing_and_take_nothing_back(
    own_broker: Broker, own_fleet: Fleet, record_property: Callable[[str, object], None]
) -> None:
    """Each record is delivered until it is accepted, and not after that."""
    meet_the_coordinator(own_fleet.admin("kafka-python", "first"))
    admin = own_fleet.admin("confluent-kafka", "admin")
    writer = own_fleet.producer("confluent-kafka", "writer", idempotence=True)
    queue = Queue(admin, writer, Crew(own_fleet), GROUP, PARTITIONS)
    queue.configure(**{"share.delivery.count.limit": OFTEN})
    members = [hire(queue, *kind) for kind in KINDS]
    all_members = list(members)
    writer.call("stream", topic=GROUP, prefix="", count=10**6, rate_per_s=RATE_PER_S)
    eventually("records for all", lambda: all(m.of("acknowledged") for m in members), 40, among=members)

    chance = random.Random(SEED)
    of_broker, of_members = KILLS[own_broker.name]
    kills = ["broker"] * of_broker + ["member"] * of_members
    chance.shuffle(kills)
    for kill in kills:
        time.sleep(chance.uniform(0.3, 1.2))
        if kill == "broker":
            own_broker.kill9()
            own_broker.start()
        else:
            number = chance.randrange(len(members))
            members[number].kill()
            members[number] = hire(queue, *KINDS[number])
            all_members.append(members[number])

    totals = writer.call("settle", within_s=60)
    assert totals["failed"] == 0
    java_admin = own_fleet.admin("java", "java-admin")
    within_s = LEFT_WITHIN_S[own_broker.name]
    eventually(
        "end of what is left",
        lambda: left(java_admin, all_members, totals["sent"]) == (0, 0),
        within_s,
        among=[*members, Left(java_admin, all_members, totals["sent"])],
    )
    ledger = Ledger(all_members)
    assert ledger.taken_back() == {}
    assert sorted(ledger.values.values(), key=int) == [str(number) for number in range(totals["sent"])]
    record_property("records", totals["sent"])
    record_property("delivered", ledger.delivered.total())
    record_property("accepted", ledger.accepted.total())
    record_property("refused", dict(refusals(all_members)))
    record_property("kills", f"{of_broker} of the broker, {of_members} of members")
    for member in members:
        member.kill()


def hire(queue: Queue, library: str, settings: dict[str, str]) -> Client:
    return queue.member(library, go=True, max_poll_records=50, linger_ms=40, **settings)


def refusals(all_members: list[Client]) -> Counter[str]:
    """Why acknowledgements were not taken."""
    return Counter(event["error"]["name"] for m in all_members for event in m.of("acknowledge_failed"))


def left(admin: Client, all_members: list[Client], written: int) -> tuple[int, int]:
    """Return how many records were never delivered, and the group's total lag."""
    delivered = {(r["partition"], r["offset"]) for m in all_members for r in m.records()}
    rows = admin.call("share_offsets", group=GROUP)
    return written - len(delivered), sum(lag for *_, lag in rows)


class Left:
    """What is left, for the story of a test that waited in vain."""

    def __init__(self, admin: Client, all_members: list[Client], written: int) -> None:
        self.given = (admin, all_members, written)

    def story(self) -> str:
        return f"not delivered, not done: {left(*self.given)}"
