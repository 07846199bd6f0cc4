"""The fault model: which faults a run may have, how often, and for how long.

Network. Requests and responses are lost (a lost response belongs to a request that was carried out), delayed,
sometimes by seconds, or delivered twice or much later; a connection breaks in the middle of a frame, which
the client notices at once. A client can be cut off from the coordinator for a while, in one or both
directions.

Clients crash and return (a static member under its instance id, another one as a new member), leave properly,
join, sleep through their session and continue, and are slow to revoke partitions or never do. Leaders are
slow to assign. A returning client may have other timeouts, topics and assignors than before. Clients commit
for topics that they do not read, and some without being members. Hostile clients invent ids and generations,
use those of others, take the instance id of another client, change their subscription with every request, or
lead a group without assigning anything.

The coordinator dies and another one reads the log: between two requests, after an append and before it is
durable, after it is durable and before the response is sent, or while it is loading; or it lives on beside
its successor and does not know that it was deposed. Appends fail or exceed the maximum batch size, syncs
fail, and whole batches at the end of the log that were not durable are lost. The log is compacted at any
time, in part or completely, with its tombstones or without. Torn writes and flipped bits belong to
`sim.end_to_end`, where the real log runs on a simulated disk.

The cluster. Topics are created, deleted, recreated and grow, settings change, an administrator removes
members, offsets and groups, and the wall clock steps by up to an hour.

Consumer groups. Assignments and regular expressions are computed in the background and arrive after a delay.
Topics are deleted and created again, and new ones match expressions. Members change their subscription, and a
returning client may use the other protocol.

Transactions. Transactional members die, dawdle and abort within a transaction, and some share their
transactional id. The transaction coordinator dies like the group coordinator, or both at the same time,
between any two steps of an end: decided, durable, each marker, complete. Ids have few epochs left, and expire
soon.

Share groups. Members stall until others have their records, reject records, and renew their locks. The share
partition leader dies with all locks and sessions, the share coordinator dies with the writes that are under
way, or both do. Retention deletes records that are not read yet.

Streams groups. Applications die and are rolled process by process, and find their state on their disks.
Their internal topics are created late or not at all, are deleted, or no longer match their sources, which
are created late and grow. A member requests the shutdown of its application. In mode `kip` applications are
rolled to their next topologies, sometimes only in part, and from the classic to the streams protocol or back.
Some members never report task offsets, others do not know all end offsets.

Each run draws from its seed which faults occur and how often (`PARAMETERS`, `FAULTS`). Runs with few kinds of
faults reach states that runs with all of them never reach. The drawn values are printed.

After the faults comes the liveness phase (`sim.invariants.liveness`). Nothing fails any more, dead clients
stay dead or have returned, and what must happen eventually has to happen within its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

Value = int | float | str
"""Value of a parameter."""


class Parameter(NamedTuple):
    """A parameter of a run, whose value `draw` derives from the run's seed."""

    name: str
    fault_free: Value
    """Value in a run without faults."""
    draw: Callable[[Random], Value]
    description: str


def _often_none(most: float, none: float = 0.3) -> Callable[[Random], float]:
    """Return a function that draws 0 with probability `none`, else a uniform value up to `most`."""
    return lambda r: 0.0 if r.random() < none else round(r.uniform(0, most), 4)


def _log_uniform(low: float, high: float) -> Callable[[Random], int]:
    return lambda r: round(math.exp(r.uniform(math.log(low), math.log(high))))


