"""Start the brokers of a profile and play conversations on them, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.against.brokers import KINDS, Broker, Kafka, Konvene
from tests.differential import walks
from tests.differential.consumer_walks import ConsumerWalk
from tests.differential.differences import is_known_difference
from tests.differential.playing import Player, await_ready
from tests.differential.recordings import Conversation, Step
from tests.differential.shares_walks import SharesWalk
from tests.differential.streams_walks import StreamsWalk
from tests.differential.transactions_walks import TransactionsWalk

PLAIN = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offset.metadata.max.bytes": "50",
}
CONSUMER = PLAIN | {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "300000",
    "group.consumer.max.session.timeout.ms": "300000",
}
STREAMS = CONSUMER | {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.session.timeout.ms": "100",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.session.timeout.ms": "300000",
    "group.streams.max.session.timeout.ms": "300000",
}
TRANSACTIONS = CONSUMER | {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
SHARES = CONSUMER | {
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.append.linger.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.session.timeout.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.session.timeout.ms": "300000",
    "group.share.max.session.timeout.ms": "300000",
    "group.share.record.lock.duration.ms": "300000",
    "group.share.max.record.lock.duration.ms": "300000",
}
PROFILES = {
    "plain": PLAIN,
    "delayed": PLAIN | {"group.initial.rebalance.delay.ms": "300"},
    "expiring": PLAIN | {"offsets.retention.check.interval.ms": "500"},
    "crowded": PLAIN | {"group.max.size": "2"},
    "restart": PLAIN,
    "consumer": CONSUMER,
    "interval": CONSUMER | {"group.consumer.assignment.interval.ms": "1000"},
    "small": CONSUMER | {"group.consumer.max.size": "2"},
    "smallclassic": CONSUMER | {"group.max.size": "2"},
    "upgrade": CONSUMER | {"group.consumer.migration.policy": "upgrade"},
    "downgrade": CONSUMER | {"group.consumer.migration.policy": "downgrade"},
    "disabled": CONSUMER | {"group.consumer.migration.policy": "disabled"},
    "streams": STREAMS,
    "streams-interval": STREAMS | {"group.streams.assignment.interval.ms": "2000"},
    "streams-delayed": STREAMS | {"group.streams.initial.rebalance.delay.ms": "2000"},
    "streams-small": STREAMS | {"group.streams.max.size": "2"},
    "streams-standby": STREAMS | {"group.streams.num.standby.replicas": "1"},
    "streams-restart": STREAMS,
    "streams-limits": STREAMS,
    "streams-timed": STREAMS,
    "streams-expiring": STREAMS | {"offsets.retention.check.interval.ms": "500"},
    "transactions": TRANSACTIONS,
    "transactions-timed": TRANSACTIONS,
    "transactions-unverified": TRANSACTIONS | {"transaction.partition.verification.enable": "false"},
    "transactions-restart": TRANSACTIONS,
    "shares": SHARES,
    "shares-small": SHARES | {"group.share.max.size": "2", "group.share.max.share.sessions": "2"},
    "shares-timed": SHARES,
    "shares-restart": SHARES,
}
"""Broker configs of each profile. Each conversation of a profile in `ALONE` gets its own broker."""

ALONE = {"restart", "streams-restart", "streams-limits", "transactions-restart", "shares-restart"}

ONLY = {
    Kafka: {"num.io.threads": "1", "num.network.threads": "1", "group.coordinator.append.linger.ms": "0"},
    Konvene: {
        "konvene.log.fsync.internal": "false",
        "konvene.heartbeat.policy": "kafka",
        "group.streams.assignors": "sticky",
    },
}
"""Configs of one broker alone: Kafka processes requests in the order of arrival, konvene does not fsync, and
konvene's default task assignor is Kafka's only one."""

SETTLE_S = 0.15
"""How long to wait for further responses of Kafka after each line: its timers have their own thread."""

MOST = int(os.environ.get("KONVENE_DIFFERENTIAL_MOST", "1"))
"""How many differences of a conversation to report; later ones may follow from the first."""

BESIDE: type[Broker] = KINDS[os.environ.get("KONVENE_DIFFERENTIAL_BESIDE", "konvene")]
"""The broker to compare with Kafka: konvene, or a second Kafka to find nondeterministic conversations."""

AT_ONCE = 16
"""How many conversations are played at a time; each one mostly waits."""
STREAMS_HEARTBEAT = 88
AnyWalk = walks.Walk | ConsumerWalk | StreamsWalk | TransactionsWalk | SharesWalk
T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Stage:
    """A running broker of a profile."""

    broker: Broker
    transactional: bool = False
    shares: bool = False

    @property
    def settle_s(self) -> float:
        return SETTLE_S if isinstance(self.broker, Kafka) else 0.0

    def player(self, name: str) -> Player:
        return Player(
            self.broker.port, f"{name}.", self.settle_s, self._restart, self.transactional, self.shares
        )

    def _restart(self, cleanly: bool, settings: dict[str, str]) -> None:
        if cleanly:
            self.broker.stop()
        else:
            self.broker.kill9()
        if settings:
            self.broker.settings |= settings
            self.broker.prepare()
        self.broker.start()


@contextmanager
def running_stage(kind: type[Broker], directory: Path, profile: str) -> Iterator[Stage]:
    broker = kind(directory, PROFILES[profile] | ONLY[kind])
    broker.start()
    try:
        shares = profile.startswith("shares")
        transactional = shares or profile.startswith("transactions")
        await_ready(broker.port, transactions=transactional, shares=shares)
        yield Stage(broker, transactional, shares)
    finally:
        broker.kill9()


def play_anew(stage: Stage, conversation: Conversation, name: str) -> list[Step]:
    """Play a written conversation and return its steps."""
    player = stage.player(name)
    try:
        return [(line, player.play(line)) for line in conversation.lines]
    finally:
        player.close()


def walk_anew(stage: Stage, walk: AnyWalk, name: str) -> list[Step]:
    """Play a random walk and return its steps; each line may depend on the broker's responses."""
    player = stage.player(name)
    steps: list[Step] = []
    try:
        while len(steps) < walk.steps:
            line = walk.line(player.speaker.of, player.waiting)
            answers = player.play(line)
            steps.append((line, answers))
            if any(a.startswith(walks.HASTY) for a in answers) or line.split()[1] == walks.HASTY:
                steps.append((walks.AFTERWARDS, player.play(walks.AFTERWARDS)))
        steps += [(line, player.play(line)) for line in walk.last]
    finally:
        player.close()
    return steps


def difference(stage: Stage, name: str, steps: list[Step]) -> str | None:
    """Replay the steps; return a report of the unexpected differences, or None."""
    player = stage.player(name)
    before: list[str] = []
    found: list[str] = []
    try:
        for number, (line, kafka) in enumerate(steps, 1):
            konvene = player.play(line, len(kafka))
            if konvene != kafka and not is_known_difference(kafka, konvene):
                report = [f"{name}, step {number}", *before[-24:], f"> {line}"]
                report += [f"    kafka:   {a}" for a in kafka] or ["    kafka:   no response"]
                report += [f"    konvene: {a}" for a in konvene] or ["    konvene: no response"]
                found.append("\n".join(report))
                if len(found) == MOST:
                    break
            before += [f"  {line}", *(f"      {a}" for a in kafka)]
    finally:
        player.close()
    return "\n\n".join(found) or None


def run_concurrently(work: Callable[[T], R], items: list[T], most: int) -> list[R]:
    """Apply `work` to each item in at most `most` threads; return the results in the order of the items."""
    with ThreadPoolExecutor(most) as pool:
        return list(pool.map(work, items))
