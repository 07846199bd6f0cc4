"""Invariants of a broker with an authorizer, judged at its sockets by the rights that the wire shows.

A response is compared with the rights of the user that authenticated on its connection, in an interval:

    response                                  interval in which the right has to exist at least once
    from the cache, or decided at once        the step of the request
    of a heartbeat that was held              from its release to the response
    records of Fetch and ShareFetch           the step of the response
    of any other request                      from the request to the response: it may wait for the disk

A denial is wrong if the right existed from the request (or the release) to the response. While a change of
ACLs is not answered, either is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.cluster.acls import ACLS_CHANGED
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.sim.end_to_end.acl_churn import APPLICATION, STREAMS_GROUP
from konvene.sim.end_to_end.broker import BROKER
from konvene.sim.end_to_end.invariant import Invariant
from konvene.sim.end_to_end.rights import (
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    WRITE,
    Right,
)
from konvene.sim.end_to_end.wire_observer import SASL_APIS, Exchange

if TYPE_CHECKING:
    from konvene.codec.uuid import Uuid
    from konvene.runtime.coordinator import Coordinator
    from konvene.sim.end_to_end.run import EndToEndRun

__all__ = ["SECURITY_INVARIANTS"]

CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, STREAMS_HEARTBEAT = 68, 76, 88
HEARTBEATS = frozenset((12, CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, STREAMS_HEARTBEAT))
READS = frozenset((1, 78))
RENEWALS = HEARTBEATS | {8, 11, 14}
"""Requests that renew the session of a member."""
LATE_S = 0.5
"""Delay of a release that a busy broker may have."""
CREATION_S = 5.0
"""Longest time from the permission to create a topic until it exists."""


class Finding(NamedTuple):
    """What a response shows: the operation on the resource was permitted, or denied."""

    operation: int
    resource_type: int
    name: str
    is_permitted: bool


# --- what responses show ---------------------------------------------------------------------------

Names = Mapping["Uuid", str]
"""Topic names by id."""


def _group_request(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
    yield _group(READ, request.group_id, response.error_code)


def _group(operation: int, group_id: str, error: int) -> Finding:
    return Finding(operation, GROUP, group_id, error != Errors.GROUP_AUTHORIZATION_FAILED)


def _topic(operation: int, name: str, error: int) -> Iterator[Finding]:
    """Yield what the error of a topic shows; errors other than of authorization show nothing."""
    if error in (Errors.NONE, Errors.TOPIC_AUTHORIZATION_FAILED):
        yield Finding(operation, TOPIC, name, error == Errors.NONE)


def _heartbeat(names_of: Callable[[Any], Iterable[str]]) -> Callable[..., Iterator[Finding]]:
    def findings(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
        yield _group(READ, request.group_id, response.error_code)
        requested = list(names_of(request))
        if not response.error_code:
            for name in requested:
                yield Finding(DESCRIBE, TOPIC, name, True)
        elif response.error_code == Errors.TOPIC_AUTHORIZATION_FAILED and len(requested) == 1:
            yield Finding(DESCRIBE, TOPIC, requested[0], False)

    return findings


def _subscribed(request: Any) -> Iterable[str]:
    return request.subscribed_topic_names or ()


def _topology_topics(request: Any) -> Iterable[str]:
    """Return the topics of a topology, of which each needs DESCRIBE."""
    if request.topology is None:
        return ()
    return [
        name
        for subtopology in request.topology.subtopologies
        for name in (*subtopology.source_topics, *(c.name for c in subtopology.state_changelog_topics))
    ]


def _fetch(request: Any, response: Any, names: Names) -> Iterator[Finding]:
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for row in topic.partitions:
            if name:
                yield from _topic(READ, name, row.error_code)


def _share_fetch(request: Any, response: Any, names: Names) -> Iterator[Finding]:
    yield _group(READ, request.group_id, response.error_code)
    for topic in response.responses:
        for row in topic.partitions:
            if topic.topic_id in names and (row.error_code or row.records):
                yield from _topic(READ, names[topic.topic_id], row.error_code)


def _offset_commit(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
    for topic in response.topics:
        for row in topic.partitions:
            yield _group(READ, request.group_id, row.error_code)
            yield from _topic(READ, topic.name, row.error_code)


def _offset_fetch(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
    for group in response.groups:
        yield _group(DESCRIBE, group.group_id, group.error_code)
        for topic in group.topics:
            for row in topic.partitions:
                yield from _topic(DESCRIBE, topic.name, row.error_code)


def _find_coordinator(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
    for row in response.coordinators:
        yield _group(DESCRIBE, row.key, row.error_code)


def _metadata(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
    for topic in response.topics:
        if topic.name is not None:
            yield from _topic(DESCRIBE, topic.name, topic.error_code)


def _produce(request: Any, response: Any, _names: Names) -> Iterator[Finding]:
    for topic in response.responses:
        for row in topic.partition_responses:
            yield from _topic(WRITE, topic.name, row.error_code)


FINDINGS: Mapping[int, Callable[[Any, Any, Names], Iterator[Finding]]] = {
    0: _produce,
    1: _fetch,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _group_request,
    12: _group_request,
    13: _group_request,
    14: _group_request,
    CONSUMER_HEARTBEAT: _heartbeat(_subscribed),
    SHARE_HEARTBEAT: _heartbeat(_subscribed),
    78: _share_fetch,
    STREAMS_HEARTBEAT: _heartbeat(_topology_topics),
}
"""What the response of each API shows, by API key."""


# --- the invariants --------------------------------------------------------------------------------


class SecurityInvariant(Invariant):
    """Base class: `exchanged` receives each request with its response, of connections with a user."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self.names: dict[Uuid, str] = {}
        """Names of all topics that ever existed, by id."""

    def topic_names(self) -> Mapping[Uuid, str]:
        broker = self.run.host.broker
        if broker is not None:
            for topic_id, topic in broker.catalogue.topics.by_id.items():
                self.names[topic_id] = topic.name
        return self.names

    def findings(self, exchange: Exchange) -> Iterator[tuple[Finding, Right]]:
        """Yield what the response shows, and the right that it is about."""
        find = FINDINGS.get(exchange.api.key)
        if find is not None:
            for finding in find(exchange.request, exchange.response, self.topic_names()):
                right = Right(exchange.user, finding.operation, finding.resource_type, finding.name)
                yield finding, right

    def explain(self, exchange: Exchange, right: Right) -> str:
        held = "" if exchange.released is None else f", held until {exchange.released_s:.3f} s"
        return (
            f"{exchange.api.name} of {exchange.user} received at {exchange.received_s:.3f} s{held}: {right};"
            f" {exchange.request} -> {str(exchange.response)[:300]}"
        )


