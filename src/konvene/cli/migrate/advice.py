"""Blockers and notes of a protocol migration, with what to do about each.

There is a row for each code of `groups.migration.dry_run` and `groups.*.convert`; a test compares them.
`konvene migrate explain` prints all rows, `--explain` those that apply.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ADVICE", "Advice", "advice_for"]

CONSUMER, STREAMS, CLASSIC = "consumer", "streams", "classic"


class Advice(NamedTuple):
    """A blocker or note: its code, what it means and what to do."""

    to: tuple[str, ...]
    """Target protocols to which it applies."""
    code: str
    blocks: bool
    what: str
    do: str


ADVICE: Final = (
    Advice(
        (CONSUMER,),
        "policy",
        True,
        "The broker does not allow online migration to the consumer protocol.",
        "Set group.consumer.migration.policy to bidirectional, or upgrade, before the first member is"
        " restarted.",
    ),
    Advice(
        (STREAMS,),
        "policy",
        True,
        "The broker does not allow online migration to the streams protocol, as Apache Kafka 4.4 does not.",
        "Set konvene.streams.mode to kip, and konvene.streams.migration.policy to bidirectional or "
        "upgrade. Or stop all members: an empty group can migrate with any broker.",
    ),
    Advice(
        (CLASSIC,),
        "policy",
        True,
        "The broker does not allow an online downgrade.",
        "Set the migration policy (group.consumer.migration.policy, konvene.streams.migration.policy "
        "with konvene.streams.mode=kip) to bidirectional or downgrade before the last member of the "
        "new protocol leaves. After that the members have to stop.",
    ),
    Advice(
        (CONSUMER,),
        "size",
        True,
        "The group has more members than a consumer group may.",
        "Raise group.consumer.max.size; it must also allow for members that are being restarted.",
    ),
    Advice(
        (STREAMS,),
        "size",
        True,
        "The application has more threads than a streams group may have members.",
        "Raise group.streams.max.size; it must also allow for members that are being restarted.",
    ),
    Advice(
        (CLASSIC,),
        "size",
        True,
        "More members would remain than a classic group may have.",
        "Raise group.max.size before the last member of the new protocol leaves.",
    ),
    Advice(
        (CONSUMER, STREAMS),
        "protocol-type",
        True,
        "The members are not consumers, but for example Kafka Connect workers or a schema registry.",
        "Keep the classic protocol: there is no other one for such groups.",
    ),
    Advice(
        (CONSUMER,),
        "malformed",
        True,
        "The subscription or assignment of a member is not in the format of Kafka's consumer protocol.",
        "Find the client by its id and host. A client library with its own format cannot migrate "
        "online: stop all members and start them with the new protocol.",
    ),
    Advice(
        (CONSUMER,),
        "assignor",
        True,
        "The leader's assignor stores user data in the assignment, which would be lost.",
        "Roll the members to partition.assignment.strategy range or cooperative-sticky first. If the "
        "group is a Kafka Streams application (protocol stream), migrate it to the streams "
        "protocol.",
    ),
    Advice(
        (STREAMS,),
        "assignor",
        True,
        "Not all members are threads of Kafka Streams.",
        "Stop the plain consumers that use the application's group id; migrate a group of plain "
        "consumers to the consumer protocol.",
    ),
    Advice(
        (STREAMS,),
        "user-data",
        True,
        "The user data of a thread cannot be decoded, or has an unknown version.",
        "See the table of supported releases. A newer release can migrate only while the "
        "application is stopped, or with a newer broker.",
    ),
    Advice(
        (STREAMS,),
        "named-topologies",
        True,
        "The application uses named topologies, which the streams protocol does not have.",
        "They were never a public feature. Build the application as one topology; as its tasks change,"
        " it needs a new application.id.",
    ),
    Advice(
        (STREAMS,),
        "expressions",
        True,
        "The topology reads topics by a pattern, and classic threads do not report the matching topics.",
        "Name the source topics during the migration, or migrate while the application is stopped.",
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
        "The topology is not ready: topics are missing or incorrectly partitioned.",
        "Create the source topics. The internal topics of a running application exist: if they are "
        "missing, the topology or application.id differs.",
    ),
    Advice(
        (STREAMS,),
        "tasks",
        True,
        "A thread runs tasks that the topology does not have: the topologies differ.",
        "Deploy the same code with group.protocol=streams and change nothing else. Only state with "
        "changelogs is compared; with topology.optimization a source topic may be a changelog, "
        "which the streams protocol does not accept in mode kip.",
    ),
    Advice(
        (STREAMS,),
        "topics",
        True,
        "A thread reads topics that the topology does not read.",
        "First deploy one version of the application to all threads with the classic protocol.",
    ),
    Advice(
        (CONSUMER, STREAMS),
        "refused",
        True,
        "The coordinator rejects a member when it rejoins.",
        "The reason is the error message that a client would receive.",
    ),
    Advice(
        (CONSUMER, STREAMS),
        "empty",
        False,
        "The group has no members.",
        "Start the members with the new protocol; committed offsets are kept.",
    ),
    Advice(
        (CONSUMER,),
        "own-assignor",
        False,
        "The members use a custom assignor.",
        "Choose a server-side assignor with group.remote.assignor; group.consumer.assignors of the "
        "broker lists them.",
    ),
    Advice(
        (CONSUMER,),
        "given-twice",
        False,
        "The leader assigned a partition to two members.",
        "One of them stops reading it after the migration. If both should read it, use two groups.",
    ),
    Advice(
        (CONSUMER,),
        "unknown-partitions",
        False,
        "Members were assigned partitions that are not in the logs.",
        "If they exist, use --topic NAME=PARTITIONS, or pass the data directories of all brokers.",
    ),
    Advice(
        (CONSUMER,),
        "not-subscribed",
        False,
        "Members are assigned partitions of topics that no member subscribes to.",
        "They are revoked by the migration. A member with a pattern subscription lists the topics "
        "that matched when it last joined.",
    ),
    Advice(
        (STREAMS,),
        "old-client",
        False,
        "Some threads run a release without the streams protocol.",
        "First upgrade all threads to 4.x with group.protocol=classic, then switch to streams. "
        "Releases before 2.4 need an intermediate upgrade to 2.4 to 3.9 with upgrade.from, as 4.x "
        "has no eager rebalancing.",
    ),
    Advice(
        (STREAMS,),
        "standbys",
        False,
        "The application has more standbys than the group setting allows: the streams protocol uses "
        "the group's setting, not the client's.",
        "Set streams.num.standby.replicas of the group to the application's num.standby.replicas "
        "before the first thread is restarted.",
    ),
    Advice(
        (STREAMS,),
        "warming-up",
        False,
        "Tasks are being moved and warm up.",
        "Wait until the warm-ups have finished, to move fewer tasks at a time. Continuing is safe.",
    ),
    Advice(
        (STREAMS,),
        "shutdown",
        False,
        "A thread has requested the shutdown of the application.",
        "Let it shut down, and start it again with the new protocol.",
    ),
    Advice(
        (STREAMS,),
        "no-topology",
        False,
        "A classic group does not store its topology.",
        "Use --topology FILE, or --topology-of GROUP with another group of the same application.",
    ),
    Advice(
        (STREAMS,),
        "internal-topics",
        False,
        "The log does not show which repartition and changelog topics exist.",
        "Pass the data directories as well, or use `konvene migrate check` on the cluster.",
    ),
    Advice(
        (CLASSIC,),
        "still-new",
        False,
        "Some members still use the new protocol.",
        "Roll them back one by one; the group is converted with the last one.",
    ),
    Advice(
        (CLASSIC,),
        "no-classic-members",
        False,
        "All members use the new protocol.",
        "Roll back the first one: the group accepts classic members if its policy is not disabled.",
    ),
)


def advice_for(to: str, code: str) -> Advice | None:
    """Return the advice about a blocker or note for a target protocol; None if there is none."""
    return next((row for row in ADVICE if row.code == code and to in row.to), None)
