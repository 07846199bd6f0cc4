"""What can stand in the way of a change of protocol, what is worth knowing before, and what to do about it.

A row for each code that a rehearsal can tell (`groups.migration.dry_run`, `groups.*.convert`); a test holds
them
together. `konvene migrate explain` prints the rows, `--explain` those that apply.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ADVICE", "Advice", "advice_for"]

CONSUMER, STREAMS, CLASSIC = "consumer", "streams", "classic"


class Advice(NamedTuple):
    """A code, and what to do."""

    to: tuple[str, ...]
    """The protocols for which it is told."""
    code: str
    blocks: bool
    what: str
    do: str


ADVICE: Final = (
    Advice(
        (CONSUMER,),
        "policy",
        True,
        "The broker does not let consumer groups change while they run.",
        "Set group.consumer.migration.policy to bidirectional, or upgrade, before the first member is"
        " rolled.",
    ),
    Advice(
        (STREAMS,),
        "policy",
        True,
        "The broker does not let applications change while they run, as Apache Kafka 4.4 does not.",
        "Set konvene.streams.mode to kip, and konvene.streams.migration.policy to bidirectional or "
        "upgrade. Or stop all members: an empty group changes anywhere.",
    ),
    Advice(
        (CLASSIC,),
        "policy",
        True,
        "The broker does not let the group go back while it runs.",
        "Set the migration policy (group.consumer.migration.policy, konvene.streams.migration.policy "
        "with konvene.streams.mode=kip) to bidirectional or downgrade before the last member of the "
        "new protocol leaves. After that the members have to stop.",
    ),
    Advice(
        (CONSUMER,),
        "size",
        True,
        "The group has more members than a consumer group may.",
        "Raise group.consumer.max.size; it has to have room for those who are rolled, too.",
    ),
    Advice(
        (STREAMS,),
        "size",
        True,
        "The application has more threads than a streams group may have members.",
        "Raise group.streams.max.size; it has to have room for those who are rolled, too.",
    ),
    Advice(
        (CLASSIC,),
        "size",
        True,
        "More members would be left than a classic group may have.",
        "Raise group.max.size before the last member of the new protocol leaves.",
    ),
    Advice(
        (CONSUMER, STREAMS),
        "protocol-type",
        True,
        "The members are no consumers: Kafka Connect or a schema registry, say.",
        "Leave the group as it is: there is no other protocol for it.",
    ),
    Advice(
        (CONSUMER,),
        "malformed",
        True,
        "What a member says, or was given, is not Kafka's consumer protocol.",
        "Find the client by its id and host. One of a library with a protocol of its own cannot "
        "change while the group runs: stop all members and start them with the new one.",
    ),
    Advice(
        (CONSUMER,),
        "assignor",
        True,
        "The leader's assignor keeps something of its own in the assignment, which would be lost.",
        "Roll the members to partition.assignment.strategy range or cooperative-sticky first. If the "
        "group is an application of Kafka Streams (protocol stream), its way is to the streams "
        "protocol.",
    ),
    Advice(
        (STREAMS,),
        "assignor",
        True,
        "Not all members are threads of Kafka Streams.",
        "Stop the plain consumers that use the application's group id; a group of plain consumers "
        "goes to the consumer protocol.",
    ),
    Advice(
        (STREAMS,),
        "user-data",
        True,
        "What a thread says, or was given, cannot be read, or is of a version that is not known.",
        "See the table of releases for what is known. A newer release can change only while the "
        "application is stopped, or with a newer broker.",
    ),
    Advice(
        (STREAMS,),
        "named-topologies",
        True,
        "The application uses named topologies, which the streams protocol does not have.",
        "They were never public. Build the application as one topology; its tasks are others then, so"
        " it begins as another application.",
    ),
    Advice(
        (STREAMS,),
        "expressions",
        True,
        "The topology reads topics by an expression, and no thread of the classic protocol knows which.",
        "Name the source topics for as long as the migration takes, or stop the application to change.",
    ),
    Advice(
        (STREAMS,),
        "subtopologies",
        True,
        "The topology's subtopologies are not numbers, as those of the classic protocol are.",
        "Use a client that numbers them in Kafka Streams' order, as Java's does.",
    ),
    Advice(
        (STREAMS,),
        "not-ready",
        True,
        "The topology cannot run: topics are missing, or do not fit each other.",
        "Create the source topics. Internal topics exist where the application runs: if they are "
        "missing, its topology or application.id is another one.",
    ),
    Advice(
        (STREAMS,),
        "tasks",
        True,
        "A thread runs tasks that the topology does not have like that: it is another topology.",
        "Deploy the same code with group.protocol=streams and change nothing else. State in other "
        "places than changelogs does not count; with topology.optimization a source topic may be a "
        "changelog, which the streams protocol does not take in mode kip.",
    ),
    Advice(
        (STREAMS,),
        "topics",
        True,
        "A thread reads other topics than the topology.",
        "Roll all threads to one version of the application with the classic protocol first.",
    ),
    Advice(
        (CONSUMER, STREAMS),
        "refused",
        True,
        "The coordinator refuses a member as it comes back.",
        "The reason is the coordinator's own answer: a client would be told the same.",
    ),
    Advice(
        (CONSUMER, STREAMS),
        "empty",
        False,
        "Nobody is in the group.",
        "Start the members with the new protocol; committed offsets stay.",
    ),
    Advice(
        (CONSUMER,),
        "own-assignor",
        False,
        "The assignor of the members is none of Kafka's.",
        "Choose one of the broker's with group.remote.assignor; the broker's own are told by "
        "group.consumer.assignors.",
    ),
    Advice(
        (CONSUMER,),
        "given-twice",
        False,
        "The leader gave a partition to two members.",
        "One of them stops reading it with the change. If both were meant to, give them groups of their own.",
    ),
    Advice(
        (CONSUMER,),
        "unknown-partitions",
        False,
        "Members were assigned partitions that cannot be seen.",
        "If they exist, say so with --topic NAME=PARTITIONS, or give the data directory of every broker.",
    ),
    Advice(
        (CONSUMER,),
        "not-subscribed",
        False,
        "Members have partitions of topics to which none subscribes.",
        "They are given up with the change. A member that subscribes by an expression names what "
        "matched as it joined last.",
    ),
    Advice(
        (STREAMS,),
        "old-client",
        False,
        "Some threads are of a release that does not know the streams protocol.",
        "Roll all of the application to 4.x with group.protocol=classic first, then to streams. Who "
        "is before 2.4 goes by way of 2.4 to 3.9, with upgrade.from, for 4.x does not rebalance "
        "eagerly any more.",
    ),
    Advice(
        (STREAMS,),
        "standbys",
        False,
        "The application has more standbys than the group is to have: with the streams protocol that "
        "is the group's setting, not the client's.",
        "Set streams.num.standby.replicas of the group to the application's num.standby.replicas "
        "before the first thread is rolled.",
    ),
    Advice(
        (STREAMS,),
        "warming-up",
        False,
        "Tasks are being moved, and wait for their state.",
        "Wait until it is over: then less is under way at a time. It is no danger to go on.",
    ),
    Advice(
        (STREAMS,),
        "shutdown",
        False,
        "A thread asked for all of the application to be shut down.",
        "Let it come to its end, and start it again with the new protocol.",
    ),
    Advice(
        (STREAMS,),
        "no-topology",
        False,
        "A classic group does not say what its tasks read and keep.",
        "Give --topology FILE, or --topology-of GROUP for that of the same application in another group.",
    ),
    Advice(
        (STREAMS,),
        "internal-topics",
        False,
        "The log does not tell which repartition and changelog topics exist.",
        "Give the data directories, too, or ask the cluster with `konvene migrate check`.",
    ),
    Advice(
        (CLASSIC,),
        "still-new",
        False,
        "Members of the new protocol are left.",
        "Roll them back one after the other; the group changes with the last one.",
    ),
    Advice(
        (CLASSIC,),
        "nobody-classic",
        False,
        "All members speak the new protocol.",
        "Roll the first one to the classic protocol: the group takes it in, if its policy is not disabled.",
    ),
)


def advice_for(to: str, code: str) -> Advice | None:
    """The row of a blocker or note; None for one that has none."""
    return next((row for row in ADVICE if row.code == code and to in row.to), None)
