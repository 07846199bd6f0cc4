"""Each assignor with each client that has it: who owns what, at every moment, while members come and go.

A `Company` is the libraries of one group. Its acts are played with every assignor that all of them have, all
at once: members come one by one, one leaves, one is killed. Kafka promises that a partition has one owner,
that every partition has one once the group is stable, and of sticky assignors that no member loses what it
keeps.
"""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from .brokers import Broker
from .clients import Client, Fleet, Partition, eventually
from .conftest import Admins
from .history import history, missing
from .stories import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, SESSION_MS, shared_holds

PARTITIONS = 12
"""Which two, three and four members can share evenly."""

EAGER = ("range", "roundrobin")
ASSIGNORS = {
    CONFLUENT: (*EAGER, "cooperative-sticky"),
    KAFKA_PYTHON: (*EAGER, "sticky", "cooperative-sticky"),
    AIOKAFKA: (*EAGER, "sticky"),
    JAVA: (*EAGER, "sticky", "cooperative-sticky"),
}


@dataclass(frozen=True)
class Company:
    """The members of a group in the order in which they come: the first will leave, the last will be
    killed."""

    libraries: tuple[str, ...]
    assignors: tuple[str, ...]

    def __str__(self) -> str:
        return self.libraries[0] if self.is_of_one_library else "-and-".join(self.libraries)

    @property
    def is_of_one_library(self) -> bool:
        return len(set(self.libraries)) == 1


COMPANIES = [
    *(Company((library,) * 3, assignors) for library, assignors in ASSIGNORS.items()),
    Company((CONFLUENT, KAFKA_PYTHON, AIOKAFKA, JAVA), EAGER),
    Company((KAFKA_PYTHON, AIOKAFKA, JAVA), ("sticky",)),
    Company((CONFLUENT, KAFKA_PYTHON, JAVA), ("cooperative-sticky",)),
]


@dataclass
class Act:
    """One change of the group, and who held what before and after it."""

    what: str
    began_ns: int
    ended_ns: int
    before: dict[str, set[Partition]]
    after: dict[str, set[Partition]]
    assigned: dict[str, set[Partition]]
    """The broker's description of the assignment afterwards, by client id."""

    @property
    def stayed(self) -> list[str]:
        return sorted(self.before.keys() & self.after.keys())


@dataclass
class Play:
    """What one assignor did with one company."""

    assignor: str
    group: str
    members: list[Client] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    rebalances: list[tuple[str, str]] = field(default_factory=list)

    @property
    def partitions(self) -> set[Partition]:
        return {(self.group, partition) for partition in range(PARTITIONS)}

    def __repr__(self) -> str:
        return f"<{self.assignor}: " + ", ".join(act.what for act in self.acts) + ">"


def perform(company: Company, assignor: str, fleet: Fleet, admin: Client, lock: threading.Lock) -> Play:
    """Play all acts; a TimeoutError names the change after which the partitions were not shared evenly."""
    play = Play(assignor, f"{assignor}-of-{company}")
    with lock:
        admin.call("create_topics", topics=[{"name": play.group, "partitions": PARTITIONS}])
    here: list[Client] = []

    def act(what: str, change: Any) -> None:
        before, began_ns = holdings(here), time.monotonic_ns()
        change()
        eventually(f"even shares after: {what}", lambda: even(play, here), SESSION_MS / 1000 + 30, among=here)
        assignments: dict[str, set[Partition]] = {}
        eventually(
            f"word from the broker after: {what}",
            lambda: assignments.update(described(play, admin, lock)) or assignments == holdings(here),
            20,
            among=here,
        )
        play.acts.append(Act(what, began_ns, time.monotonic_ns(), before, holdings(here), assignments))

    def come(library: str, number: int) -> None:
        name = f"{play.group}-{number}"
        settings = {"session_timeout_ms": SESSION_MS, "metadata_max_age_ms": 10_000, "assignor": assignor}
        here.append(fleet.consumer(library, name, group=play.group, topics=[play.group], **settings))
        play.members.append(here[-1])
        play.rebalances.append(("member-joined", name))

    for number, library in enumerate(company.libraries):
        act(f"{number} comes", lambda library=library, number=number: come(library, number))
    first, last = here[0], here[-1]
    here.remove(first)
    play.rebalances.append(("member-left", first.name))
    act("the first leaves", first.close)
    here.remove(last)
    play.rebalances.append(("session-expired", last.name))
    act("the last is killed", last.kill)
    return play


def holdings(members: list[Client]) -> dict[str, set[Partition]]:
    return {member.name: member.holds() for member in members}


