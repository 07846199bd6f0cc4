"""Rows 24 to 26, 38 to 42, 45 and 46 of the hostile inputs, on the core: no request violates an invariant.

The responses to each are tested through a socket, and compared with Kafka
(`tests/broker/hostile/test_groups.py`). Here random requests with boundary and invalid values are sent in the
middle of a group's life, every invariant is checked against each of them, and the subject of each row is
checked in the group's state.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests import depth
from tests.groups.asking import Cast, commit_request, join_request, subscription

from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest
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
from konvene.sim.world.compaction import assert_compaction_changes_nothing, assert_every_prefix_loads

EXAMPLES = int(os.environ.get("KONVENE_INVARIANTS", "0"))
LONGEST = 2**31 - 1

# --- requests with boundary values ----------------------------------------------------------------------

groups = st.sampled_from(["g", "g", "g", "g", "", "🐘", "a\0b", "g" * 32_767, "h"])
members = st.sampled_from(["", "<ann>", "<bob>", "<CAS>", "<old>", "nobody", "🐘", "m" * 30_000])
instances = st.sampled_from([None, None, "CAS", "CAS", "nobody", "", "🐘", "i" * 30_000])
ids = st.sampled_from([0, 1, 2, 3, -1, -2, LONGEST, -LONGEST - 1])
times = st.sampled_from([30_000, 30_000, 6000, 5999, 0, -1, 1_800_000, 1_800_001, LONGEST, -LONGEST - 1])
texts = st.sampled_from(["range", "range", "sticky", "", "🐘", "p" * 1000])
types = st.sampled_from(["consumer", "consumer", "connect", "", "🐘"])
blobs = st.one_of(
    st.sampled_from([b"", b"\0", subscription(), b"\0\1\x7f\xff\xff\xff"]), st.binary(max_size=40)
)
partitions = st.sampled_from([0, 1, 5, 6, -1, LONGEST])
offsets = st.sampled_from([0, 7, -1, -2, 2**63 - 1, -(2**63)])
reasons = st.sampled_from([None, "", "need to revoke partitions", "r" * 5000, "🐘\0"])


def some(strategy: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


indexes = some(partitions)
topics_named = st.sampled_from(["orders", "orders", "audit", "nowhere", "", "🐘"])

requests = st.one_of(
    st.tuples(
        st.builds(
            JoinGroupRequest,
            group_id=groups,
            session_timeout_ms=times,
            rebalance_timeout_ms=times,
            member_id=members,
            group_instance_id=instances,
            protocol_type=types,
            protocols=st.lists(
                st.builds(JoinGroupRequestProtocol, name=texts, metadata=blobs),
                max_size=3,
                unique_by=lambda protocol: protocol.name,  # Listed twice it counts twice, as in Kafka.
            ).map(tuple),
            reason=reasons,
        ),
        st.just(9),
    ),
    st.tuples(
        st.builds(
            SyncGroupRequest,
            group_id=groups,
            generation_id=ids,
            member_id=members,
            group_instance_id=instances,
            protocol_type=st.one_of(st.none(), types),
            protocol_name=st.one_of(st.none(), texts),
            assignments=some(st.builds(SyncGroupRequestAssignment, member_id=members, assignment=blobs)),
        ),
        st.just(5),
    ),
    st.tuples(
        st.builds(
            HeartbeatRequest,
            group_id=groups,
            generation_id=ids,
            member_id=members,
            group_instance_id=instances,
        ),
        st.just(4),
    ),
    st.tuples(
        st.builds(
            LeaveGroupRequest,
            group_id=groups,
            members=some(
                st.builds(MemberIdentity, member_id=members, group_instance_id=instances, reason=reasons)
            ),
        ),
        st.just(5),
    ),
    st.tuples(
        st.builds(
            OffsetCommitRequest,
            group_id=groups,
            generation_id_or_member_epoch=ids,
            member_id=members,
            group_instance_id=instances,
            topics=some(
                st.builds(
                    OffsetCommitRequestTopic,
                    name=topics_named,
                    partitions=some(
                        st.builds(
                            OffsetCommitRequestPartition,
                            partition_index=partitions,
                            committed_offset=offsets,
                            committed_leader_epoch=ids,
                            committed_metadata=st.sampled_from([None, "", "m" * 4096, "m" * 4097, "🐘\0"]),
                        )
                    ),
                )
            ),
        ),
        st.just(9),
    ),
    st.tuples(
        st.builds(
            OffsetDeleteRequest,
            group_id=groups,
            topics=some(
                st.builds(
                    OffsetDeleteRequestTopic,
                    name=topics_named,
                    partitions=some(st.builds(OffsetDeleteRequestPartition, partition_index=partitions)),
                )
            ),
        ),
        st.just(0),
    ),
    st.tuples(
        st.builds(
            OffsetFetchRequest,
            groups=some(
                st.builds(
                    OffsetFetchRequestGroup,
                    group_id=groups,
                    topics=st.one_of(
                        st.none(),
                        some(
                            st.builds(
                                OffsetFetchRequestTopics, name=topics_named, partition_indexes=indexes
                            )
                        ),
                    ),
                )
            ),
            require_stable=st.booleans(),
        ),
        st.just(9),
    ),
    st.tuples(st.builds(DescribeGroupsRequest, groups=some(groups)), st.just(5)),
    st.tuples(st.builds(DeleteGroupsRequest, groups_names=some(groups)), st.just(2)),
    st.tuples(
        st.builds(ListGroupsRequest, states_filter=some(texts), types_filter=some(texts)), st.just(5)
    ),
)  # fmt: skip


def with_member_ids(value: Any, cast: Cast) -> Any:
    """Return the request with each "<ann>" replaced by ann's member id."""
    if isinstance(value, str) and value.startswith("<"):
        return cast.ids.get(value[1:-1], "gone")
    if isinstance(value, tuple):
        return tuple(with_member_ids(part, cast) for part in value)
    if hasattr(value, "replace") and hasattr(value, "__annotations__"):
        return value.replace(
            **{name: with_member_ids(getattr(value, name), cast) for name in fields_of(value)}
        )
    return value


