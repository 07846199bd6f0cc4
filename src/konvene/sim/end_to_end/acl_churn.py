"""The ACLs of a run with an authorizer: how they are drawn, and the administrator that changes them.

Users have rights that come and go, by ACLs that allow and deny, literal and prefixed, for one user or all.
The administrator is on the plaintext listener, whose clients are super users. It changes one ACL or several
at once, revokes all rights of a user for a while, and deletes the internal topics of the streams application,
which its members have to create again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from konvene.client.admin.admin import Admin
from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster
from konvene.codec.uuid import Uuid
from konvene.messages.create_acls import CreateAclsRequest
from konvene.messages.delete_acls import DeleteAclsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.sim.end_to_end.rights import (
    ALL,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    AclEntry,
)

if TYPE_CHECKING:
    from konvene.sim.end_to_end.clients import Client

__all__ = [
    "ACL_ADMIN",
    "APPLICATION",
    "SECURED_TOPICS",
    "Secured",
    "administer_acls",
    "draw_secured",
    "set_up_security",
]

ACL_ADMIN = "acl-admin"
"""The job of the administrator."""
USERS = ("alice", "bob", "mallory")
"""mallory has only the rights of all users."""
PASSWORD = "secret"

ORDERS, INVOICES, SECRET = "orders", "orders-invoices", "secret"
SECURED_TOPICS = (ORDERS, INVOICES, SECRET)
PARTITIONS = 2
CLASSIC_GROUP, CONSUMER_GROUP, SHARE_GROUP, STREAMS_GROUP = "classics", "consumers", "sharers", "streamers"
APPLICATION = "app-"
"""Prefix of the internal topics of the streams application."""
CHANGELOG = f"{APPLICATION}store-changelog"
EXPRESSION = "(orders|secret).*"

ACLS = (
    *(AclEntry(GROUP, group, LITERAL, user, READ)
      for group in (CLASSIC_GROUP, CONSUMER_GROUP, STREAMS_GROUP) for user in ("alice", "bob")),
    AclEntry(GROUP, SHARE_GROUP, LITERAL, "*", READ),
    AclEntry(GROUP, "s", PREFIXED, "alice", READ),
    AclEntry(GROUP, CONSUMER_GROUP, LITERAL, "bob", READ, DENY),
    AclEntry(TOPIC, ORDERS, LITERAL, "alice", READ),
    AclEntry(TOPIC, ORDERS, PREFIXED, "bob", READ),
    AclEntry(TOPIC, ORDERS, PREFIXED, "alice", DESCRIBE),
    AclEntry(TOPIC, "*", LITERAL, "alice", DESCRIBE, DENY),
    AclEntry(TOPIC, INVOICES, LITERAL, "bob", ALL, DENY),
    AclEntry(TOPIC, INVOICES, LITERAL, "*", READ),
    AclEntry(TOPIC, ORDERS, LITERAL, "alice", WRITE),
    AclEntry(TOPIC, SECRET, LITERAL, "alice", READ),
    *(AclEntry(TOPIC, APPLICATION, PREFIXED, user, READ) for user in ("alice", "bob")),
    AclEntry(TOPIC, APPLICATION, PREFIXED, "alice", CREATE),
    AclEntry(CLUSTER, CLUSTER_NAME, LITERAL, "bob", CREATE),
)  # fmt: skip
"""The ACLs that come and go."""


@dataclass(frozen=True, slots=True)
class Secured:
    """The ACLs and settings of a run with an authorizer, as drawn from the seed."""

    acls: tuple[AclEntry, ...] = ()
    """ACLs that come and go in this run."""
    initial: tuple[AclEntry, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def draw_secured(chance: Random, session_ms: int) -> Secured:
    """Draw the ACLs of a run, those that it begins with, and the settings of the broker."""
    acls = tuple(acl for acl in ACLS if chance.random() < 0.9)
    initial = tuple(acl for acl in acls if chance.random() < _frequency(acl))
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    interval_ms = str(session_ms // 4)
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "listener.name.clients.plain.connections.max.reauth.ms": str(chance.choice((0, 4_000, 12_000))),
        "connection.failed.authentication.delay.ms": "100",
        "konvene.heartbeat.hold.clients": "konvene",
        "konvene.heartbeat.hold.classic.clients": "konvene",
        "group.consumer.regex.refresh.interval.ms": "10000",
    }
    for kind in ("consumer", "share", "streams"):
        settings |= {
            f"group.{kind}.min.session.timeout.ms": "1000",
            f"group.{kind}.session.timeout.ms": str(session_ms),
            f"group.{kind}.min.heartbeat.interval.ms": "500",
            f"group.{kind}.heartbeat.interval.ms": interval_ms,
        }
    return Secured(acls, initial, settings)


async def set_up_security(cluster: Cluster, secured: Secured) -> dict[str, Uuid]:
    """Create the topics and the first ACLs; return the topics' ids by name."""
    topic_ids = {}
    for topic in SECURED_TOPICS:
        await Admin(cluster).create_topic(topic, partitions=PARTITIONS)
        topic_ids[topic] = (await cluster.topic(topic)).topic_id
    # The first request for a coordinator creates the topic of the group coordinators.
    await cluster.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=(CLASSIC_GROUP,)))
    await change_acls(cluster, secured.initial, ())
    return topic_ids


async def administer_acls(client: Client, cluster: Cluster) -> None:
    """Create and delete ACLs, and delete the internal topics of the streams application."""
    world, chance = client.world, client.chance
    acls = world.secured.acls
    session_s = world.timeouts.session_ms / 1000
    while not (client.leaving or world.faults_disabled):
        await asyncio.sleep(chance.expovariate(1.0) * client.spec.gap_s)
        action = chance.random()
        if action < 0.2:  # Heartbeats are cached and held only between two changes.
            await asyncio.sleep(session_s)
        elif action < 0.25:
            with contextlib.suppress(KafkaError):
                await Admin(cluster).delete_topics([CHANGELOG])
            continue
        elif action < 0.4:
            user = chance.choice(("alice", "bob"))
            await change_acls(cluster, (), [acl for acl in acls if acl.user == user])
            await asyncio.sleep(chance.choice((0.2, 1.0, 4.0)) * session_s)
            await change_acls(
                cluster, [acl for acl in acls if acl.user == user and acl.permission != DENY], ()
            )
        chosen = chance.sample(acls, min(len(acls), chance.choice((1, 1, 1, 3))))
        granted = [acl for acl in chosen if chance.random() < _frequency(acl)]
        await change_acls(cluster, granted, [acl for acl in chosen if acl not in granted])
    client.leaving = True


def _frequency(acl: AclEntry) -> float:
    """Return the part of the time in which an ACL is present."""
    if acl.permission == DENY:
        return 0.15
    return 0.4 if acl.operation == CREATE else 0.8


async def change_acls(cluster: Cluster, added: Sequence[AclEntry], removed: Sequence[AclEntry]) -> None:
    """Create and delete ACLs."""
    if added:
        await cluster.ask(CreateAclsRequest(creations=tuple(acl.creation() for acl in added)))
    if removed:
        await cluster.ask(DeleteAclsRequest(filters=tuple(acl.deletion() for acl in removed)))
