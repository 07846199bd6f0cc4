"""Past bugs of classic groups, static members and offsets, in Kafka and elsewhere: 45 to 60 of the catalogue.

Each docstring names the bug; the test shows that it does not happen here. Bugs of transactions, 60 to 67, are
in `test_bugs_transactions.py`. All of `invariants` are checked at every event, too.
"""

from __future__ import annotations

import pytest
from tests.groups.asking import REBALANCE_MS, SESSION_MS, Cast, commit_request, fetch_request, join_request

from konvene.codec.compile import encode
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.groups.history import sentences
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION_KEY
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.leave_group import MemberIdentity
from konvene.records.commits import OffsetCommitted, decode_group_record
from konvene.records.offsets import OffsetCommitKey, OffsetCommitValue
from konvene.shard.contract import Context, Disarm

DECADE_MS = 10 * 365 * 24 * 3600 * 1000
NONE, FENCED, UNKNOWN = Errors.NONE, Errors.FENCED_INSTANCE_ID, Errors.UNKNOWN_MEMBER_ID


def test_bug_45_static_rejoin_was_not_persisted() -> None:
    """KAFKA-10284: after a failover the coordinator had the old member id, and fenced the living member."""
    cast = Cast()
    cast.stable("ANN", "BOB")
    old = cast.ids["BOB"]
    assert cast.anew("BOB").error_code == NONE
    cast.life.restart()
    assert cast.heartbeat("BOB", group_instance_id="BOB").error_code == NONE
    assert cast.sync("BOB", group_instance_id="BOB").assignment == f"{old}@1".encode()
    assert cast.heartbeat("BOB", member_id=old, group_instance_id="BOB") is FENCED


def test_bug_46_failed_static_rejoin_was_reverted_halfway() -> None:
    """KAFKA-18263: if the new id could not be written, it was rolled back by hand, with a race. Here nothing
    is rolled back: the state is reloaded, and no client has received the new id."""
    cast = Cast()
    cast.stable("ANN", "BOB")
    old, before = cast.ids["BOB"], cast.group.copy()
    cast.life.next_append("fails")
    assert cast.anew("BOB") is Errors.NOT_COORDINATOR
    assert cast.group.instances == before.instances
    cast.ids["BOB"] = old
    assert cast.heartbeat("BOB", group_instance_id="BOB").error_code == NONE
    assert cast.anew("BOB").error_code == NONE
    assert cast.heartbeat("BOB", member_id=old, group_instance_id="BOB") is FENCED


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_bug_47_two_readers_under_one_instance_id(state: State) -> None:
    """KAFKA-8500: outside Stable the member id was not replaced, and two processes were both the member."""
    cast = Cast()
    cast.stable("ANN", "BOB")
    cast.join("ANN", protocols=("range", "sticky"))
    cast.join("BOB", member_id=cast.ids["BOB"])
    if state is State.PREPARING_REBALANCE:
        cast.join("ANN", protocols=("range",))
    assert cast.group.state is state
    old = cast.ids["BOB"]
    # The second process; the first still waits, or is about to ask for its assignment.
    second = cast.ask("second", join_request(instance_id="BOB"), 9)
    assert second is None or not second.error_code
    assert cast.group.instances["BOB"] != old
    assert old not in cast.group.members
    for ask in (cast.heartbeat, cast.sync):
        assert ask("BOB", member_id=old, group_instance_id="BOB") is FENCED
    assert cast.commit("BOB", member_id=old, instance_id="BOB") is FENCED
    assert cast.join("BOB", member_id=old) is FENCED


def test_bug_47_a_waiting_join_of_a_replaced_member_is_fenced() -> None:
    """KAFKA-8500, its other half: the first process's JoinGroup is answered FENCED_INSTANCE_ID."""
    cast = Cast()
    cast.stable("ANN", "BOB")
    cast.join("ANN", protocols=("range", "sticky"))
    assert cast.group.state is State.PREPARING_REBALANCE
    assert cast.answer("ANN") is None
    cast.ask("second", join_request(instance_id="ANN"), 9)
    assert cast.answer("ANN").error_code == FENCED