def fields_of(value: Any) -> list[str]:
    return [name for name in type(value).__annotations__ if not name.startswith("_")]


COMMIT = (
    OffsetCommitRequest(
        group_id="g",
        topics=(
            OffsetCommitRequestTopic(
                name="orders", partitions=(OffsetCommitRequestPartition(committed_offset=1),)
            ),
        ),
    ),
    9,
)
GROUP_NAMED_TWICE = (
    OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="g", topics=()),
        )
    ),
    9,
)


@settings(
    max_examples=EXAMPLES or depth.examples(150),
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    random_requests=st.lists(
        st.tuples(requests, st.sampled_from([0, 0, 0, 1, 3000, 31_000])), min_size=5, max_size=25
    ),
    until=st.sampled_from(["empty", "joining", "completing", "stable"]),
)
@example(random_requests=[(COMMIT, 0), (GROUP_NAMED_TWICE, 0)], until="empty")
def test_no_request_violates_an_invariant(random_requests: list[Any], until: str) -> None:
    """Each request, in each state, gets a response or a refusal, never an exception; afterwards two
    well-behaved members form a stable group."""
    cast = Cast(group_max_size="6")
    if until != "empty":
        for name in ("ann", "bob", "CAS"):
            cast.join(name, session_timeout_ms=30_000)
    if until in ("completing", "stable"):
        cast.advance(1000)
    if until == "stable":
        cast.ids["old"] = cast.ids["CAS"]
        for name in sorted(("ann", "bob", "CAS"), key=lambda name: cast.ids[name] != cast.group.leader):
            cast.sync(name)
        cast.anew("CAS", session_timeout_ms=30_000)
    for (request, version), ms in random_requests:
        cast.life.ask("other", with_member_ids(request, cast), version)
        cast.advance(ms)
    assert_every_prefix_loads(cast.life.runtime)
    assert_compaction_changes_nothing(cast.life.runtime)
    cast.advance(3_600_000)
    cast.life.config = Cast().life.config
    group = cast.group_or_none
    assert group is None or group.state is State.EMPTY
    cast.ids.clear()
    cast.stable("ann", "DAN")


# --- the rows, checked in the group's state ---------------------------------------------------------------


def test_row_25_a_group_id_that_fills_a_record() -> None:
    """An id of the protocol's maximum length can be logged and replayed."""
    cast = Cast()
    name = "g" * 32_767
    assert cast.ask("simple", commit_request(9, group_id=name), 8).topics[0].partitions[0].error_code == 0
    cast.life.restart()
    assert cast.life.shard.offsets[name]["orders"][0].offset == 9


