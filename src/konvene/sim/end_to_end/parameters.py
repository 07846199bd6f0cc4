"""Parameters that a seed draws before an end-to-end run: size, timeouts, and which faults occur.

Swarm testing: each kind of fault is present or absent, frequent or rare, depending on the seed, so that kinds
which mask each other are combined in some seeds and separate in others. Every parameter is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from random import Random

from konvene.sim.end_to_end.acl_churn import Secured, draw_secured
from konvene.sim.end_to_end.clients import ClientSpec, Timeouts
from konvene.sim.end_to_end.secured_clients import draw_clients
from konvene.sim.end_to_end.share_clients import SHARES, Shared, draw_shared
from konvene.sim.end_to_end.transactional_clients import TRANSACTS
from konvene.sim.machine.disk import DiskFaults
from konvene.sim.machine.loop import Order
from konvene.sim.machine.network import NetworkFaults

__all__ = ["FAULTS", "Parameters", "draw"]

FAULTS = (
    "broker-kill", "broker-kill-at-disk", "power-cut", "power-cut-at-disk", "broker-stop", "broker-pause",
    "disk-errors", "client-crash", "client-leave", "client-pause", "partition", "partition-one-way", "reset",
    "deaf", "clock-step",
)  # fmt: skip
"""The fault actions. What the network does at a rate is in `NetworkFaults`."""

DELAYING_FAULTS = frozenset(("broker-pause", "client-pause", "partition", "partition-one-way", "deaf"))
"""Faults by which requests arrive after their senders have given up."""

POWER_FAULTS = frozenset(("power-cut", "power-cut-at-disk"))

CALM_FACTOR = 5
"""How much rarer faults are in runs with an authorizer: only heartbeats of stable members are cached."""

ASSIGNORS = (("range",), ("roundrobin",), ("cooperative-sticky",), ("range", "roundrobin"))


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters that a seed determines."""

    order: Order
    topics: Mapping[str, int]
    clients: tuple[ClientSpec, ...]
    timeouts: Timeouts
    settings: Mapping[str, str]
    network: NetworkFaults
    disk: DiskFaults
    faults: Mapping[str, float]
    """Weight of each kind of fault."""
    gap_s: float
    """Mean time between two faults."""
    sync_ms: float
    """Mean duration of a disk sync."""
    clock_read_ms: float
    """Maximum time that reading the clock takes."""
    transactors: int = 0
    """Number of transactional clients."""
    share: Shared = field(default_factory=Shared)
    """Share groups and the behaviour of their clients."""
    secured: Secured | None = None
    """ACLs of a run with an authorizer."""
    check_every: int = 50
    """Steps between two comparisons of state and logs."""
    drawn: Mapping[str, object] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str]]:
        """Return every parameter and its value as text, for the report."""
        rows = [("order", self.order), ("gap", f"{self.gap_s:.1f} s"), ("sync", f"{self.sync_ms:.1f} ms"),
                ("clock read", f"{self.clock_read_ms:.1f} ms"),
                ("checked every", f"{self.check_every} steps"),
                ("topics", _pairs(self.topics)), ("settings", _pairs(self.settings)),
                ("patience", _pairs(asdict(self.timeouts))), ("network", _pairs(asdict(self.network))),
                ("disk", _pairs(asdict(self.disk))), ("deeds", _pairs(self.faults))]  # fmt: skip
        rows += [(name, _pairs(settings)) for name, settings in self.share.groups.items()]
        return [*rows, *((c.name, _describe_client(c)) for c in self.clients)]


def _pairs(values: Mapping[str, object]) -> str:
    return " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())


def _describe_client(client: ClientSpec) -> str:
    words = [client.job, *client.topics]
    if client.acks != -1:
        words.append(f"with acks {client.acks}")
    if client.group:
        words.append(f"in {client.group}")
    if client.user:
        words.append(f"as {client.user}")
    if client.job == SHARES:
        words.append(_pairs(asdict(client.habits)))
    elif client.group:
        words.append(f"by {'+'.join(client.assignors)}")
    if client.instance_id:
        words.append(f"as {client.instance_id}")
    return " ".join([*words, *(["auto-commit"] if client.auto_commit else [])])