def test_bug_48_member_ids_of_the_same_moment_were_the_same() -> None:
    """KAFKA-8715: a static member's id was derived from the time, which made the coordinator fail on
    replay."""
    cast = Cast()
    ids = []
    for _ in range(5):
        cast.anew("ANN")
        ids.append(cast.group.instances["ANN"])
    cast.advance(1000)
    cast.sync("ANN")
    cast.life.restart()
    cast.anew("ANN")
    ids.append(cast.ids["ANN"])
    assert len(set(ids)) == 6
    assert set(cast.group.members) == {ids[-1]}


def test_bug_49_static_join_while_the_leader_assigns_got_nothing() -> None:
    """KAFKA-9801: a member back under a new id in CompletingRebalance got no assignment for that id."""
    cast = Cast()
    for name in ("ANN", "BOB"):
        cast.join(name)
    cast.advance(1000)
    assert cast.group.state is State.COMPLETING_REBALANCE
    late = {"generation_id": cast.generations["ANN"]}
    assert cast.anew("BOB") is None  # It waits for a generation that has its new id.
    assert cast.sync("ANN", **late) is Errors.REBALANCE_IN_PROGRESS
    cast.join("ANN")
    assert cast.group.generation == 2
    cast.sync("ANN")
    assert cast.sync("BOB").assignment == f"{cast.ids['BOB']}@2".encode()


def test_bug_50_static_member_was_kicked_by_the_rebalance_timeout() -> None:
    """KAFKA-8220: a static member that was late to rejoin was removed before its session expired."""
    cast = Cast()
    cast.stable("ANN", "BOB", session_timeout_ms=300_000)
    cast.join("ANN", protocols=("range", "sticky"), session_timeout_ms=300_000)
    cast.advance(REBALANCE_MS)
    assert cast.group.state is State.COMPLETING_REBALANCE
    assert set(cast.group.instances) == {"ANN", "BOB"}


def test_bug_51_new_rebalance_timeout_was_ignored_at_static_rejoin() -> None:
    """KAFKA-14009: the group used the rebalance timeout of the member's former process; also after a
    restart."""
    cast = Cast()
    cast.stable("ANN", "BOB", rebalance_timeout_ms=300_000)
    cast.anew("ANN", rebalance_timeout_ms=7000)
    cast.anew("BOB", rebalance_timeout_ms=8000)
    cast.life.restart()
    assert cast.group.rebalance_timeout_ms == 8000
    cast.join("ANN", protocols=("range", "sticky"), rebalance_timeout_ms=7000)
    assert cast.life.runtime.due_ms(("join", "g")) == 8000


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_bug_52_rejoining_static_leader_assigned_again(version: int, skips: bool) -> None:
    """KAFKA-13435, KIP-814: it computed an assignment that was ignored. The response skips that; an older
    client gets its old id as the leader's, and does not compute one."""
    cast = Cast()
    cast.stable("ANN", "BOB")
    old = cast.ids["ANN"]
    response = cast.anew("ANN", version)
    assert response.error_code == NONE
    assert response.skip_assignment is skips
    assert (response.leader == response.member_id) is skips
    assert [m.group_instance_id for m in response.members] == (["BOB", "ANN"] if skips else [])
    assert cast.sync("ANN", assignments=()).assignment == f"{old}@1".encode()
    assert cast.group.state is State.STABLE


@pytest.mark.parametrize("known", [True, False])
def test_bug_53_simple_commit_with_an_instance_id(known: bool) -> None:
    """KAFKA-14201: a consumer without a group, but with group.instance.id set, could not commit."""
    cast = Cast()
    if known:
        cast.ask("simple", commit_request(1), 8)
    response = cast.ask("simple", commit_request(9, instance_id="ANN"), 8)
    assert response.topics[0].partitions[0].error_code == NONE
    assert cast.fetched() == 9