class ResponsesNeedTheirRights(SecurityInvariant):
    """SE1: no response that grants an operation, and no record, unless the user of the connection has the
    right at that moment: from the cache, from the purgatory, or decided."""

    def released(self, coordinator: Coordinator, held: Any) -> None:
        """Tell the oracle which changes of ACLs apply now, before the broker learns of them."""
        for effect in held.effects:
            if effect.verb == ACLS_CHANGED:
                rights = self.run.observer.rights
                created, deleted = effect.subject
                rights.applied(created, deleted, rights.tick(self.run.loop.now))

    def exchanged(self, exchange: Exchange) -> None:
        rights = self.run.observer.rights
        first = exchange.received if exchange.released is None else exchange.released
        if exchange.api.key in READS:
            first = exchange.answered
        for finding, right in self.findings(exchange):
            if finding.is_permitted and not rights.may_exist(right, first, exchange.answered):
                self.broken(self.explain(exchange, right))


class RightsAreGranted(SecurityInvariant):
    """SE2: no request is denied whose user had the right from the request to the response."""

    def exchanged(self, exchange: Exchange) -> None:
        rights = self.run.observer.rights
        first = exchange.received if exchange.released is None else exchange.released
        for finding, right in self.findings(exchange):
            if not finding.is_permitted and rights.exists(right, first, exchange.answered):
                self.broken(self.explain(exchange, right))
        is_heartbeat = exchange.api.key in (CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, STREAMS_HEARTBEAT)
        if is_heartbeat and exchange.response.error_code == Errors.TOPIC_AUTHORIZATION_FAILED:
            self._check_topics(exchange, first)

    def _check_topics(self, exchange: Exchange, first: int) -> None:
        """Check that a heartbeat was denied for one of its topics at least."""
        names_of = _topology_topics if exchange.api.key == STREAMS_HEARTBEAT else _subscribed
        rights = [Right(exchange.user, DESCRIBE, TOPIC, name) for name in names_of(exchange.request)]
        if all(self.run.observer.rights.exists(right, first, exchange.answered) for right in rights):
            self.broken(self.explain(exchange, rights[0]))


class ExpiredSessionsGetNoResponse(SecurityInvariant):
    """SE3: a request that arrives after the end of its SASL session is not answered, and no heartbeat is held
    beyond the end."""

    def exchanged(self, exchange: Exchange) -> None:
        end_s = exchange.expires_s
        if end_s is None or exchange.api.key in SASL_APIS:
            return
        if exchange.received_s > end_s:
            self.broken(
                f"{exchange.api.name} of {exchange.user} came at {exchange.received_s:.3f} s and was"
                f" answered; the session ended at {end_s:.3f} s"
            )
        is_late = exchange.released is not None and exchange.released_s > end_s + LATE_S
        if is_late and not self.run.was_paused(BROKER, end_s):
            self.broken(
                f"{exchange.api.name} of {exchange.user} was held until {exchange.released_s:.3f} s; the"
                f" session ended at {end_s:.3f} s"
            )