def draw(
    seed: int, *, fault_free: bool = False, transactions: bool = False, share: bool = False,
    secured: bool = False,
) -> Parameters:  # fmt: skip
    """Return the parameters that a seed determines.

    `fault_free`: the same clients, but no faults. `transactions` and `share` add transactional clients and
    share groups. `secured`: instead of all these clients, users of a broker with an authorizer."""
    chance = Random(f"knobs {seed}")
    topics = {f"topic-{i}": chance.randint(1, 4) for i in range(chance.randint(1, 2))}
    synced = chance.random() < 0.75
    faults = {name: chance.choice((0.3, 1.0, 3.0)) for name in FAULTS if chance.random() < 0.6}
    if not synced:
        faults = {name: weight for name, weight in faults.items() if name not in POWER_FAULTS}
    network, disk = _network(chance), _disk(chance)
    requests_in_time = not network.clog and not DELAYING_FAULTS & faults.keys()
    transactors = (
        _transactors(Random(f"transactors {seed}"), tuple(topics), requests_in_time) if transactions else []
    )
    order: Order = chance.choice(("fifo", "hosts", "hosts", "all", "all"))
    clients, timeouts = _clients(chance, tuple(topics)), _timeouts(chance)
    shared = Shared()
    if share:
        shared = draw_shared(
            Random(f"sharers {seed}"), tuple(topics), timeouts.session_ms, transactions=transactions
        )
    security = draw_secured(Random(f"acls {seed}"), timeouts.session_ms) if secured else None
    return Parameters(
        order=order,
        topics=topics,
        clients=_users(Random(f"users {seed}")) if secured else (*clients, *transactors, *_sharers(shared)),
        transactors=len(transactors),
        share=shared,
        secured=security,
        timeouts=timeouts,
        settings=_settings(chance, synced=synced)
        | _heartbeats(Random(f"heartbeats {seed}"))
        | _cleaning(Random(f"cleaning {seed}"))
        | (_transaction_settings(Random(f"transactions {seed}")) if transactions else {})
        | dict(shared.settings)
        | dict(security.settings if security is not None else {}),
        network=NetworkFaults() if fault_free else network,
        disk=DiskFaults() if fault_free else disk,
        faults={} if fault_free else faults,
        gap_s=chance.choice((1.0, 3.0, 10.0)) * (CALM_FACTOR if secured else 1),
        sync_ms=chance.choice((0.2, 3.0, 30.0)),
        clock_read_ms=chance.choice((0.0, 0.0, 0.5, 3.0)),
    )


def _network(chance: Random) -> NetworkFaults:
    def maybe(most: float) -> float:
        return chance.random() ** 2 * most if chance.random() < 0.6 else 0.0

    return NetworkFaults(
        latency_min_ms=chance.choice((0.05, 1.0, 10.0)), latency_mean_ms=chance.choice((0.2, 3.0, 40.0)),
        split=maybe(0.8), clog=maybe(0.02), clog_mean_ms=chance.choice((300.0, 1500.0, 5000.0)),
        reset=maybe(0.01), refuse=maybe(0.2), window=chance.choice((512, 16 * 1024, 256 * 1024)),
    )  # fmt: skip


def _disk(chance: Random) -> DiskFaults:
    """Draw the error rates that the disk has while the fault `disk-errors` is active."""
    return DiskFaults(
        read=chance.choice((0.0, 0.02)), write=chance.choice((0.0, 0.01, 0.2)),
        sync=chance.choice((0.0, 0.05, 0.5)), full=chance.choice((0.0, 0.5, 1.0)),
        garbage=chance.choice((0.0, 0.0, 0.5)),
    )  # fmt: skip


def _timeouts(chance: Random) -> Timeouts:
    session = chance.choice((6_000, 10_000))
    return Timeouts(
        session_ms=session, rebalance_ms=chance.choice((session, 2 * session)), heartbeat_ms=session // 4,
        request_ms=chance.choice((3_000, 8_000)), api_ms=20_000,
        metadata_ms=chance.choice((5_000, 15_000)),
    )  # fmt: skip


def _settings(chance: Random, *, synced: bool) -> dict[str, str]:
    return {
        "konvene.log.fsync.topics": str(synced).lower(),
        "offsets.topic.num.partitions": str(chance.randint(1, 3)),
        "group.initial.rebalance.delay.ms": str(chance.choice((0, 500, 3000))),
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",
        "log.flush.offset.checkpoint.interval.ms": str(chance.choice((3_000, 60_000))),
        "log.flush.scheduler.interval.ms": str(chance.choice((1_000, 60_000))),
        "connections.max.idle.ms": str(chance.choice((15_000, 600_000))),
        "socket.request.max.bytes": "1000000",
        "queued.max.request.bytes": str(chance.choice((-1, 1_000_000))),
        "konvene.audit.enable": str(chance.random() < 0.5).lower(),
    }