def test_bug_54_new_member_that_timed_out_left_the_rebalance_stuck() -> None:
    """KAFKA-9752: a new member of an old client was removed after five minutes, without a check whether the
    rebalance was complete by then."""
    cast = Cast()
    long = {"rebalance_timeout_ms": 600_000, "session_timeout_ms": 400_000}
    cast.stable("ann", "bob", **long)
    assert cast.join("cas", 2, **long) is None
    assert cast.join("ann", **long) is None
    cast.advance(299_999)
    assert cast.answer("cas") is None
    cast.advance(1)
    assert cast.answer("cas").error_code == UNKNOWN
    assert cast.group.state is State.PREPARING_REBALANCE
    assert cast.join("bob", **long).error_code == NONE
    assert cast.answer("ann").generation_id == 2


def test_bug_55_stuck_because_a_member_never_synced() -> None:
    """KAFKA-12890: a member joined, its SyncGroup never came, and the group waited for ever."""
    cast = Cast()
    for name in ("ann", "bob", "CAS"):
        cast.join(name)
    cast.advance(1000)
    leader = next(name for name in ("ann", "bob") if cast.ids[name] == cast.group.leader)
    other, lost = "bob" if leader == "ann" else "ann", "CAS"
    cast.sync(leader)
    cast.sync(other)
    for _ in range(2):
        cast.advance(REBALANCE_MS // 2 - 1000)
        for name in (leader, other):
            cast.heartbeat(name)
        cast.heartbeat(lost)
        assert cast.ids[lost] in cast.group.members
    cast.advance(2000)
    assert cast.ids[lost] not in cast.group.members
    assert cast.group.state is State.PREPARING_REBALANCE
    for name in (leader, other):
        cast.join(name)
    assert cast.group.state is State.COMPLETING_REBALANCE
    assert len(cast.group.members) == 2


def test_bug_55_stuck_because_the_leader_never_synced() -> None:
    """KAFKA-12890: nor does the group wait for a leader that has departed."""
    cast = Cast()
    for name in ("ann", "bob"):
        cast.join(name)
    cast.advance(1000)
    leader = next(name for name in ("ann", "bob") if cast.ids[name] == cast.group.leader)
    other = "bob" if leader == "ann" else "ann"
    assert cast.sync(other) is None
    cast.advance(SESSION_MS)
    assert cast.answer(other) is not None
    assert cast.ids[leader] not in cast.group.members
    cast.join(other)
    cast.sync(other)
    assert cast.group.state is State.STABLE


@pytest.mark.parametrize("version", [2, 9])
def test_bug_56_more_members_than_group_max_size(version: int) -> None:
    """KAFKA-9844: simultaneous joins were counted too late. Here they are admitted one by one, and an
    assigned id alone does not count."""
    cast = Cast(group_max_size="2")
    answers = [cast.join(name, version) for name in ("ann", "bob", "cas", "dan")]
    assert [a.error_code if a is not None else None for a in answers] == [None, None, 81, 81]
    cast.advance(1000)
    assert len(cast.group.members) == 2
    assert cast.join("eve", version).error_code == Errors.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("until", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_bug_57_reload_in_a_rebalance_left_partitions_without_owner(until: State) -> None:
    """kfake 12889e13: a group loaded during a rebalance was Stable with assignments that no member had
    received. Here it has the last generation that was written; members of another one have to rejoin."""
    cast = Cast()
    cast.stable("ann", "BOB")
    cast.join("cas")
    if until is State.COMPLETING_REBALANCE:
        cast.join("ann")
        cast.join("BOB")
    assert cast.group.state is until
    cast.life.restart()
    assert (cast.group.state, cast.group.generation) == (State.STABLE, 1)
    assert set(cast.group.members) == {cast.ids["ann"], cast.ids["BOB"]}
    responses = [cast.heartbeat(name) for name in ("ann", "BOB")]
    if until is State.COMPLETING_REBALANCE:
        assert responses == [Errors.ILLEGAL_GENERATION] * 2
    cast.anew("cas")
    for name in ("ann", "BOB"):
        cast.join(name)
    assert cast.group.generation == 2
    assert len(cast.group.members) == 3
    for name in sorted(("ann", "BOB", "cas"), key=lambda name: cast.ids[name] != cast.group.leader):
        assert cast.sync(name).assignment == f"{cast.ids[name]}@2".encode()


def test_bug_58_offsets_expired_in_a_rebalance() -> None:
    """KAFKA-13636: a rebalancing group counted as one without members, and lost its offsets."""
    cast = Cast(offsets_retention_minutes="1")
    patient = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}
    cast.stable("ANN", "BOB", **patient)
    cast.commit("ANN", 7)
    cast.join("ANN", protocols=("range", "sticky"), **patient)
    assert cast.group.state is State.PREPARING_REBALANCE
    later = Context(cast.life.now_ms + DECADE_MS, cast.life.config, topics=cast.life.topics)
    assert not cast.life.shard.expire(RETENTION_KEY, later).records
    cast.advance(1_700_000)  # Offsets are looked through every ten minutes.
    assert cast.group.state is State.PREPARING_REBALANCE
    assert cast.fetched() == 7


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_bug_59_no_expiry_was_read_as_a_past_time(version: int) -> None:
    """KAFKA-8069, KAFKA-7403: -1, the broker's default, was taken for a time, and offsets expired at once."""
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=1, expire_timestamp=-1)
    key = OffsetCommitKey(group="g", topic="orders", partition=0)
    data = version.to_bytes(2, "big") + encode(value, version)
    record = decode_group_record(b"\0\1" + encode(key, 0), data)
    assert isinstance(record, OffsetCommitted)
    assert record.committed is not None
    assert record.committed.expire_ms == -1
    cast = Cast()
    cast.life.shard.replay(record)
    assert cast.life.shard.offsets["g"]["orders"][0].offset == 7