def _one_of(*values: Value) -> Callable[[Random], Value]:
    return lambda r: r.choice(values)


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("members", 8, lambda r: r.randint(2, 8), "members at the start"),
    Parameter("partitions", 32, _one_of(1, 4, 8, 32), "partitions of all topics"),
    Parameter("groups", 1, _one_of(1, 1, 1, 2), "number of groups"),
    Parameter("assignor", "range", _one_of("range", "roundrobin", "cooperative-sticky", "mixed"),
         "client-side assignor of classic members; mixed: members differ"),
    Parameter("type", "consumer", _one_of(*["consumer"] * 7, "connect"), "protocol type of the members"),
    Parameter("session.ms", 10_000, _one_of(6_000, 10_000, 10_000, 45_000),
         "session.timeout.ms of the members"),
    Parameter("rebalance.ms", 30_000, _one_of(8_000, 30_000, 60_000), "max.poll.interval.ms of the members"),
    Parameter("heartbeat.ms", 3_000, _one_of(3_000, 3_000, 1_000), "heartbeat.interval.ms of the members"),
    Parameter("initial.delay.ms", 3000, _one_of(0, 0, 500, 3000), "group.initial.rebalance.delay.ms"),
    Parameter("max.size", 1000, _one_of(1000, 1000, 1000, 3), "group.max.size"),
    Parameter("retention.minutes", 10_080, _one_of(10_080, 1), "offsets.retention.minutes"),
    Parameter("varied", 0, _one_of(0, 0, 1), "1: members differ in topics, timeouts and assignors"),
    Parameter("simple", 0, _one_of(0, 1), "clients that commit without being members"),
    Parameter("aside", 0, _one_of(0, 0, 1), "1: members commit for a topic that none of them reads"),
    Parameter("hostile", 0, lambda r: 0 if r.random() < 0.75 else r.randint(1, 2),
         "hostile clients, which send arbitrary requests"),
    Parameter("request.loss", 0.0, _often_none(0.3), "fraction of requests that are lost"),
    Parameter("response.loss", 0.0, _often_none(0.4), "fraction of responses that are lost"),
    Parameter("request.again", 0.0, _often_none(0.2), "fraction of requests that are delivered again, later"),
    Parameter("reset", 0.0, _often_none(0.05, 0.5), "fraction of frames in which the connection breaks"),
    Parameter("latency.ms", 1, _log_uniform(1, 100), "mean one-way latency of a message"),
    Parameter("clog", 0.0, _often_none(0.02, 0.5), "fraction of messages that are delayed by seconds"),
    Parameter("slow.callback", 0.0, lambda r: round(r.uniform(0.1, 2), 2) if r.random() < 0.1 else 0.0,
         "maximum duration of a revocation, in rebalance timeouts"),
    Parameter("slow.leader", 0.0, lambda r: round(r.uniform(0.1, 1.2), 2) if r.random() < 0.2 else 0.0,
         "maximum time that a leader takes to assign, in rebalance timeouts"),
    Parameter("append.fails", 0.0, _often_none(0.05, 0.5), "fraction of appends that fail"),
    Parameter("too.large", 0.0, _often_none(0.01, 0.7), "fraction of batches that exceed the maximum size"),
    Parameter("sync.fails", 0.0, _often_none(0.02, 0.7), "fraction of syncs that fail"),
    Parameter("sync.ms", 1, _log_uniform(1, 200), "mean time until an append is durable"),
    Parameter("load.ms", 1, _log_uniform(1, 3000), "mean time to load the log"),
    Parameter("compaction", 0.0, _often_none(0.7, 0.5), "fraction of loads that read a compacted log"),
    Parameter("fault.every", 0, _log_uniform(15, 400),
         "mean number of steps between two faults; 0: no faults"),
)  # fmt: skip