class GroupsSeePermittedTopics(SecurityInvariant):
    """SE4: an assignment has only topics that a user of the group may have described, and an internal topic
    is created only while a user of its group may create it."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._users: dict[str, set[str]] = {}
        """Users whose heartbeats were accepted, by group."""
        self._created: set[str] = set()
        self._life_s = 0.0

    def began(self) -> None:
        self._life_s = self.run.loop.now

    def exchanged(self, exchange: Exchange) -> None:
        if exchange.api.key not in HEARTBEATS or exchange.response.error_code:
            return
        users = self._users.setdefault(exchange.request.group_id, set())
        users.add(exchange.user)
        assignment = getattr(exchange.response, "assignment", None)
        rights = self.run.observer.rights
        for topic in () if assignment is None else assignment.topic_partitions:
            name = self.topic_names().get(topic.topic_id, "")
            allowed = [Right(user, DESCRIBE, TOPIC, name) for user in sorted(users)]
            if name and not any(rights.may_exist(right, 0, exchange.answered) for right in allowed):
                self.broken(self.explain(exchange, allowed[-1]))

    def settled(self) -> None:
        broker, now_s = self.run.host.broker, self.run.loop.now
        if broker is None:
            return
        rights = self.run.observer.rights
        first = rights.moment_of(now_s - CREATION_S)
        existing = {name for name in broker.catalogue.topics.by_name if name.startswith(APPLICATION)}
        if self._life_s + CREATION_S > now_s or self.run.was_paused(BROKER, now_s - CREATION_S):
            self._created = existing  # It may have been permitted before the pause, or in the last life.
        for name in sorted(existing - self._created):
            users = sorted(self._users.get(STREAMS_GROUP, ()))
            allowed = [Right(user, CREATE, TOPIC, name) for user in users]
            allowed += [Right(user, CREATE, CLUSTER, CLUSTER_NAME) for user in users]
            if not any(rights.may_exist(right, first, rights.now) for right in allowed):
                self.broken(f"{name} was created, which none of {', '.join(users)} may create")
        self._created = existing


class SessionsAreRenewedWithTheRight(SecurityInvariant):
    """SE5: a member whose heartbeats are denied, or sent by others without the right, is removed when its
    session expires."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._renewed_s: dict[tuple[str, str], float] = {}
        """Time of the last accepted request of each member."""
        self._cores: dict[int, tuple[object, float]] = {}
        """The state of each coordinator, and when it was loaded: then all sessions begin anew."""
        # The session of a member that joins begins anew when the rebalance completes.
        self._limit_s = (run.timeouts.session_ms + run.timeouts.rebalance_ms) / 1000 + 2.0

    def exchanged(self, exchange: Exchange) -> None:
        if exchange.api.key not in RENEWALS:
            return
        is_denied = any(not finding.is_permitted for finding, _ in self.findings(exchange))
        if not is_denied:
            self._renewed(exchange)

    def _renewed(self, exchange: Exchange) -> None:
        member_id = exchange.request.member_id or getattr(exchange.response, "member_id", "")
        self._renewed_s[exchange.request.group_id, member_id or ""] = self.run.loop.now

    def settled(self) -> None:
        now_s, run = self.run.loop.now, self.run
        if run.was_paused(BROKER, now_s - self._limit_s):
            return
        for exchange in run.observer.open:
            if exchange.api.key in RENEWALS:
                self._renewed(exchange)
        for index, shard in run.shards():
            known = self._cores.get(index)
            if known is None or known[0] is not shard:
                known = self._cores[index] = shard, now_s
            self._check(shard, now_s - self._limit_s, known[1])

    def _check(self, shard: GroupShard, oldest_s: float, loaded_s: float) -> None:
        for group_id, group in shard.groups.items():
            for member_id in group.members:
                renewed_s = max(self._renewed_s.get((group_id, member_id), 0.0), loaded_s)
                if renewed_s < oldest_s:
                    self.broken(
                        f"{group!r} has {member_id}, whose last accepted heartbeat was at {renewed_s:.3f} s"
                    )


SECURITY_INVARIANTS: tuple[type[Invariant], ...] = (
    ResponsesNeedTheirRights,
    RightsAreGranted,
    ExpiredSessionsGetNoResponse,
    GroupsSeePermittedTopics,
    SessionsAreRenewedWithTheRight,
)