@pytest.mark.parametrize(("retention_ms", "expires"), [(-1, -1), (0, 0), (5000, 5000)])
def test_bug_59_the_default_retention_was_added_to_the_time(retention_ms: int, expires: int) -> None:
    """KoP#303: a commit with the broker's default retention has no expiry time; any other one has."""
    cast = Cast()
    cast.ask("simple", commit_request(7).replace(retention_time_ms=retention_ms), 4)
    committed = cast.life.shard.offsets["g"]["orders"][0]
    assert committed.expire_ms == (-1 if expires == -1 else cast.life.now_ms + expires)
    cast.life.restart()
    assert cast.life.shard.offsets["g"]["orders"][0] == committed


def test_bug_60_refused_partition_left_a_pending_commit() -> None:
    """KAFKA-16371: a commit with oversized metadata stayed pending for ever. Here nothing is pending: a
    refused offset is not kept, an accepted one exists once it is answered."""
    cast = Cast()
    long = commit_request(1, partitions=(0, 1), metadata="m" * 4097)
    response = cast.ask("simple", long, 8)
    assert [p.error_code for p in response.topics[0].partitions] == [Errors.OFFSET_METADATA_TOO_LARGE] * 2
    assert cast.ask("simple", commit_request(2, partitions=(1, 6)), 8) is not None
    fetched = cast.ask("admin", fetch_request((0, 1), stable=True), 9).groups[0]
    assert fetched.error_code == NONE
    rows = [(p.committed_offset, p.error_code) for p in fetched.topics[0].partitions]
    assert rows == [(-1, NONE), (2, NONE)]
    deleted = cast.ask("admin", DeleteGroupsRequest(groups_names=("g",)), 2)
    assert deleted.results[0].error_code == NONE
    assert cast.life.shard.offsets == {}


def test_ours_pending_member_of_a_deleted_group_left_its_timer() -> None:
    """Found by random runs of this project: a group was deleted, but the session timer of an assigned id
    stayed armed."""
    cast = Cast()
    assert cast.ask("ann", join_request(), 9).error_code == Errors.MEMBER_ID_REQUIRED
    assert len(cast.life.runtime.timers) == 2
    assert not cast.ask("admin", DeleteGroupsRequest(groups_names=("g",)), 2).results[0].error_code
    assert list(cast.life.runtime.timers) == [RETENTION_KEY]


def test_ours_pending_member_of_an_expired_group_left_its_timer() -> None:
    """The same for a group that is removed because it is empty."""
    cast = Cast()
    assert cast.ask("ann", join_request(), 9).error_code == Errors.MEMBER_ID_REQUIRED
    context = Context(cast.life.now_ms, cast.life.config, topics=cast.life.topics)
    outcome = cast.life.shard.expire(RETENTION_KEY, context)
    assert [r.key.group for r in outcome.records] == ["g"]
    (pending,) = cast.group.pending_joins
    assert Disarm(("session", "g", pending)) in outcome.timers