CONSUMER_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("assignment.interval.ms", 0, _one_of(0, 0, 0, 1_000, 5_000),
         "group.consumer.assignment.interval.ms"),
    Parameter("heavy", 1_000_000, _one_of(1_000_000, 1_000_000, 1, 12),
         "number of members and partitions above which an assignment is computed in the background"),
    Parameter("work.ms", 1, _log_uniform(1, 20_000),
         "mean duration of background work: assignments, regular expressions, creating topics"),
    Parameter("regex", 0.0, _often_none(0.6, 0.5),
         "fraction of members that subscribe to a regular expression"),
    Parameter("regex.refresh.ms", 600_000, _one_of(600_000, 20_000),
         "group.consumer.regex.refresh.interval.ms"),
    Parameter("server.assignor", "", _one_of("", "", "uniform", "range", "mixed"),
         "server-side assignor that members request; empty: the default"),
    Parameter("old.epochs", 0.0, _often_none(0.3, 0.5),
         "fraction of commits that use the previous member epoch"),
    Parameter("policy", "bidirectional", _one_of(*["bidirectional"] * 5, "upgrade", "downgrade", "disabled"),
         "group.consumer.migration.policy"),
    Parameter("upgraded", 0.5, lambda r: round(r.uniform(0.1, 0.9), 2),
         "fraction of members of a migrated group that start with the consumer protocol"),
)  # fmt: skip
"""Parameters of groups whose coordinator assigns; drawn only in runs of such groups."""

HEARTBEAT_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("heartbeat.policy", "responsive", _one_of("responsive", "responsive", "kafka"),
         "konvene.heartbeat.policy"),
)  # fmt: skip
"""Parameters of the same groups, drawn after all others so that older seeds keep their values."""

STREAMS_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("topology", "stateful", _one_of("stateless", "stateful", "stateful", "chain", "two", "joined"),
         "topology of the applications, from `members.streams.topologies`"),
    Parameter("threads", 1, _one_of(1, 2, 2), "stream threads (members) per process"),
    Parameter("instances", 0, _one_of(0, 0, 3, 1), "every n-th member is static; 0: none"),
    Parameter("standbys", 0, _one_of(0, 0, 1, 1, 2), "group.streams.num.standby.replicas"),
    Parameter("streams.delay.ms", 0, _one_of(0, 0, 3_000), "group.streams.initial.rebalance.delay.ms"),
    Parameter("streams.mode", "kafka", _one_of("kafka", "kafka", "kafka", "kip"), "konvene.streams.mode"),
    Parameter("restore.rate", 1_000, _log_uniform(10, 2_000),
         "changelog records restored per second"),
    Parameter("endpoints", 0.0, _often_none(1, 0.5), "fraction of members that report an endpoint"),
    Parameter("create.fails", 0.0, _often_none(0.6, 0.5), "fraction of internal topics whose creation fails"),
    Parameter("late.topic", 0, _one_of(0, 0, 0, 1), "1: a source topic is created after the members start"),
)  # fmt: skip
"""Parameters of streams groups, drawn after all others."""

WARMUP_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("warmups", 2, _one_of(0, 1, 2, 2, 3), "group.streams.num.warmup.replicas"),
    Parameter("recovery.lag", 10_000, _one_of(0, 0, 20, 100, 10_000),
         "group.streams.acceptable.recovery.lag"),
    Parameter("offsets.ms", 10_000, _one_of(1_000, 10_000), "group.streams.task.offset.interval.ms"),
    Parameter("silent", 0.0, _often_none(0.5, 0.6),
         "fraction of members that never report task offsets"),
    Parameter("unknown.ends", 0.0, _often_none(0.7, 0.5),
         "fraction of changelog end offsets that members do not know"),
)  # fmt: skip
"""Parameters of warm-up tasks, drawn after the other parameters of streams groups."""

STREAMS_MIGRATION_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("streams.upgraded", 0.5, lambda r: r.choice([0.0, 0.0, 1.0, round(r.uniform(0.1, 0.9), 2)]),
         "fraction of members that start with the streams protocol before the first roll"),
    Parameter("streams.migration.policy", "bidirectional",
         _one_of(*["bidirectional"] * 7, "upgrade", "downgrade", "disabled"),
         "konvene.streams.migration.policy"),
)  # fmt: skip
"""Parameters of applications that migrate between the protocols; they mostly run in mode `kip`."""