def test_row_38_assigned_ids_expire() -> None:
    """An unused member id lives no longer than its session timeout, and delays no rebalance."""
    cast = Cast()
    for _ in range(100):
        assert cast.ask("other", join_request(session_timeout_ms=6000), 9).error_code == 79
    assert len(cast.group.pending_joins) == 100
    cast.advance(6000)
    assert cast.group.pending_joins == set()
    assert [key for key in cast.life.runtime.timers if key != RETENTION] == []


def test_row_40_a_subscription_that_cannot_be_read_keeps_offsets() -> None:
    """In doubt a member subscribes to every topic: OffsetDelete deletes none of its offsets."""
    cast = Cast()
    cast.stable("ann", metadata=b"\0\1\x7f\xff\xff\xff")
    cast.commit("ann", 7)
    partition = (OffsetDeleteRequestPartition(partition_index=0),)
    topics = (OffsetDeleteRequestTopic(name="orders", partitions=partition),)
    response = cast.ask("other", OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert response.topics[0].partitions[0].error_code == Errors.GROUP_SUBSCRIBED_TO_TOPIC
    assert cast.fetched() == 7


def test_row_41_a_member_that_is_not_the_leader_assigns_nothing() -> None:
    """Neither before the leader syncs nor after it; and an unknown member id gets no assignment."""
    cast = Cast()
    for name in ("ann", "bob"):
        cast.join(name)
    cast.advance(1000)
    leader = next(name for name in ("ann", "bob") if cast.ids[name] == cast.group.leader)
    other = "bob" if leader == "ann" else "ann"
    mine = (SyncGroupRequestAssignment(member_id=cast.ids[other], assignment=b"mine"),)
    assert cast.sync(other, assignments=mine) is None
    assert cast.group.state is State.COMPLETING_REBALANCE
    unknown = SyncGroupRequestAssignment(member_id="unknown", assignment=b"n" * 1000)
    assert cast.sync(leader, assignments=(unknown,)).assignment == b""
    assert cast.answer(other).assignment == b""
    assert cast.sync(other, assignments=mine).assignment == b""
    assert set(cast.group.members) == {cast.ids["ann"], cast.ids["bob"]}


@pytest.mark.parametrize("version", [2, 9])
def test_row_42_a_storm_of_joins_without_syncs_ends_with_the_sessions(version: int) -> None:
    """Hundreds of joins without a sync: the last of them is removed when their sessions expire."""
    cast = Cast(group_max_size="50")
    for i in range(300):
        response = cast.ask(f"c{i}", join_request(), version)
        if response is not None and response.error_code == Errors.MEMBER_ID_REQUIRED:
            cast.ask(f"c{i}", join_request(response.member_id), version)
    assert len(cast.group.members) + len(cast.group.pending_joins) <= (50 if version == 2 else 300)
    assert len(cast.group.members) <= 50
    cast.advance(60_000)
    assert cast.group.state is State.EMPTY
    assert cast.life.waiting == {}


def test_row_45_of_a_repeated_partition_the_last_commit_counts() -> None:
    """A request that repeats a partition: the last value counts, live and after a restart."""
    cast = Cast()
    rows = tuple(
        OffsetCommitRequestPartition(partition_index=0, committed_offset=i, committed_metadata="")
        for i in range(3)
    )
    topics = (OffsetCommitRequestTopic(name="orders", partitions=rows),) * 2
    response = cast.ask("simple", OffsetCommitRequest(group_id="g", topics=topics), 8)
    assert [len(t.partitions) for t in response.topics] == [3, 3]
    assert cast.fetched() == 2
    cast.life.restart()
    assert cast.fetched() == 2


@pytest.mark.parametrize("static", [True, False])
def test_row_46_a_commit_without_a_member_is_refused_while_there_are_members(static: bool) -> None:
    """While there are members, only they commit; in an empty group any client does."""
    cast = Cast()
    name = "ANN" if static else "ann"
    cast.stable(name)
    cast.commit(name, 7)
    assert cast.ask("other", commit_request(9), 8) is Errors.UNKNOWN_MEMBER_ID
    assert cast.fetched() == 7
    cast.leave(MemberIdentity(member_id=cast.ids[name]))
    assert cast.ask("other", commit_request(9), 8).topics[0].partitions[0].error_code == 0
    assert cast.fetched() == 9
