"""Sessions of two seconds (`connections.max.reauth.ms`) under load, with clients of every library.

Java's client, librdkafka and kafka-python authenticate again on their connections; aiokafka does not, so that
its connections are closed and opened again. Heartbeats are held, and no record may be lost.
`python -m tests.against.security.sessions --minutes 10` runs it for longer and prints what it saw.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..clients import LIBRARIES, Client, Fleet, eventually, fleet_of
from ..conftest import java_is_missing
from ..stories import gaps, moves_within, steps_back
from .cluster import SecuredCluster, secured_cluster

SESSION_MS = 2000
SETTINGS = {"connections.max.reauth.ms": str(SESSION_MS)}
MODERN = ("java", "confluent-kafka")
"""Libraries whose members use the consumer protocol, with held heartbeats; others join a classic group."""

TOPIC = "orders"
PARTITIONS = 4
RATE_PER_S = 40
WITHIN_S = 60
USER = "worker"
RIGHTS = (f"READ,WRITE topic:{TOPIC}", "READ group:readers-*")


@dataclass
class Outcome:
    """What was seen of one run; every list is empty in a run without loss."""

    acked: int = 0
    not_acked: list[dict[str, Any]] = field(default_factory=list)
    """Totals of each producer whose records were not all acknowledged."""
    log: list[str] = field(default_factory=list)
    """Values that the log has not exactly once."""
    unread: dict[str, int] = field(default_factory=dict)
    """Number of values that a group has not read, by group, if any."""
    gaps: list[str] = field(default_factory=list)
    commits_back: list[str] = field(default_factory=list)
    moves: list[Any] = field(default_factory=list)
    """Assignments and revocations after the groups were stable."""
    errors: dict[str, int] = field(default_factory=dict)
    """Errors that clients have reported, by library and name; not a loss by themselves."""

    @property
    def has_loss(self) -> bool:
        return any((self.not_acked, self.log, self.unread, self.gaps, self.commits_back))


def play(cluster: SecuredCluster, fleet: Fleet, producers: tuple[str, ...], each: int) -> Outcome:
    """Let producers of these libraries write `each` values, read by two groups; return what was seen."""
    cluster.create_topics(TOPIC, partitions=PARTITIONS)
    cluster.add_users(USER)
    cluster.allow(USER, *RIGHTS)
    libraries = [name for name in LIBRARIES if name != "java" or not java_is_missing()]
    groups = {
        "readers-consumer": [name for name in libraries if name in MODERN],
        "readers-classic": [name for name in libraries if name not in MODERN],
    }
    members = {
        group: [member(cluster, fleet, group, library) for library in names]
        for group, names in groups.items()
    }
    everyone = [one for group in members.values() for one in group]
    eventually("assignments", lambda: all(one.holds() for one in everyone), WITHIN_S, among=everyone)
    writers = [
        fleet.producer(library, f"writer-{library}", idempotence=True, **cluster.scram(USER).of(library))
        for library in producers
        if library in libraries
    ]
    for writer in writers:
        writer.call("stream", topic=TOPIC, prefix=f"{writer.library} ", count=each, rate_per_s=RATE_PER_S)
    stable_ns = max((e["at"] for one in everyone for e in one.of("assigned")), default=0)
    for writer in writers:
        within_s = WITHIN_S + 2 * each / RATE_PER_S
        writer.until(f"{each} acknowledged values", lambda w=writer: len(w.acked()) >= each, within_s)
    return examined(cluster, members, writers, stable_ns)


def member(cluster: SecuredCluster, fleet: Fleet, group: str, library: str) -> Client:
    fields: dict[str, Any] = {"group": group, "topics": [TOPIC], "commit": "sync"}
    if library in MODERN:
        fields["protocol"] = "consumer"
    return fleet.consumer(library, f"reader-{library}", **fields, **cluster.scram(USER).of(library))


def examined(
    cluster: SecuredCluster, members: dict[str, list[Client]], writers: list[Client], stable_ns: int
) -> Outcome:
    outcome = Outcome()
    wanted: set[str] = set()
    for writer in writers:
        totals = writer.call("settle", WITHIN_S)
        wanted |= set(writer.acked())
        if totals["failed"] or totals["acked"] != totals["sent"]:
            outcome.not_acked.append({"library": writer.library, **totals})
    outcome.acked = len(wanted)
    found = Counter(cluster.read(TOPIC, lambda values: len(values) >= len(wanted), PARTITIONS))
    outcome.log = sorted({value for value, count in found.items() if count != 1} | (wanted ^ set(found)))
    everyone = [one for group in members.values() for one in group]
    for group, ones in members.items():

        def unread(ones: list[Client] = ones) -> set[str]:
            return wanted - {value for one in ones for value in one.values()}

        try:
            eventually("every value", lambda unread=unread: not unread(), WITHIN_S)
        except TimeoutError:
            outcome.unread[group] = len(unread())
        outcome.gaps += gaps(ones)
        outcome.commits_back += steps_back(ones)
        outcome.moves += moves_within(ones, stable_ns + 1, 1 << 63)
    for one in [*everyone, *writers]:
        for event in one.events:
            if "error" in event:
                key = f"{one.name}: {event['error']['name']}"
                outcome.errors[key] = outcome.errors.get(key, 0) + 1
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    minutes = parser.parse_args().minutes
    with (
        tempfile.TemporaryDirectory() as folder,
        secured_cluster(Path(folder) / "cluster", SETTINGS) as cluster,
        fleet_of(cluster.broker.bootstrap, Path(folder) / "clients") as fleet,
    ):
        outcome = play(cluster, fleet, LIBRARIES, int(minutes * 60 * RATE_PER_S))
    sys.stdout.write(json.dumps(vars(outcome), indent=2) + "\n")
    return 1 if outcome.has_loss else 0


if __name__ == "__main__":
    sys.exit(main())