TRANSACTION_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("transaction.version", 2, _one_of(2, 2, 2, 1, 0),
         "level of the feature transaction.version"),
    Parameter("transaction.timeout.ms", 20_000, _one_of(2_000, 10_000, 20_000, 60_000),
         "transaction.timeout.ms of producers"),
    Parameter("output.partitions", 2, _one_of(1, 2, 3), "partitions of the output topic"),
    Parameter("abort", 0.0, _often_none(0.6, 0.3), "fraction of transactions that the application aborts"),
    Parameter("dawdle", 0.0, _often_none(0.3, 0.5),
         "fraction of transactions that stay open for up to two timeouts"),
    Parameter("marker.ms", 1, _log_uniform(1, 2_000), "mean time until a transaction marker arrives"),
    Parameter("twins", 0, _one_of(0, 0, 0, 1), "1: two members share a transactional id"),
    Parameter("worn", 0, _one_of(0, 0, 0, 1),
         "1: transactional ids have few epochs left at the start"),
    Parameter("committers", 0, _one_of(0, 1, 2), "clients without membership that commit in transactions"),
    Parameter("fsync", 1, _one_of(1, 0),
         "konvene.log.fsync.topics: records are synced before the response"),
    Parameter("id.expiration.ms", 604_800_000, _one_of(604_800_000, 604_800_000, 30_000),
         "transactional.id.expiration.ms"),
)  # fmt: skip
"""Parameters of transactional members, drawn after all others."""


SHARE_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("lock.ms", 5_000, _one_of(1_000, 3_000, 5_000, 15_000), "group.share.record.lock.duration.ms"),
    Parameter("delivery.limit", 5, _one_of(2, 3, 5, 10), "group.share.delivery.count.limit"),
    Parameter("record.locks", 2_000, _one_of(2_000, 100), "group.share.partition.max.record.locks"),
    Parameter("snapshot.updates", 500, _one_of(500, 20, 3, 0),
         "share.coordinator.snapshot.update.records.per.snapshot"),
    Parameter("cold.ms", 300_000, _one_of(300_000, 10_000),
         "share.coordinator.cold.partition.snapshot.interval.ms"),
    Parameter("initialize.retry.ms", 30_000, _one_of(30_000, 2_000),
         "group.share.initialize.retry.interval.ms"),
    Parameter("poll.records", 50, _one_of(2, 50, 500), "max.poll.records of some members"),
    Parameter("process.ms", 10, _log_uniform(1, 2_000), "mean time to process fetched records"),
    Parameter("stall", 0.0, _often_none(0.3, 0.5),
         "fraction of batches whose processing may outlast the record locks"),
    Parameter("refuses", 0.0, _often_none(0.8, 0.3),
         "fraction of records that are released, rejected or renewed"),
    Parameter("mixed.acks", 0.0, _often_none(0.5, 0.5),
         "fraction of records that are acknowledged differently from the one before"),
    Parameter("write.fails", 0.0, _often_none(0.1, 0.4),
         "fraction of share state writes that fail"),
    Parameter("transactional", 0.0, _often_none(0.5, 0.5), "fraction of batches that are transactional"),
    Parameter("read.committed", 0, _one_of(0, 1), "1: share.isolation.level of all groups is read_committed"),
    Parameter("share.sessions", 2_000, _one_of(2_000, 2_000, 2, 4), "group.share.max.share.sessions"),
    Parameter("prune.ms", 300_000, _one_of(300_000, 2_000, 20_000),
         "share.coordinator.state.topic.prune.interval.ms"),
    Parameter("dead.letters", 0, _one_of(0, 0, 1),
         "1: archived records are copied to a dead letter topic first"),
)  # fmt: skip
"""Parameters of share groups, drawn after all others."""


class Fault(NamedTuple):
    """A kind of fault that is injected during a run; `fault_actions.FAULT_ACTIONS` has its function."""

    name: str
    weight: float
    """Relative frequency in runs that have this fault."""
    description: str