def _heartbeats(chance: Random) -> dict[str, str]:
    """Draw the settings that decide whether the broker delays its responses to heartbeats that have no news
    ("holds" them)."""
    return {
        "konvene.heartbeat.policy": chance.choice(("responsive", "responsive", "kafka")),
        "konvene.heartbeat.hold.classic.clients": chance.choice(("konvene", "konvene", "librdkafka")),
    }


def _cleaning(chance: Random) -> dict[str, str]:
    """Draw settings of the log cleaner: in half of the seeds, segments roll early and are cleaned
    continually."""
    if chance.random() < 0.5:
        return {}
    return {
        "log.roll.ms": chance.choice(("300", "3000", "20000")),
        "log.cleaner.backoff.ms": chance.choice(("100", "1000", "5000")),
        "log.cleaner.min.cleanable.ratio": chance.choice(("0.01", "0.5")),
        "log.cleaner.delete.retention.ms": chance.choice(("10000", "86400000")),
        "log.segment.delete.delay.ms": chance.choice(("0", "1000", "60000")),
        "log.cleaner.dedupe.buffer.size": chance.choice(("134217728", "2097152")),
    }


def _transaction_settings(chance: Random) -> dict[str, str]:
    """Draw the broker settings of a run with transactions; with them the broker does not hold heartbeats of
    konvene's client, that is, it does not delay its responses.

    A held heartbeat may outlast the request timeout of a client that was slow to send it; such timeouts are
    not the subject of these runs."""
    return {
        "konvene.heartbeat.hold.classic.clients": "librdkafka",
        "transaction.state.log.num.partitions": str(chance.randint(1, 2)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
    }


def _transactors(chance: Random, topics: tuple[str, ...], requests_in_time: bool) -> list[ClientSpec]:
    """Draw the transactional clients with their transaction.version.

    `requests_in_time`: no fault of the run lets a request arrive after its sender has given up. Version 1 is
    drawn only then, because a late EndTxn could end the next transaction of the same epoch (KIP-890)."""
    assignors = chance.choice(ASSIGNORS)
    return [
        ClientSpec(
            f"transactor-{i + 1}", TRANSACTS, group="transactors", topics=topics, assignors=assignors,
            instance_id=f"static-t-{i + 1}" if chance.random() < 0.3 else None,
            max_poll_records=chance.choice((None, 3)),
            transaction_version=chance.choice((1, 2, 2) if requests_in_time else (2, 2, 2)),
        )
        for i in range(chance.randint(1, 3))
    ]  # fmt: skip


def _sharers(shared: Shared) -> list[ClientSpec]:
    return [
        ClientSpec(name, SHARES, group=group, topics=shared.topics[group], habits=shared.habits[name])
        for name, group in shared.members.items()
    ]


def _users(chance: Random) -> tuple[ClientSpec, ...]:
    gap_s = chance.choice((0.3, 1.0, 3.0))
    return tuple(
        ClientSpec(name, job, group=group, user=user, gap_s=gap_s)
        for name, job, group, user in draw_clients(chance)
    )


def _clients(chance: Random, topics: tuple[str, ...]) -> list[ClientSpec]:
    clients = [
        ClientSpec(
            "producer-1", "produce", topics=topics, gap_s=chance.choice((0.3, 2.0)),
            acks=chance.choice((-1, -1, 1, 0)),
        )
    ]  # fmt: skip
    for i in range(chance.randint(1, 2)):
        clients.append(ClientSpec(f"once-{i + 1}", "once", topics=topics, gap_s=chance.choice((0.3, 2.0))))
    for g in range(chance.randint(1, 2)):
        assignors = chance.choice(ASSIGNORS)
        for m in range(chance.randint(1, 3)):
            name = f"consumer-{g + 1}-{m + 1}"
            clients.append(
                ClientSpec(
                    name, "consume", group=f"group-{g + 1}", topics=topics, assignors=assignors,
                    instance_id=f"static-{g + 1}-{m + 1}" if chance.random() < 0.4 else None,
                    auto_commit=chance.random() < 0.3, max_poll_records=chance.choice((None, None, 3)),
                )
            )  # fmt: skip
    if chance.random() < 0.7:
        clients.append(ClientSpec("admin-1", "admin", gap_s=chance.choice((1.0, 5.0))))
    return clients