def even(play: Play, members: list[Client]) -> bool:
    """Whether each partition is held once and all members have as many."""
    held = Counter(partition for member in members for partition in member.holds())
    shares = {len(member.holds()) for member in members}
    return held == Counter(play.partitions) and shares == {PARTITIONS // len(members)}


def described(play: Play, admin: Client, lock: threading.Lock) -> dict[str, set[Partition]]:
    with lock:
        description = admin.call("describe_groups", groups=[play.group])[play.group]
    if description["state"] != "Stable":
        return {}
    assert description["assignor"] == play.assignor
    return {m["client_id"]: {(topic, p) for topic, p in m["partitions"]} for m in description["members"]}


# Checks of a play.


def reassigned(play: Play) -> list[str]:
    """Partitions that were taken from a member that had them before an act and after it."""
    return [
        f"{act.what}: {member.name} was told {event['event']} of {kept}"
        for act in play.acts
        for member in play.members
        if member.name in act.stayed
        for event in member.events
        if act.began_ns < event["at"] < act.ended_ns and event["event"] in ("revoked", "lost")
        for topic, partition in event["partitions"]
        if (kept := (topic, partition)) in act.before[member.name] & act.after[member.name]
    ]


def needless_moves(play: Play) -> list[str]:
    """Acts in which one who stayed lost something and got something else: a sticky assignor only takes, or
    only gives."""
    return [
        f"{act.what}: {name} had {sorted(act.before[name])} and has {sorted(act.after[name])}"
        for act in play.acts
        for name in act.stayed
        if not (act.before[name] <= act.after[name] or act.after[name] <= act.before[name])
    ]


def shapes(play: Play) -> list[str]:
    """Assignments that are not of this assignor's kind: a run of neighbours for range, every n-th for
    roundrobin."""
    wrong = []
    for act in play.acts:
        for name, held in act.after.items():
            numbers = sorted(partition for _, partition in held)
            step = {"range": 1, "roundrobin": len(act.after)}.get(play.assignor)
            if step and numbers != list(range(numbers[0], numbers[0] + step * len(numbers), step)):
                wrong.append(f"{act.what}: {name} has {numbers}")
    return wrong


@pytest.mark.parametrize(
    "company",
    [pytest.param(c, id=str(c), marks=[pytest.mark.java] if JAVA in c.libraries else []) for c in COMPANIES],
)
def test_every_partition_has_one_owner(
    company: Company, broker: Broker, fleet: Fleet, admins: Admins
) -> None:
    """After each change all partitions are owned, evenly, in the assignor's pattern, and the broker's
    description agrees with the members; at no moment do two members own one. With a sticky assignor present
    members only give to a newcomer, and only take from a leaver; with cooperative-sticky they never revoke
    what they keep. (With sticky this holds in groups of one library: each has its own format of user data.)
    """
    lock, admin = threading.Lock(), admins["kafka-python"]
    with ThreadPoolExecutor(len(company.assignors)) as pool:
        playing = [pool.submit(perform, company, name, fleet, admin, lock) for name in company.assignors]
        plays = [future.result() for future in playing]
    for play in plays:
        assert len(play.acts) == len(company.libraries) + 2
        assert (play, shared_holds(play.members)) == (play, [])
        assert (play, shapes(play)) == (play, [])
        if "sticky" in play.assignor and (company.is_of_one_library or play.assignor != "sticky"):
            assert (play, needless_moves(play)) == (play, [])
        if "cooperative" in play.assignor:
            assert (play, reassigned(play)) == (play, [])
        if broker.explains:
            rebalances = history(broker, play.group)
            assert (missing(rebalances, play.rebalances), rebalances) == ([], rebalances)


@pytest.mark.parametrize(
    ("libraries", "to"),
    [
        pytest.param((CONFLUENT, KAFKA_PYTHON), "roundrobin", id="roundrobin"),
        pytest.param((AIOKAFKA, JAVA), "roundrobin", id="roundrobin-with-java", marks=pytest.mark.java),
        pytest.param((JAVA, JAVA), "cooperative-sticky", id="cooperative-sticky", marks=pytest.mark.java),
    ],
)
def test_a_group_changes_its_assignor_member_by_member(
    libraries: tuple[str, str], to: str, fleet: Fleet, topic: str, admins: Admins
) -> None:
    """Both members of a range group are restarted, one by one, first with the new assignor in front of
    range, then without range. The group keeps range until both have the other one, and takes that as soon as
    they do; all along every partition has its one owner."""
    admin, everyone = admins["kafka-python"], []
    here: dict[int, Client] = {}

    def sit(seat: int, assignor: str) -> None:
        if seat in here:
            here[seat].close()
        name = f"{assignor.replace(',', '-')}-{seat}"
        here[seat] = fleet.consumer(libraries[seat], name, group=topic, topics=[topic], assignor=assignor)
        everyone.append(here[seat])

    def uses(assignor: str) -> None:
        def settled() -> bool:
            held = holdings(list(here.values()))
            if {len(partitions) for partitions in held.values()} != {2}:
                return False
            group = admin.call("describe_groups", groups=[topic])[topic]
            assignments = {m["client_id"]: {(t, p) for t, p in m["partitions"]} for m in group["members"]}
            return assignments == held and (group["state"], group["assignor"]) == ("Stable", assignor)

        eventually(f"group of {assignor}", settled, 40, among=here.values())

    for seat in (0, 1):
        sit(seat, "range")
    uses("range")
    sit(0, f"{to},range")
    uses("range")
    sit(1, f"{to},range")
    uses(to)
    for seat in (0, 1):
        sit(seat, to)
        uses(to)
    assert shared_holds(everyone) == []
