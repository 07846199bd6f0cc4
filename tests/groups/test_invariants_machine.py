"""Random runs of classic groups: the invariants hold whatever members, timers, settings and restarts do.

Six clients, three of them static, and two groups. Hypothesis draws the events: well-behaved rounds; single
requests, early, late and twice; foreign ids and generations; silence, time and clock steps; changed settings;
restarts with a compacted or truncated log; failing appends. After every event each invariant of
`konvene.sim.invariants` is checked, and at the end all prefixes and compactions of the log are replayed.

`KONVENE_INVARIANTS=2000` plays that many random runs instead of a few fixed ones.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests import depth
from tests.groups.asking import join_request, subscription

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.shard.image import Topic, Topics
from konvene.sim.invariants import classes_of
from konvene.sim.journal import Log
from konvene.sim.transcript.sandbox import Sandbox
from konvene.sim.world.compaction import (
    assert_compaction_changes_nothing,
    assert_every_prefix_loads,
    compacted,
)
from konvene.sim.world.event import Event

EXAMPLES = int(os.environ.get("KONVENE_INVARIANTS", "0"))

NAMES = ("ann", "bob", "cas", "dan", "eve", "fay")
STATIC = ("dan", "eve", "fay")
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"))
SETTINGS = {
    "group.max.size": "4",
    "group.initial.rebalance.delay.ms": "1000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "15000",
}


COUNTED: Counter[str] = Counter()
"""Counts over all runs: events by kind, responses by API and error, states."""


def count(event: Event) -> None:
    COUNTED[event.kind] += 1
    COUNTED["lost a tail"] += event.lost
    for group in event.after.groups.values():
        COUNTED[f"state {group.state}"] += 1
    if event.kind == "request":
        result = "waits" if event.error is None else event.error.name
        COUNTED[f"{event.api} {result}"] += 1


@dataclass
class Client:
    """A client and the state that it knows. `stale` has its former member ids and generations."""

    name: str
    group_id: str = "g"
    member_id: str = ""
    generation: int = -1
    protocols: tuple[str, ...] = PROTOCOLS[0]
    topics: tuple[str, ...] = ("orders",)
    rebalance_timeout_ms: int = 8_000
    leads: tuple[str, ...] | None = None
    """The members that it assigns as the leader."""
    needs: str = "join"
    stale: list[tuple[str, int]] = field(default_factory=list)

    @property
    def instance_id(self) -> str | None:
        name = self.name.removesuffix(" before")
        return name if name in STATIC else None

    def forget(self) -> None:
        self.stale.append((self.member_id, self.generation))
        self.member_id, self.generation, self.leads, self.needs = "", -1, None, "join"


class ClassicGroupMachine(RuleBasedStateMachine):
    """Random events of members, administrators and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Sandbox(SETTINGS, watch=count)
        self.topics_made = 0
        self.clients = {name: Client(name) for name in NAMES}
        self.delivered: dict[str, Any] = {}

    def teardown(self) -> None:
        COUNTED["lives"] += 1
        self.life.durable()
        assert_every_prefix_loads(self.life.runtime)
        assert_compaction_changes_nothing(self.life.runtime)

    # --- one request ---

    def waits(self, who: str) -> bool:
        return who in self.life.waiting.values()

    def ask(self, who: str, request: Any, version: int) -> Any:
        response = self.life.ask(who, request, version, client_id=who)
        self.deliver_responses()
        return response

    def deliver_responses(self) -> None:
        """Deliver to each client the response that it waited for."""
        for who, response in list(self.life.answers.items()):
            if who in self.clients and self.delivered.get(who) is not response:
                self.delivered[who] = response
                self.handle_response(self.clients[who], response)

    def handle_response(self, client: Client, response: Any) -> None:
        error = response if isinstance(response, Errors) else Errors(getattr(response, "error_code", 0))
        joined = type(response).__name__ == "JoinGroupResponse"
        if joined and error in (Errors.NONE, Errors.MEMBER_ID_REQUIRED):
            client.stale.append((client.member_id, client.generation))
            client.member_id = response.member_id
            client.generation = response.generation_id if error is Errors.NONE else -1
            is_leader = response.leader == response.member_id and response.members
            client.leads = tuple(m.member_id for m in response.members) if is_leader else None
            client.needs = "join" if error is Errors.MEMBER_ID_REQUIRED else "sync"
        elif type(response).__name__ == "SyncGroupResponse" and error is Errors.NONE:
            client.needs = "heartbeat"
        elif error in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID, Errors.GROUP_MAX_SIZE_REACHED):
            client.forget()
        elif error in (Errors.REBALANCE_IN_PROGRESS, Errors.ILLEGAL_GENERATION, Errors.NOT_COORDINATOR):
            client.needs = "join"

    def do_join(self, client: Client, version: int = 9, session_timeout_ms: int = 10_000) -> None:
        metadata = subscription(client.topics, client.name)
        request = join_request(
            client.member_id,
            client.instance_id if version >= 5 else None,
            client.protocols,
            metadata,
            group_id=client.group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=client.rebalance_timeout_ms,
        )
        self.ask(client.name, request, version)

    def do_sync(self, client: Client, version: int = 5) -> None:
        given = tuple(
            SyncGroupRequestAssignment(member_id=m, assignment=f"{m}@{client.generation}".encode())
            for m in client.leads or ()
        )
        request = SyncGroupRequest(
            group_id=client.group_id,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id if version >= 3 else None,
            assignments=given,
        )
        self.ask(client.name, request, version)

    def do_heartbeat(self, client: Client, version: int = 4) -> None:
        request = HeartbeatRequest(
            group_id=client.group_id,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id if version >= 3 else None,
        )
        self.ask(client.name, request, version)

    # --- well-behaved clients ---

    @rule(who=st.sets(st.sampled_from(NAMES), min_size=1), commits=st.booleans())
    def all_act(self, who: set[str], commits: bool) -> None:
        """Each client sends its next request in turn; perhaps each commits first."""
        for client in [self.clients[name] for name in sorted(who) if commits]:
            self.commit_as(client, 11, False, 9, True)
        self.take_turns(sorted(who))

    @rule(who=st.sets(st.sampled_from(NAMES), min_size=1), until=st.integers(2, 6))
    def settle(self, who: set[str], until: int) -> None:
        """They continue until none has to join or sync, with time for the initial rebalance delay."""
        for _ in range(until):
            self.take_turns(sorted(who))
            if not any(self.clients[name].needs == "sync" and not self.waits(name) for name in who):
                self.wait(1000)
            if all(self.clients[name].needs == "heartbeat" for name in who):
                break

    def take_turns(self, who: list[str]) -> None:
        for name in who:
            client = self.clients[name]
            if not self.waits(name) and client.needs == "sync":
                self.do_sync(client)
            elif not self.waits(name) and client.needs == "heartbeat":
                self.do_heartbeat(client)
            if not self.waits(name) and client.needs == "join":
                self.do_join(client)

    @rule(who=st.sets(st.sampled_from(NAMES), min_size=2, max_size=3))
    def settle_and_stay(self, who: set[str]) -> None:
        """They continue for longer than unused offsets are retained."""
        self.settle(who=who, until=4)
        for _ in range(9):
            self.wait(9000)
            self.take_turns(sorted(who))

    # --- single requests, at any time ---

    @rule(
        who=st.sampled_from(NAMES),
        protocols=st.sampled_from(PROTOCOLS),
        topics=st.sampled_from([("orders",), ("orders", "audit"), ("audit",)]),
        timeout=st.sampled_from([5_000, 20_000, 40_000]),
        version=st.sampled_from([0, 2, 4, 5, 9]),
        session=st.sampled_from([10_000, 10_000, 30_000, 5_999, 1_800_001]),
        again=st.booleans(),
    )
    def join(
        self, who: str, protocols: Any, topics: Any, timeout: int, version: int, session: int, again: bool
    ) -> None:
        """Join, perhaps while the last request waits: that is on another connection."""
        client = self.clients[who]
        if self.waits(who) and not again:
            return
        if version == 0:
            timeout = session
        client.protocols, client.topics, client.rebalance_timeout_ms = protocols, topics, timeout
        self.do_join(client, version, session)

    @rule(who=st.sampled_from(NAMES), version=st.sampled_from([0, 3, 5]), again=st.booleans())
    def sync(self, who: str, version: int, again: bool) -> None:
        if again or not self.waits(who):
            self.do_sync(self.clients[who], version)

    @rule(who=st.sampled_from(NAMES), version=st.sampled_from([0, 3, 4]))
    def heartbeat(self, who: str, version: int) -> None:
        self.do_heartbeat(self.clients[who], version)

    @rule(who=st.sampled_from(NAMES))
    def restart_client(self, who: str) -> None:
        """A client crashes and restarts; the response that it waited for is lost."""
        self.clients[who].forget()

    @rule(
        who=st.sampled_from(NAMES),
        owner=st.sampled_from((None, None, *NAMES)),
        index=st.integers(-4, 0),
        shift=st.sampled_from([-1, 0, 1, 2**31 - 1]),
        api=st.sampled_from(["join", "sync", "heartbeat", "commit", "leave"]),
    )
    def send_stale_ids(self, who: str, owner: str | None, index: int, shift: int, api: str) -> None:
        """Send former ids and generations, or another member's, under the client's own instance id."""
        client, other = self.clients[who], self.clients[owner or who]
        known = [(other.member_id, other.generation), *other.stale]
        member_id, generation = known[max(index, -len(known))]
        generation = min(generation + shift, 2**31 - 1)
        liar = Client(who, client.group_id, member_id, generation, client.protocols, leads=(member_id, "no"))
        if api == "commit":
            self.commit_as(liar, 7, False, 9, True)
        elif api == "leave":
            self.leave_as([liar], 5, False)
        elif not self.waits(who):
            # The answer is the liar's, not the client's, unless it has to wait.
            self.clients[who] = liar
            {"join": self.do_join, "sync": self.do_sync, "heartbeat": self.do_heartbeat}[api](liar)
            if not self.waits(who):
                self.clients[who] = client

    @rule(who=st.sampled_from(STATIC), api=st.sampled_from(["join", "sync", "heartbeat", "commit"]))
    def two_processes_are_one_member(self, who: str, api: str) -> None:
        """A second process replaces the first one, which does not know it yet."""
        client = self.clients[who]
        first = replace(client, stale=[], leads=(client.member_id,))
        if self.waits(who):
            return
        client.forget()
        self.do_join(client)
        first.name = f"{who} before"
        if api == "commit":
            self.commit_as(first, 7, False, 9, True)
        else:
            {"join": self.do_join, "sync": self.do_sync, "heartbeat": self.do_heartbeat}[api](first)

    @rule(who=st.sampled_from(NAMES), protocol=st.sampled_from(["roundrobin", "range"]))
    def join_with_another_protocol(self, who: str, protocol: str) -> None:
        """Join with a protocol that no other member has, or that does not exist."""
        client = self.clients[who]
        if not self.waits(who):
            kept, client.protocols = client.protocols, (protocol,)
            self.do_join(client)
            client.protocols = kept

    @rule(
        who=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
        version=st.sampled_from([1, 3, 5]),
        as_administrator=st.booleans(),
    )
    def leave(self, who: list[str], version: int, as_administrator: bool) -> None:
        self.leave_as([self.clients[name] for name in who], version, as_administrator)

    def leave_as(self, members: list[Client], version: int, as_administrator: bool) -> None:
        leaving = tuple(
            MemberIdentity(
                member_id="" if as_administrator and c.instance_id else c.member_id,
                group_instance_id=c.instance_id,
                reason="because" if version >= 5 else None,
            )
            for c in members
        )
        request = LeaveGroupRequest(group_id=members[0].group_id, members=leaving)
        if version < 3:
            request = LeaveGroupRequest(group_id=members[0].group_id, member_id=members[0].member_id)
        self.ask("admin", request, version)

    # --- offsets ---

    @rule(
        who=st.sampled_from(NAMES),
        offset=st.integers(0, 100),
        alone=st.booleans(),
        version=st.sampled_from([2, 7, 9, 10]),
        named=st.booleans(),
    )
    def commit(self, who: str, offset: int, alone: bool, version: int, named: bool) -> None:
        client = self.clients[who]
        simple = Client(who, "s")  # A group that never has a member.
        self.commit_as(simple if alone and named else client, offset, alone, version, named)

    def commit_as(self, client: Client, offset: int, alone: bool, version: int, named: bool) -> None:
        topic = self.life.topics.by_name["orders"]
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=p, committed_offset=offset, committed_metadata=client.name if p else None
            )
            for p in (offset % 7, (offset + 1) % 7)
        )
        committed_topic = OffsetCommitRequestTopic(
            **{"topic_id": topic.id} if version >= 10 else {"name": "orders"}, partitions=partitions
        )
        request = OffsetCommitRequest(
            group_id=client.group_id,
            generation_id_or_member_epoch=-1 if alone else client.generation,
            member_id="" if alone else client.member_id,
            group_instance_id=client.instance_id if named and version >= 7 and not alone else None,
            retention_time_ms=offset * 1000 if named and version <= 4 else -1,
            topics=(committed_topic,),
        )
        self.ask("committer", request, version)

    @rule(group_id=st.sampled_from(["g", "h", "s", "s"]), version=st.sampled_from([9, 10]))
    def fetch(self, group_id: str, version: int) -> None:
        topic = self.life.topics.by_name["orders"]
        name: dict[str, Any] = {"topic_id": topic.id} if version >= 10 else {"name": "orders"}
        topics = (OffsetFetchRequestTopics(partition_indexes=tuple(range(6)), **name),)
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        response = self.ask("admin", OffsetFetchRequest(groups=(group,)), version)
        for p in response.groups[0].topics[0].partitions if response is not None else ():
            held = self.life.shard.offsets.get(group_id, {}).get("orders", {}).get(p.partition_index)
            if version < 10:
                assert p.committed_offset == (held.offset if held is not None else -1)

    # --- administrators and accidents ---

    @rule(group_id=st.sampled_from(["g", "s", "s"]), first=st.booleans())
    def delete_a_group(self, group_id: str, first: bool) -> None:
        """Delete a group, perhaps just after a commit without a member."""
        if first:
            self.commit_as(Client("simple", group_id), 3, True, 8, False)
        self.ask("admin", DeleteGroupsRequest(groups_names=(group_id, group_id, "nobody")), 2)

    @rule(
        failure=st.sampled_from(
            ["delete offsets", "delete offsets", "recreate a topic", "a topic is deleted", "another group",
             "restart", "compact", "crash", "hold", "fail append", "too large", "settings", "clock"]
        ),
        who=st.sampled_from(NAMES),
        most=st.sampled_from(["2", "4", "10"]),
        delay=st.sampled_from(["0", "1000", "3000"]),
    )  # fmt: skip
    def interfere(self, failure: str, who: str, most: str, delay: str) -> None:
        client = self.clients[who]
        if failure == "delete offsets":
            self.delete_offsets(client.group_id, "audit" if most == "2" else "orders")
        elif failure == "recreate a topic":
            self.recreate_a_topic()
        elif failure == "a topic is deleted":
            topic = self.life.topics.by_name["orders"]
            deletion = DeleteTopicState(name=topic.name, topic_id=topic.id)
            if most != "2":  # A notification for a former topic of that name is late.
                self.recreate_a_topic()
            self.ask("broker", DeleteTopicsRequest(topics=(deletion,), timeout_ms=1), 6)
        elif failure == "another group" and not self.waits(who):
            client.forget()
            client.group_id = "h" if client.group_id == "g" else "g"
        elif failure == "restart":
            self.life.restart()
            self.deliver_responses()
        elif failure == "compact":
            self.life.crash(keep=99, change=self.compact)
            self.deliver_responses()
        elif failure == "crash":
            self.life.crash(keep=int(delay) // 1000)
            self.deliver_responses()
        elif failure == "hold":
            self.life.hold()
        elif failure == "fail append":
            self.life.next_append("fails")
        elif failure == "too large":
            self.life.next_append("too large")
        elif failure == "settings":
            self.life.set_config(("group.max.size", most), ("group.initial.rebalance.delay.ms", delay))
        elif failure == "clock":
            self.life.event_queue.wall_off_ms = (int(delay) - 1000) * int(most) * 180

    @staticmethod
    def compact(log: Log) -> None:
        log.batches[:] = compacted(log.batches, len(log.batches), False)

    def delete_offsets(self, group_id: str, topic: str) -> None:
        partitions = tuple(OffsetDeleteRequestPartition(partition_index=i) for i in (0, 1, 2, 1))
        topics = (OffsetDeleteRequestTopic(name=topic, partitions=partitions),)
        self.ask("admin", OffsetDeleteRequest(group_id=group_id, topics=topics), 0)

    def recreate_a_topic(self) -> None:
        """Recreate a topic: the same name under another id."""
        self.topics_made += 1
        known = dict(self.life.topics.by_name)
        known["orders"] = Topic("orders", Uuid(f"orders-{self.topics_made}".ljust(16, "-").encode()), 6)
        self.life.topics = Topics(known.values())

    # --- time ---

    @rule(ms=st.sampled_from([1, 500, 1000, 3000, 9999, 10_000, 20_000, 40_000, 300_000]))
    def wait(self, ms: int) -> None:
        self.life.advance(ms)
        self.deliver_responses()


TestClassicGroups = ClassicGroupMachine.TestCase
TestClassicGroups.settings = settings(
    max_examples=EXAMPLES or depth.examples(depth.times(100, soaked=200)),
    stateful_step_count=50,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)


REACHED = {
    *(f"state {state}" for state in State if state is not State.DEAD),
    "request", "timer", "loaded", "audit", "append failed", "too large", "lost a tail",
    "JoinGroup waits", "JoinGroup NONE", "JoinGroup MEMBER_ID_REQUIRED", "JoinGroup UNKNOWN_MEMBER_ID",
    "JoinGroup GROUP_MAX_SIZE_REACHED", "JoinGroup FENCED_INSTANCE_ID", "JoinGroup INVALID_SESSION_TIMEOUT",
    "JoinGroup INCONSISTENT_GROUP_PROTOCOL",
    "SyncGroup waits", "SyncGroup NONE", "SyncGroup ILLEGAL_GENERATION", "SyncGroup UNKNOWN_MEMBER_ID",
    "SyncGroup REBALANCE_IN_PROGRESS", "SyncGroup FENCED_INSTANCE_ID",
    "Heartbeat NONE", "Heartbeat ILLEGAL_GENERATION", "Heartbeat REBALANCE_IN_PROGRESS",
    "Heartbeat UNKNOWN_MEMBER_ID", "Heartbeat FENCED_INSTANCE_ID",
    "OffsetCommit NONE", "OffsetCommit ILLEGAL_GENERATION", "OffsetCommit UNKNOWN_MEMBER_ID",
    "OffsetCommit REBALANCE_IN_PROGRESS", "OffsetCommit FENCED_INSTANCE_ID",
    "OffsetDelete NONE", "DeleteGroups NONE", "DeleteTopics NONE", "LeaveGroup NONE", "OffsetFetch NONE",
}  # fmt: skip


def test_the_runs_covered_all_events() -> None:
    if depth.quick or not COUNTED["lives"]:
        pytest.skip("too few examples ran in this process")
    assert set(COUNTED) >= REACHED, sorted(REACHED - set(COUNTED))
    assert len(classes_of()) == len({p.__doc__ for p in classes_of()})
    assert COUNTED["request"] + COUNTED["timer"] > 20 * COUNTED["lives"]