FAULTS: tuple[Fault, ...] = (
    Fault("crash", 4, "a client dies, and may restart after a while"),
    Fault("leave", 2, "a client leaves its group as its protocol requires"),
    Fault("join", 3, "a new client joins, or a dead one restarts"),
    Fault("herd", 1, "all clients restart at the same time"),
    Fault("pause", 3, "a client pauses for up to two session timeouts, then continues"),
    Fault("cut_off", 2, "some clients are partitioned from the coordinator, in one or both directions"),
    Fault("failover", 4, "the coordinator dies; appends that were not durable are lost, some or all"),
    Fault("failover_loading", 1, "the coordinator dies, and its successor dies while it loads the log"),
    Fault("deposed", 1, "another coordinator takes over while the old one keeps running"),
    Fault("topic_grows", 1, "partitions are added to a topic"),
    Fault("topic_anew", 1, "a topic is deleted and recreated under the same name"),
    Fault("setting", 1, "a broker setting changes"),
    Fault("remove", 1, "an administrator removes members"),
    Fault("delete_offsets", 1, "an administrator deletes offsets"),
    Fault(
        "delete_group", 1, "an administrator deletes the groups, which is rejected while they have members"
    ),
    Fault("describe", 1, "an administrator lists and describes groups and fetches their offsets"),
    Fault("clock_step", 1, "the wall clock steps by up to an hour"),
)

CONSUMER_FAULTS: tuple[Fault, ...] = (
    Fault("resubscribe", 3, "a client changes its subscription"),
    Fault("topic_gone", 1, "a topic is deleted, and recreated after a while"),
    Fault("topic_comes", 1, "a topic that regular expressions match is created or deleted"),
)  # fmt: skip

STREAMS_FAULTS = (
    Fault("process_dies", 3, "all members of a process die, and may restart with the state on its disk"),
    Fault("roll", 1, "the processes of an application restart one after another"),
    Fault("internal_gone", 2, "internal topics that do not match their sources are deleted, or another one"),
    Fault("shutdown", 0.5, "a member requests the shutdown of its application"),
)

WARMUP_FAULTS = (
    Fault("next_topology", 2, "an application is rolled to its next topology, completely or in part"),
)

STREAMS_MIGRATION_FAULTS = (
    Fault("next_protocol", 6, "an application is rolled to the other protocol, completely or in part"),
)

TRANSACTION_FAULTS = (
    Fault("transactions_fail_over", 4, "the transaction coordinator dies and another one reads its log"),
    Fault(
        "node_dies", 3, "both coordinators die at the same time, and all markers that are under way are lost"
    ),
)

SHARE_FAULTS = (
    Fault("share_state_fails_over", 4, "the share coordinator dies and another one reads its log"),
    Fault("deliveries_die", 3, "the share partition leader dies, with all locks and sessions"),
    Fault("share_node_dies", 4, "the share partition leader and both coordinators die at the same time"),
    Fault("log_beginning_deleted", 2, "retention deletes the beginning of a partition"),
    Fault(
        "offsets_altered", 3, "an administrator alters the offsets of a share group, which is usually empty"
    ),
    Fault("offsets_deleted", 2, "an administrator deletes the offsets of a topic from a share group"),
)

SECRET = "secret"
"""Prefix of topics that clients may not describe: no regular expression matches them."""

ALL_PARAMETERS = (
    *PARAMETERS, *CONSUMER_PARAMETERS, *HEARTBEAT_PARAMETERS, *STREAMS_PARAMETERS, *WARMUP_PARAMETERS,
    *STREAMS_MIGRATION_PARAMETERS, *TRANSACTION_PARAMETERS, *SHARE_PARAMETERS,
)  # fmt: skip
ALL_FAULTS = (
    *FAULTS, *CONSUMER_FAULTS, *STREAMS_FAULTS, *WARMUP_FAULTS, *STREAMS_MIGRATION_FAULTS,
    *TRANSACTION_FAULTS, *SHARE_FAULTS,
)  # fmt: skip


