"""What goes wrong, how often, and for how long.

Requests and their answers travel through a network that loses them (an answer lost is a request that was
carried out and whose sender does not know it), delays them, now and then for seconds, brings them twice or
much later, and breaks the connection in the middle of a frame, which the client notices at once. A client can
be cut off from the coordinator for a while, in both directions or in one.

Clients crash and come back (a static member under its instance id, another one as somebody new), leave
politely, join, sleep through their session and go on where they were, and are slow to give up partitions or
never get to it. Leaders are slow to assign. Whoever comes back may have other time-outs, topics and assignors
than before; clients commit for what they do not read, and some without being members. Some are not honest:
they make up ids and generations, use those of others, come with the instance id of somebody else, change
their mind with every request, or lead without handing anything out.

The coordinator dies and another one reads the log: between two requests, after an append and before the disk
has it, after the disk has it and before the answer leaves, while it is loading; or it lives on beside its
successor and does not know that it was deposed. Appends fail or do not fit, the disk says no, the tail of the
log that was not durable is lost, whole batches at a time. The log is compacted at any moment, in part or as a
whole, with its tombstones or without. The disk below, torn writes and flipped bits are of the second level,
where the real log stands on it.

Beside all that topics are created, deleted, made anew and grow, settings change, an administrator removes
members, offsets and groups, and the wall clock steps by up to an hour.

Consumer groups have their own: assignments and expressions are worked out beside the coordinator and come
when they come; topics go and come back later, and new ones come that an expression matches; members change
what they read, and one that comes back may speak the other protocol.

Members that transact die, dawdle and abort in the middle of it, and have twins of the same transactional
id. The coordinator of transactions dies like the other one, or both at the same moment, between any two steps
of an end: decided, durable, each marker, complete. Ids have few epochs left, and are forgotten soon.

Members of share groups stall until others have their records, refuse them, and ask for more time. Who
delivers dies with all locks and sessions, the share coordinator dies with what was on its way to the disk, or
both do. Retention takes what nobody has read yet.

Applications of streams groups die and roll by processes, which find their state on their disks. Their
internal topics are made late or not at all, are deleted, or do not fit any more, as sources come late and
grow. Somebody asks for all of it to shut down. In mode `kip` they are rolled to their next topologies, now
and then only in part; and from the classic to the streams protocol, or back. Some members never say how
far their tasks are, others do not know all ends.

Each run draws from its seed which faults occur and how often (`PARAMETERS`, `FAULTS`). Runs with few kinds of
faults reach states that runs with all of them never reach. The drawn values are printed.

After the chaos comes the liveness phase. Nothing fails any more, who was dead stays dead or is back, and what
must come about in the end has to come about within its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, NamedTuple


class Parameter(NamedTuple):
    """A row of the fault model."""

    name: str
    fault_free: Any
    """The value where nothing goes wrong."""
    draw: Callable[[Random], Any]
    sentence: str


def _often_none(most: float, none: float = 0.3) -> Callable[[Random], float]:
    """Nothing in some of the seeds, else evenly up to `most`."""
    return lambda r: 0.0 if r.random() < none else round(r.uniform(0, most), 4)


def _log_uniform(low: float, high: float) -> Callable[[Random], int]:
    return lambda r: round(math.exp(r.uniform(math.log(low), math.log(high))))


def _one_of(*values: Any) -> Callable[[Random], Any]:
    return lambda r: r.choice(values)


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("members", 8, lambda r: r.randint(2, 8), "members that there are at the beginning"),
    Parameter("partitions", 32, _one_of(1, 4, 8, 32), "partitions of the topics together"),
    Parameter("groups", 1, _one_of(1, 1, 1, 2), "groups that the members are in"),
    Parameter("assignor", "range", _one_of("range", "roundrobin", "cooperative-sticky", "mixed"),
         "what the leader of a group uses; mixed: it depends on who leads"),
    Parameter("type", "consumer", _one_of(*["consumer"] * 7, "connect"), "protocol type of the members"),
    Parameter("session.ms", 10_000, _one_of(6_000, 10_000, 10_000, 45_000),
         "session.timeout.ms of the members"),
    Parameter("rebalance.ms", 30_000, _one_of(8_000, 30_000, 60_000), "max.poll.interval.ms of the members"),
    Parameter("heartbeat.ms", 3_000, _one_of(3_000, 3_000, 1_000), "heartbeat.interval.ms of the members"),
    Parameter("initial.delay.ms", 3000, _one_of(0, 0, 500, 3000), "group.initial.rebalance.delay.ms"),
    Parameter("max.size", 1000, _one_of(1000, 1000, 1000, 3), "group.max.size"),
    Parameter("retention.minutes", 10_080, _one_of(10_080, 1), "offsets.retention.minutes"),
    Parameter("varied", 0, _one_of(0, 0, 1), "whether members differ in topics, time-outs and assignors"),
    Parameter("simple", 0, _one_of(0, 1), "clients that commit without being members"),
    Parameter("aside", 0, _one_of(0, 0, 1), "whether members commit for a topic that nobody of them reads"),
    Parameter("hostile", 0, lambda r: 0 if r.random() < 0.75 else r.randint(1, 2),
         "clients that are not honest"),
    Parameter("request.loss", 0.0, _often_none(0.3), "part of the requests that is lost"),
    Parameter("response.loss", 0.0, _often_none(0.4), "part of the answers that is lost"),
    Parameter("request.again", 0.0, _often_none(0.2), "part of the requests that comes once more, later"),
    Parameter("reset", 0.0, _often_none(0.05, 0.5), "part of the frames in which the connection breaks"),
    Parameter("latency.ms", 1, _log_uniform(1, 100), "mean time that a message takes, one way"),
    Parameter("clog", 0.0, _often_none(0.02, 0.5), "part of the messages that is stuck for seconds"),
    Parameter("slow.callback", 0.0, lambda r: round(r.uniform(0.1, 2), 2) if r.random() < 0.1 else 0.0,
         "how long giving up partitions takes at most, in rebalance timeouts"),
    Parameter("slow.leader", 0.0, lambda r: round(r.uniform(0.1, 1.2), 2) if r.random() < 0.2 else 0.0,
         "how long a leader takes at most to assign, in rebalance timeouts"),
    Parameter("append.fails", 0.0, _often_none(0.05, 0.5), "part of the appends that fails"),
    Parameter("too.large", 0.0, _often_none(0.01, 0.7), "part of the batches that does not fit"),
    Parameter("sync.fails", 0.0, _often_none(0.02, 0.7), "part of the syncs that fails"),
    Parameter("sync.ms", 1, _log_uniform(1, 200), "mean time until what was appended is durable"),
    Parameter("load.ms", 1, _log_uniform(1, 3000), "mean time that reading the log takes"),
    Parameter("compaction", 0.0, _often_none(0.7, 0.5), "part of the loads that read a compacted log"),
    Parameter("fault.every", 0, _log_uniform(15, 400), "steps between two of the faults below; 0: none"),
)  # fmt: skip

CONSUMER_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("assignment.interval.ms", 0, _one_of(0, 0, 0, 1_000, 5_000),
         "group.consumer.assignment.interval.ms"),
    Parameter("heavy", 1_000_000, _one_of(1_000_000, 1_000_000, 1, 12),
         "members and partitions from which on an assignment is computed beside the coordinator"),
    Parameter("work.ms", 1, _log_uniform(1, 20_000), "mean time that this takes, and so do expressions"),
    Parameter("regex", 0.0, _often_none(0.6, 0.5),
         "part of the members that read what an expression matches"),
    Parameter("regex.refresh.ms", 600_000, _one_of(600_000, 20_000),
         "group.consumer.regex.refresh.interval.ms"),
    Parameter("server.assignor", "", _one_of("", "", "uniform", "range", "mixed"),
         "what members ask for; nothing: what the broker likes best"),
    Parameter("old.epochs", 0.0, _often_none(0.3, 0.5),
         "part of the commits that name an epoch that is past"),
    Parameter("policy", "bidirectional", _one_of(*["bidirectional"] * 5, "upgrade", "downgrade", "disabled"),
         "group.consumer.migration.policy"),
    Parameter("upgraded", 0.5, lambda r: round(r.uniform(0.1, 0.9), 2),
         "part of the members of a mixed group that speak the new protocol when they start"),
)  # fmt: skip
"""Of groups whose coordinator assigns: a run of others does not draw them."""

HEARTBEAT_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("heartbeat.policy", "responsive", _one_of("responsive", "responsive", "kafka"),
         "konvene.heartbeat.policy"),
)  # fmt: skip
"""Of the same groups, drawn behind all else: what a seed drew before there were these it draws still."""

STREAMS_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("topology", "stateful", _one_of("stateless", "stateful", "stateful", "chain", "two", "joined"),
         "what the members of a streams group run, of the catalogue in `members.streams.topologies`"),
    Parameter("threads", 1, _one_of(1, 2, 2), "members that a process has"),
    Parameter("instances", 0, _one_of(0, 0, 3, 1), "each so-many-th member has an instance id; 0: none has"),
    Parameter("standbys", 0, _one_of(0, 0, 1, 1, 2), "group.streams.num.standby.replicas"),
    Parameter("streams.delay.ms", 0, _one_of(0, 0, 3_000), "group.streams.initial.rebalance.delay.ms"),
    Parameter("streams.mode", "kafka", _one_of("kafka", "kafka", "kafka", "kip"), "konvene.streams.mode"),
    Parameter("restore.rate", 1_000, _log_uniform(10, 2_000),
         "records of a changelog that are restored in 1 s"),
    Parameter("endpoints", 0.0, _often_none(1, 0.5), "part of the members that say where they can be asked"),
    Parameter("create.fails", 0.0, _often_none(0.6, 0.5), "part of the internal topics that cannot be made"),
    Parameter("late.topic", 0, _one_of(0, 0, 0, 1), "whether a source topic comes after the members"),
)  # fmt: skip
"""Of streams groups alone, drawn behind all else."""

WARMUP_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("warmups", 2, _one_of(0, 1, 2, 2, 3), "group.streams.num.warmup.replicas"),
    Parameter("recovery.lag", 10_000, _one_of(0, 0, 20, 100, 10_000),
         "group.streams.acceptable.recovery.lag"),
    Parameter("offsets.ms", 10_000, _one_of(1_000, 10_000), "group.streams.task.offset.interval.ms"),
    Parameter("silent", 0.0, _often_none(0.5, 0.6),
         "part of the members that never say how far their tasks are"),
    Parameter("unknown.ends", 0.0, _often_none(0.7, 0.5), "part of the ends of changelogs that nobody knows"),
)  # fmt: skip
"""Of tasks that warm up, drawn behind what else streams groups have."""

STREAMS_MIGRATION_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("streams.upgraded", 0.5, lambda r: r.choice([0.0, 0.0, 1.0, round(r.uniform(0.1, 0.9), 2)]),
         "part of the members of an application that speak the streams protocol when they start, at first"),
    Parameter("streams.migration.policy", "bidirectional",
         _one_of(*["bidirectional"] * 7, "upgrade", "downgrade", "disabled"),
         "konvene.streams.migration.policy"),
)  # fmt: skip
"""Of applications that are moved between the classic and the streams protocol; their mode is kip, mostly."""

TRANSACTION_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("transaction.version", 2, _one_of(2, 2, 2, 1, 0),
         "the level of the feature transaction.version"),
    Parameter("transaction.timeout.ms", 20_000, _one_of(2_000, 10_000, 20_000, 60_000),
         "transaction.timeout.ms of producers"),
    Parameter("output.partitions", 2, _one_of(1, 2, 3), "partitions of the topic that is written to"),
    Parameter("abort", 0.0, _often_none(0.6, 0.3), "part of the transactions that the application aborts"),
    Parameter("dawdle", 0.0, _often_none(0.3, 0.5),
         "part of the transactions that stay open for up to two time-outs"),
    Parameter("marker.ms", 1, _log_uniform(1, 2_000), "mean time that a marker takes on its way"),
    Parameter("twins", 0, _one_of(0, 0, 0, 1), "whether two members have the same transactional id"),
    Parameter("worn", 0, _one_of(0, 0, 0, 1),
         "whether transactional ids have few epochs left at the beginning"),
    Parameter("committers", 0, _one_of(0, 1, 2), "clients without a group that commit in transactions"),
    Parameter("fsync", 1, _one_of(1, 0),
         "konvene.log.fsync.topics: whether records are synced before an answer"),
    Parameter("id.expiration.ms", 604_800_000, _one_of(604_800_000, 604_800_000, 30_000),
         "transactional.id.expiration.ms"),
)  # fmt: skip
"""Of members that transact, drawn behind all else."""


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
    Parameter("process.ms", 10, _log_uniform(1, 2_000), "mean time that a member works on what it was given"),
    Parameter("stall", 0.0, _often_none(0.3, 0.5),
         "part of the times that this takes longer than the locks last"),
    Parameter("refuses", 0.0, _often_none(0.8, 0.3), "part of the records that are not accepted"),
    Parameter("mixed.acks", 0.0, _often_none(0.5, 0.5), "part of the records with a verdict of their own"),
    Parameter("write.fails", 0.0, _often_none(0.1, 0.4),
         "part of the writes of share state that come to nothing"),
    Parameter("transactional", 0.0, _often_none(0.5, 0.5), "part of the batches that are in transactions"),
    Parameter("read.committed", 0, _one_of(0, 1), "share.isolation.level of all groups"),
    Parameter("share.sessions", 2_000, _one_of(2_000, 2_000, 2, 4), "group.share.max.share.sessions"),
    Parameter("prune.ms", 300_000, _one_of(300_000, 2_000, 20_000),
         "share.coordinator.state.topic.prune.interval.ms"),
    Parameter("dead.letters", 0, _one_of(0, 0, 1), "whether records that are given up are copied first"),
)  # fmt: skip
"""Of members that share partitions, drawn behind all else."""


class Fault(NamedTuple):
    """A row of what happens now and then: `World.fault_<name>` does it."""

    name: str
    weight: float
    """How often, compared with the others, where it is drawn at all."""
    sentence: str


FAULTS: tuple[Fault, ...] = (
    Fault("crash", 4, "a client dies and comes back after a while, or does not"),
    Fault("leave", 2, "a client leaves, as its protocol has it"),
    Fault("join", 3, "a new client comes"),
    Fault("herd", 1, "all clients are started anew at the same moment"),
    Fault("pause", 3, "a client stands still for up to two sessions, then goes on"),
    Fault("cut_off", 2, "a client and the coordinator do not reach one another, or one way only"),
    Fault("failover", 4, "the coordinator dies; what was not durable is lost, in part or as a whole"),
    Fault("failover_loading", 1, "the coordinator dies twice in a row, the second time while it is loading"),
    Fault("deposed", 1, "another coordinator takes over, and the old one does not know"),
    Fault("topic_grows", 1, "a topic gets more partitions"),
    Fault("topic_anew", 1, "a topic is deleted, and made anew under the same name"),
    Fault("setting", 1, "a setting of the broker changes"),
    Fault("remove", 1, "an administrator removes a member"),
    Fault("delete_offsets", 1, "an administrator deletes offsets"),
    Fault("delete_group", 1, "an administrator deletes the group, which is refused while it has members"),
    Fault("describe", 1, "somebody lists and describes groups, and fetches their offsets"),
    Fault("clock_step", 1, "the wall clock steps by up to an hour"),
)

CONSUMER_FAULTS: tuple[Fault, ...] = (
    Fault("resubscribe", 3, "a client reads other topics from now on"),
    Fault("topic_gone", 1, "a topic is deleted, and made anew after a while"),
    Fault("topic_comes", 1, "a topic comes that expressions match, or goes again"),
)  # fmt: skip

STREAMS_FAULTS = (
    Fault("process_dies", 3, "all members of a process die, and come back to what is on its disk, or do not"),
    Fault("roll", 1, "the processes of an application are started anew, one after another"),
    Fault("internal_gone", 2, "internal topics that do not fit are deleted, or one that does"),
    Fault("shutdown", 0.5, "a member asks for all of its application to be shut down"),
)

WARMUP_FAULTS = (
    Fault("next_topology", 2, "an application is rolled to its next topology, as a whole or in part"),
)

STREAMS_MIGRATION_FAULTS = (
    Fault("next_protocol", 6, "an application is rolled to the other protocol, as a whole or in part"),
)

TRANSACTION_FAULTS = (
    Fault("transactions_fail_over", 4, "the coordinator of transactions dies, as the other one does"),
    Fault("node_dies", 3, "both coordinators die at the same moment, and all markers that are on their way"),
)

SHARE_FAULTS = (
    Fault("share_state_fails_over", 4, "the share coordinator dies, as the other one does"),
    Fault("deliveries_die", 3, "who delivers dies, with all locks and sessions"),
    Fault("share_node_dies", 4, "who delivers and both coordinators die at the same moment"),
    Fault("beginning_goes", 2, "retention takes the beginning of a partition"),
    Fault(
        "offsets_altered", 3, "an administrator alters the offsets of a share group, as a rule an empty one"
    ),
    Fault("offsets_deleted", 2, "an administrator has a share group forget a topic"),
)

SECRET = "secret"
"""Topics whose names begin like this nobody may describe: no expression matches them."""

ALL_PARAMETERS = (
    *PARAMETERS, *CONSUMER_PARAMETERS, *HEARTBEAT_PARAMETERS, *STREAMS_PARAMETERS, *WARMUP_PARAMETERS,
    *STREAMS_MIGRATION_PARAMETERS, *TRANSACTION_PARAMETERS, *SHARE_PARAMETERS,
)  # fmt: skip
ALL_FAULTS = (
    *FAULTS, *CONSUMER_FAULTS, *STREAMS_FAULTS, *WARMUP_FAULTS, *STREAMS_MIGRATION_FAULTS,
    *TRANSACTION_FAULTS, *SHARE_FAULTS,
)  # fmt: skip


class Options:
    """What one run draws from its seed: a value for each knob, a weight for each fault."""

    def __init__(self, parameters: Mapping[str, Any], faults: Mapping[str, float]) -> None:
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
        """For a run of chaos; with `consumers`, `streams`, `transactions`, `share` and `streams_migration`
        what is theirs too. A fault is there in three runs of five."""
        parameters = {parameter.name: parameter.fault_free for parameter in ALL_PARAMETERS}
        parameters |= {parameter.name: parameter.draw(random) for parameter in PARAMETERS}
        faults = {f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6) for f in FAULTS}
        if consumers:
            parameters |= {parameter.name: parameter.draw(random) for parameter in CONSUMER_PARAMETERS}
            faults |= {
                f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6) for f in CONSUMER_FAULTS
            }
            parameters |= {parameter.name: parameter.draw(random) for parameter in HEARTBEAT_PARAMETERS}
        if streams:
            parameters |= {parameter.name: parameter.draw(random) for parameter in STREAMS_PARAMETERS}
            faults |= {
                f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6) for f in STREAMS_FAULTS
            }
            parameters |= {parameter.name: parameter.draw(random) for parameter in WARMUP_PARAMETERS}
            faults |= {
                f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6) for f in WARMUP_FAULTS
            }
        if streams_migration:
            parameters |= {
                parameter.name: parameter.draw(random) for parameter in STREAMS_MIGRATION_PARAMETERS
            }
            parameters["streams.mode"] = "kafka" if random.random() < 0.1 else "kip"
            faults |= {f.name: f.weight * random.uniform(0.5, 1) for f in STREAMS_MIGRATION_FAULTS}
        if transactions:
            parameters |= {parameter.name: parameter.draw(random) for parameter in TRANSACTION_PARAMETERS}
            faults |= {
                f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6)
                for f in TRANSACTION_FAULTS
            }
        if share:
            parameters |= {parameter.name: parameter.draw(random) for parameter in SHARE_PARAMETERS}
            faults |= {
                f.name: f.weight * random.uniform(0.2, 1) * (random.random() < 0.6) for f in SHARE_FAULTS
            }
        return cls(parameters, {name: round(weight, 2) for name, weight in faults.items()})

    @classmethod
    def without_faults(cls) -> Options:
        """Nothing goes wrong."""
        return cls({parameter.name: parameter.fault_free for parameter in ALL_PARAMETERS}, {})

    def with_set(self, values: Iterable[tuple[str, str]]) -> Options:
        """The same, but for what is set by hand: knobs, or `fault.NAME` to its weight. Raises ValueError."""
        parameters, faults = dict(self.parameters), dict(self.faults)
        for name, text in values:
            fault = name.removeprefix("fault.")
            if name in parameters:
                parameters[name] = _parsed(name, parameters[name], text)
            elif name.startswith("fault.") and any(fault == f.name for f in ALL_FAULTS):
                faults[fault] = _parsed(name, 0.0, text)
            else:
                known = ", ".join([k.name for k in ALL_PARAMETERS] + [f"fault.{f.name}" for f in ALL_FAULTS])
                raise ValueError(f"{name} is no knob of the simulator; there are: {known}")
        return Options(parameters, faults)

    def lines(self) -> list[str]:
        """`name=value`, values of a fault-free run left out."""
        changed = [
            (p, self.parameters[p.name]) for p in ALL_PARAMETERS if self.parameters[p.name] != p.fault_free
        ]
        drawn = [f"{parameter.name}={value}" for parameter, value in changed]
        return drawn + [f"fault.{name}={weight}" for name, weight in self.faults.items() if weight]


def _parsed(name: str, like: Any, text: str) -> Any:
    if isinstance(like, str):
        return text
    try:
        return int(text) if isinstance(like, int) else float(text)
    except ValueError:
        raise ValueError(f"{name}={text}: this is not a number") from None