def test_ours_a_removed_member_gets_the_error_on_its_waiting_request() -> None:
    """G12: a static member that an administrator removes gets the error in response to its waiting
    request."""
    cast = Cast()
    cast.stable("ANN", "BOB")
    cast.join("ANN", protocols=("range", "sticky"))
    cast.leave(MemberIdentity(member_id="", group_instance_id="ANN"))
    assert cast.answer("ANN").error_code == UNKNOWN


def back_before_its_sync() -> tuple[Cast, str, str]:
    """Return a stable group of two: its leader, and a member that was restarted before its SyncGroup."""
    cast = Cast()
    for name in ("ANN", "BOB"):
        cast.join(name)
    cast.advance(1000)
    leader = next(name for name in ("ANN", "BOB") if cast.ids[name] == cast.group.leader)
    other = "BOB" if leader == "ANN" else "ANN"
    cast.sync(leader)
    cast.anew(other)
    return cast, leader, other


def test_ours_static_member_back_before_its_sync_is_waited_for() -> None:
    """Found by the simulator: a static member that got its generation, stopped and came back under a new id
    was not waited for any more, and the sync timer stayed armed."""
    cast, _, other = back_before_its_sync()
    assert cast.group.pending_syncs == {cast.ids[other]}
    assert cast.sync(other).error_code == NONE
    assert not cast.group.pending_syncs
    assert ("sync", "g") not in cast.life.runtime.timers


def test_ours_static_member_back_that_never_syncs_is_removed() -> None:
    """If it does not sync in time, it is removed like any member."""
    cast, leader, other = back_before_its_sync()
    for _ in range(REBALANCE_MS // 5_000):
        cast.heartbeat(leader)
        cast.heartbeat(other)
        cast.advance(5_000)
    assert other not in cast.group.instances


def test_ours_a_rebalance_for_a_smaller_limit_has_its_cause() -> None:
    """Found by the simulator: a coordinator that starts with a smaller `group.max.size` triggers a rebalance,
    and reported no cause."""
    cast = Cast()
    cast.stable("ANN", "BOB", "CAS")
    cast.life.config, _ = BrokerConfig.load(overrides=[("group.max.size", "2")])
    cast.life.restart()
    for name in ("ANN", "BOB"):
        cast.join(name)
    cast.join("CAS")
    cast.advance(REBALANCE_MS)
    for name in ("ANN", "BOB"):
        cast.sync(name)
    (trace,) = [r.value for r in cast.life.why if r.value.epoch == 2]
    assert [c.kind for c in trace.causes][:1] == ["group-too-large"]
    assert sentences(trace)[0] == "group-too-large: the group has more members than group.max.size allows"


def metadata(*topics: str, owned: tuple[int, ...] = (), generation: int = -1) -> bytes:
    """Return a member's metadata of clients that send no join reason."""
    subscription = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=(TopicPartition(topic=topics[0], partitions=owned),) if owned else (),
        generation_id=generation,
    )
    return b"\x00\x02" + encode(subscription, 2)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (metadata("t"), metadata("t", generation=1), "leader-rejoined"),
        (metadata("t", owned=(0, 1)), metadata("t", owned=(0,), generation=1), "cooperative-follow-up"),
        (metadata("t"), metadata("t", "u", generation=1), "member-metadata-changed"),
    ],
)
def test_ours_a_rejoin_without_a_revocation_is_no_follow_up(before: bytes, after: bytes, kind: str) -> None:
    """Found by the pipeline, whose inference from the log was right: if an eager leader rejoined without a
    reason, its generation changed its metadata, which was reported as a cooperative follow-up."""
    cast = Cast()
    cast.stable("ann", metadata=before)
    cast.join("ann", metadata=after)
    cast.sync("ann")
    (trace,) = [r.value for r in cast.life.why if r.value.epoch == 2]
    assert [c.kind for c in trace.causes] == [kind]