class Options:
    """The options of a run: a value for each parameter, and a weight for each fault."""

    def __init__(self, parameters: Mapping[str, Value], faults: Mapping[str, float]) -> None:
        self.parameters = dict(parameters)
        self.faults = dict(faults)

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def __repr__(self) -> str:
        return f"<options {' '.join(self.lines())}>"

    @classmethod
    def drawn(
        cls, random: Random, *, consumers: bool = False, streams: bool = False, transactions: bool = False,
        share: bool = False, streams_migration: bool = False,
    ) -> Options:  # fmt: skip
        """Draw the options of a run with faults.

        `consumers`, `streams`, `transactions`, `share` and `streams_migration` add the parameters and faults
        of these groups. Each fault occurs in three of five runs."""
        parameters = {parameter.name: parameter.fault_free for parameter in ALL_PARAMETERS}
        parameters |= _values(random, PARAMETERS)
        faults = _weights(random, FAULTS)
        if consumers:
            parameters |= _values(random, CONSUMER_PARAMETERS)
            faults |= _weights(random, CONSUMER_FAULTS)
            parameters |= _values(random, HEARTBEAT_PARAMETERS)
        if streams:
            parameters |= _values(random, STREAMS_PARAMETERS)
            faults |= _weights(random, STREAMS_FAULTS)
            parameters |= _values(random, WARMUP_PARAMETERS)
            faults |= _weights(random, WARMUP_FAULTS)
        if streams_migration:
            parameters |= _values(random, STREAMS_MIGRATION_PARAMETERS)
            parameters["streams.mode"] = "kafka" if random.random() < 0.1 else "kip"
            faults |= {f.name: f.weight * random.uniform(0.5, 1) for f in STREAMS_MIGRATION_FAULTS}
        if transactions:
            parameters |= _values(random, TRANSACTION_PARAMETERS)
            faults |= _weights(random, TRANSACTION_FAULTS)
        if share:
            parameters |= _values(random, SHARE_PARAMETERS)
            faults |= _weights(random, SHARE_FAULTS)
        return cls(parameters, {name: round(weight, 2) for name, weight in faults.items()})

    @classmethod
    def without_faults(cls) -> Options:
        """Return options with every fault disabled."""
        return cls({parameter.name: parameter.fault_free for parameter in ALL_PARAMETERS}, {})

    def with_set(self, values: Iterable[tuple[str, str]]) -> Options:
        """Return a copy with the (name, text) pairs `values` set: parameters, or weights of faults as
        `fault.NAME`.

        Raises ValueError for an unknown name or a malformed number."""
        parameters, faults = dict(self.parameters), dict(self.faults)
        for name, text in values:
            fault = name.removeprefix("fault.")
            if name in parameters:
                parameters[name] = _parsed(name, parameters[name], text)
            elif name.startswith("fault.") and any(fault == f.name for f in ALL_FAULTS):
                faults[fault] = float(_parsed(name, 0.0, text))
            else:
                known = ", ".join([k.name for k in ALL_PARAMETERS] + [f"fault.{f.name}" for f in ALL_FAULTS])
                raise ValueError(f"unknown simulator parameter {name}; known parameters: {known}")
        return Options(parameters, faults)

    def lines(self) -> list[str]:
        """Return a `name=value` line for each option that differs from a run without faults."""
        changed = [
            (p, self.parameters[p.name]) for p in ALL_PARAMETERS if self.parameters[p.name] != p.fault_free
        ]
        drawn = [f"{parameter.name}={value}" for parameter, value in changed]
        return drawn + [f"fault.{name}={weight}" for name, weight in self.faults.items() if weight]


def _values(random: Random, parameters: Iterable[Parameter]) -> dict[str, Value]:
    return {parameter.name: parameter.draw(random) for parameter in parameters}


def _weights(random: Random, faults: Iterable[Fault]) -> dict[str, float]:
    """Draw the weight of each fault, 0 for two of five."""
    return {f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6) for f in faults}


def _parsed(name: str, like: Value, text: str) -> Value:
    if isinstance(like, str):
        return text
    try:
        return int(text) if isinstance(like, int) else float(text)
    except ValueError:
        raise ValueError(f"{name}={text}: not a number") from None
