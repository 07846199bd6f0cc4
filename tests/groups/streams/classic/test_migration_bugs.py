"""Known bugs of coordinators in groups that change their protocol, and related cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.groups.asking import commit_request, fetch_request
from tests.groups.offsets.transacting import txn_commit_request
from tests.groups.streams.classic.test_older_clients import assignment_of_all_tasks
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.members import Member, Play
from tests.groups.streams.restorers import Restorer, Story, rounds
from tests.groups.streams.topology.changing import (
    STATELESS,
    STREAMS_RECORDS,
    classic_at,
    error_of,
    record_types,
    settle,
    sole_leader,
    started,
    tasks,
    timers_of,
    upgraded,
)

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.shard import GroupShard
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.sim.journal import Batch, replayed
from konvene.sim.world.compaction import assert_loads, compactions


def commit_error(play: Play, who: str, request: Any, version: int) -> Errors:
    """Commit one partition and return the error."""
    answer: Any = play.life.ask(who, request, version)
    return answer if isinstance(answer, Errors) else Errors(answer.topics[0].partitions[0].error_code)


def classic_group(story: Story) -> ClassicGroup:
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    return group


def streams_group(story: Story) -> StreamsGroup:
    assert story.group is not None
    return story.group


# --- bug 30: group sizes ---------------------------------------------------------------------------


def test_bug_30_a_group_is_not_downgraded_above_the_limit() -> None:
    """It stays a streams group of classic members, which get the free tasks."""
    story, ann, threads = upgraded(2, group_max_size="1")
    epoch = streams_group(story).epoch
    ann.leave(story)
    group = streams_group(story)
    assert (group.epoch, len(group.members), group.classic_members) == (epoch + 1, 2, 2)
    settle(story, [], threads)
    assert sorted([*threads[0].active, *threads[1].active]) == tasks(*range(6))
    assert not set(threads[0].active) & set(threads[1].active)
    assert 2 not in record_types(story.life.log.batches)


def test_bug_30_at_the_limit_it_is_downgraded() -> None:
    story, ann, threads = upgraded(2, group_max_size="2")
    ann.leave(story)
    assert set(classic_group(story).members) == {thread.member_id for thread in threads}
    assert not record_types(story.life.log.batches) & STREAMS_RECORDS


@pytest.mark.parametrize(
    ("max_size", "error", "message"),
    [
        ("1", Errors.GROUP_ID_NOT_FOUND, "because the group size exceeds the streams group maximum size."),
        ("2", Errors.GROUP_MAX_SIZE_REACHED, "maximum capacity of 2 members"),
    ],
)
def test_a_group_above_the_streams_limit_is_not_upgraded(max_size: str, error: Errors, message: str) -> None:
    """The join is refused, and the log and the group are unchanged."""
    ann = Member("ann", "ann", STATELESS)
    a, b = Thread("A"), Thread("B")
    play = classic_at(7, (a, tasks(0, 2, 4)), (b, tasks(1, 3, 5)), group_streams_max_size=max_size)
    written, before = len(play.life.log.batches), play.life.group("g")
    assert ann.beat(play) is error
    assert message in play.answer("ann").error_message
    assert len(play.life.log.batches) == written
    assert play.life.group("g") is before
    assert isinstance(before, ClassicGroup)
    assert (before.state, before.generation, set(before.members)) == (State.STABLE, 7, {"A", "B"})
    assert [a.beat(play), b.beat(play)] == [Errors.NONE] * 2


# --- bugs 2 and 4: replay --------------------------------------------------------------------------


def committed(shard: GroupShard) -> int:
    """Return the committed offset of the first partition."""
    return int(shard.offsets["g"]["orders"][0].offset)


def test_bug_2_a_commit_replayed_first_does_not_block_a_streams_group() -> None:
    """The cleaner left the classic group's commit in front of the streams group's records: the commit alone
    creates a simple classic group."""
    story, ann, (bob,) = upgraded(1)
    commit = commit_request(9, bob.member_id, bob.generation)
    assert commit_error(story, "bob", commit, 8) is Errors.NONE
    batches = story.life.log.batches
    commits = [(b, i) for b in batches for i, (key, _) in enumerate(b.pairs) if key[:2] in (b"\0\0", b"\0\1")]
    (batch, at), *others = commits
    assert not others
    first = Batch((batch.pairs[at],), (batch.records[at],))
    shard = replayed([first])
    assert isinstance(shard.groups["g"], ClassicGroup)
    assert shard.groups["g"].is_simple
    for log in ([first, *batches], [first, *(b for b in batches if record_types([b]) - {2})]):
        shard = replayed(log)
        group = shard.groups["g"]
        assert isinstance(group, StreamsGroup)
        assert set(group.members) == {ann.member_id, bob.member_id}
        assert group.members[bob.member_id].classic is not None
        assert committed(shard) == 9
        assert_loads(story.life.runtime, shard)


def test_a_committed_offset_survives_upgrade_and_downgrade() -> None:
    """It exists after each step and after a restart, without another commit."""
    story = started()
    bob = sole_leader(story, "bob")
    assert commit_error(story, "bob", commit_request(6, bob.member_id, bob.generation), 8) is Errors.NONE
    ann = Restorer("ann", "ann", STATELESS, reports=False)
    ann.beat(story)
    settle(story, [ann], [bob])
    assert fetched(story) == 6
    story.life.restart()
    assert fetched(story) == 6
    settle(story, [ann], [bob])
    partition = ann.active[0][1]
    mine = commit_request(8, ann.member_id, ann.epoch, partitions=(partition,))
    assert commit_error(story, "ann", mine, 9) is Errors.NONE
    ann.leave(story)
    classic_group(story)
    assert (fetched(story), fetched(story, partition)) == (8 if partition == 0 else 6, 8)
    story.life.restart()
    assert (fetched(story), fetched(story, partition)) == (8 if partition == 0 else 6, 8)


def fetched(story: Story, partition: int = 0) -> int:
    answer = story.life.ask("someone", fetch_request((partition,)), 8)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def restorable_state(shard: GroupShard) -> Any:
    """Return the part of the group's state that its log must restore."""
    group = shard.groups.get("g")
    if isinstance(group, StreamsGroup):
        members = {name: (m.current.epoch, m.classic is not None) for name, m in group.members.items()}
        return "streams", group.epoch, group.assignment_epoch, members, group.topology is not None
    if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.EMPTY) and not group.is_simple:
        return "classic", group.generation, set(group.members)
    return None


def migrated_twice() -> tuple[Story, dict[int, Any]]:
    """Return a group's history, and its state after each number of batches."""
    story, history = started(), dict[int, Any]()

    def record_state() -> None:
        history[len(story.life.log.batches)] = restorable_state(story.life.shard)

    bob = sole_leader(story, "bob")
    record_state()
    assert commit_error(story, "bob", commit_request(6, bob.member_id, bob.generation), 8) is Errors.NONE
    record_state()
    for name in ("ann", "cid"):
        ann = Restorer(name, name, STATELESS, reports=False)
        ann.beat(story)
        record_state()
        for _ in range(4):
            for act in (bob.settle, ann.beat):
                act(story)
                record_state()
        assert len(ann.active) == len(bob.active) == 3
        commit = commit_request(7, bob.member_id, bob.generation, partitions=(bob.active[0][1],))
        assert commit_error(story, "bob", commit, 8) is Errors.NONE
        record_state()
        ann.leave(story)
        assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS
        assert error_of(story, "bob", bob.join_request(), 9) is Errors.NONE
        bob.joined(story.answer("bob"))
        given = bob.sync_request().replace(assignments=(assignment_of_all_tasks(bob),))
        assert bob.synced(story.life.ask("bob", given, 5)) is Errors.NONE
        record_state()
    return story, history


def group_type(batches: list[Batch]) -> type | None:
    """Return the type of a group according to its live records."""
    live = record_types(batches)
    assert not (2 in live and live & STREAMS_RECORDS), "it is two kinds at once"
    if live & STREAMS_RECORDS:
        return StreamsGroup
    return ClassicGroup if live & {1, 2} else None


def test_bug_4_every_prefix_of_the_log_loads() -> None:
    """The group is of the type of its last records, with the members and epochs of that time."""
    story, history = migrated_twice()
    batches = story.life.log.batches
    assert [state[0] for state in history.values() if state].count("streams") > 4
    types = []
    for end in range(len(batches) + 1):
        shard = replayed(batches[:end])
        assert_loads(story.life.runtime, shard)
        kind = group_type(batches[:end])
        assert kind is None or type(shard.groups["g"]) is kind
        if kind is not None and (not types or types[-1] is not kind):
            types.append(kind)
        if history.get(end) is not None:
            assert restorable_state(shard) == history[end]
    assert types == [ClassicGroup, StreamsGroup, ClassicGroup, StreamsGroup, ClassicGroup]


def test_bug_4_every_compacted_prefix_of_the_log_loads() -> None:
    """Whatever the cleaner left, with or without tombstones, the group equals that of the whole prefix."""
    story, history = migrated_twice()
    batches = story.life.log.batches
    compared = 0
    for end in range(1, len(batches) + 1):
        kind = group_type(batches[:end])
        for remaining in compactions(batches[:end]):
            shard = replayed(remaining)
            assert_loads(story.life.runtime, shard)
            assert kind is None or type(shard.groups["g"]) is kind
            if history.get(end) is not None:
                assert restorable_state(shard) == history[end]
                compared += 1
    assert compared > 100


# --- timers of classic members ---------------------------------------------------------------------


def causes_since(story: Story, before: int, epoch: int = 0) -> list[tuple[str, str]]:
    """Return the causes of epoch bumps since then, from an epoch on, with their members."""
    traces = [trace.value for trace in story.life.why[before:] if trace.value.epoch >= epoch]
    return [(cause.kind, cause.member_id) for trace in traces for cause in trace.causes]


def expire_only(story: Story, departed: str, cause: str, others: Iterator[Any], at_most_ms: int) -> int:
    """Advance the clock while others heartbeat, until only this member is removed, for this cause. Return the
    time that it took."""
    group = streams_group(story)
    before, epoch, rebalances = set(group.members), group.epoch, len(story.life.why)
    for passed in range(1_000, at_most_ms + 1_000, 1_000):
        story.run("advance 1000")
        if departed not in group.members:
            assert set(group.members) == before - {departed}
            assert group.epoch == epoch + 1
            assert set(causes_since(story, rebalances, epoch + 1)) == {(cause, departed)}
            assert timers_of(story, departed) == set()
            return passed
        next(others)
    raise AssertionError(f"{departed} is still there")


def speaking(
    story: Story, streams: list[Restorer], classic: list[Thread], deaf: Thread | None = None
) -> Iterator[None]:
    """Let members heartbeat at each step, and rejoin on request; `deaf` does not rejoin."""
    while True:
        rounds(story, streams)
        for thread in classic:
            thread.settle(story)
        if deaf is not None:
            assert deaf.beat(story) in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS)
        yield


def test_a_classic_member_has_its_own_session_timeout() -> None:
    """Its session timeout is that of its JoinGroup, not the group's setting."""
    story, ann, (bob0, bob1) = upgraded(2, group_streams_session_timeout_ms="60000")
    assert timers_of(story, bob0.member_id) == {"session"}
    passed = expire_only(story, bob0.member_id, "session-expired", speaking(story, [ann], [bob1]), 50_000)
    assert passed == 45_000
    settle(story, [ann], [bob1])
    assert sorted([*ann.active, *bob1.active]) == tasks(*range(6))


def request_rejoin(story: Story, ann: Restorer, thread: Thread) -> Restorer:
    """Let another member join, so that the thread has to revoke a task."""
    cid = Restorer("cid", "cid", STATELESS, reports=False)
    cid.beat(story)
    assert thread.beat(story) is Errors.REBALANCE_IN_PROGRESS
    assert timers_of(story, thread.member_id) == {"session", "rejoin"}
    return cid


def test_a_member_that_heartbeats_but_does_not_rejoin_is_removed() -> None:
    """Its rebalance timeout counts from the first notification: heartbeats do not prolong it."""
    story, ann, (bob0, bob1) = upgraded(2)
    cid = request_rejoin(story, ann, bob0)
    others = speaking(story, [ann, cid], [bob1], bob0)
    assert expire_only(story, bob0.member_id, "rebalance-timeout", others, 70_000) == 60_000


def test_a_member_that_joins_but_does_not_sync_is_removed() -> None:
    """Its rebalance timeout counts from its join."""
    story, ann, (bob0, bob1) = upgraded(2)
    cid = request_rejoin(story, ann, bob0)
    others = speaking(story, [ann, cid], [bob1], bob0)
    story.run("advance 20000")
    next(others)
    bob0.join(story)
    assert timers_of(story, bob0.member_id) == {"session", "resync"}
    assert expire_only(story, bob0.member_id, "sync-timeout", others, 70_000) == 60_000


def test_a_member_that_joins_and_syncs_has_no_rebalance_timer() -> None:
    story, ann, (bob0, bob1) = upgraded(2)
    cid = request_rejoin(story, ann, bob0)
    bob0.join(story)
    assert bob0.sync(story) is Errors.NONE
    assert timers_of(story, bob0.member_id) == {"session"}
    settle(story, [ann, cid], [bob0, bob1])
    others = speaking(story, [ann, cid], [bob0, bob1])
    for _ in range(130):
        story.run("advance 1000")
        next(others)
    assert len(streams_group(story).members) == 4


@pytest.mark.parametrize("joins", [False, True])
def test_a_member_that_switched_to_the_streams_protocol_has_no_rebalance_timer(*, joins: bool) -> None:
    """It switches under its current member id."""
    story, ann, (bob0, _) = upgraded(2)
    request_rejoin(story, ann, bob0)
    if joins:
        bob0.join(story)
    again = Member("again", "bob0", STATELESS, member_id=bob0.member_id)
    assert again.beat(story) is Errors.NONE
    assert timers_of(story, bob0.member_id) & {"session", "rejoin", "resync"} == {"session"}


def test_the_last_streams_members_session_expires() -> None:
    """Its expiry downgrades the group: the classic members have to rejoin."""
    story, ann, (bob0, bob1) = upgraded(2)
    rebalances = len(story.life.why)
    for _ in range(46):
        story.run("advance 1000")
        if story.group is None:
            break
        for thread in (bob0, bob1):
            assert thread.beat(story) is Errors.NONE
    group = classic_group(story)
    assert group.state is State.PREPARING_REBALANCE
    assert set(group.members) == {bob0.member_id, bob1.member_id}
    assert not record_types(story.life.log.batches) & STREAMS_RECORDS
    assert error_of(story, "bob0", bob0.join_request(), 9) is None
    assert error_of(story, "bob1", bob1.join_request(), 9) is Errors.NONE
    for thread in (bob0, bob1):
        thread.joined(story.answer(thread.name))
    leader, other = (bob0, bob1) if story.answer("bob0").leader == bob0.member_id else (bob1, bob0)
    given = leader.sync_request().replace(assignments=(assignment_of_all_tasks(leader),))
    assert leader.synced(story.life.ask(leader.name, given, 5)) is Errors.NONE
    assert error_of(story, other.name, other.sync_request(), 5) is Errors.NONE
    found = causes_since(story, rebalances)
    assert ("downgraded", ann.member_id) in found
    assert ("session-expired", ann.member_id) in found


# --- commits of classic members --------------------------------------------------------------------


def with_later_epoch() -> tuple[Story, Restorer, Thread, int, int, int]:
    """Return a group in which bob is at a later epoch; with a partition that bob had before, one that bob has
    got since, and the former epoch."""
    story, ann, (bob0, bob1) = upgraded(2)
    earlier, had = bob1.generation, set(bob1.active)
    bob0_had = bob0.active
    leave = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=bob0.member_id),))
    assert error_of(story, "bob0", leave, 5) is Errors.NONE
    settle(story, [ann], [bob1])
    kept = sorted(had & set(bob1.active))
    new = sorted(set(bob1.active) - had)
    assert kept
    assert new
    assert set(new) <= set(bob0_had)
    assert bob1.generation > earlier
    return story, ann, bob1, kept[0][1], new[0][1], earlier


def commit_of(kind: str, bob: Thread, epoch: int, partition: int) -> tuple[Any, int]:
    """Return an OffsetCommit of this version, or a transactional one."""
    if kind == "txn":
        return txn_commit_request(9, member_id=bob.member_id, generation=epoch, partitions=(partition,)), 3
    return commit_request(9, bob.member_id, epoch, partitions=(partition,)), int(kind)


KINDS = ["2", "5", "8", "9", "txn"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_classic_member_commits_at_its_epoch(kind: str) -> None:
    """In every version: before 9 there is no member epoch, and the generation is used."""
    story, ann, bob, kept, new, _ = with_later_epoch()
    others = ann.active[0][1]
    for partition in (kept, new, others):
        assert commit_error(story, "bob", *commit_of(kind, bob, bob.generation, partition)) is Errors.NONE
    if kind == "txn":
        assert set(story.life.shard.pending.by_group["g"]["orders"]) == {kept, new, others}
    else:
        assert fetched(story, new) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_at_an_older_epoch_it_commits_only_partitions_that_it_had(kind: str) -> None:
    """A commit may have been in flight. For partitions assigned since then, or never, it is refused."""
    story, ann, bob, kept, new, earlier = with_later_epoch()
    others = ann.active[0][1]
    assert commit_error(story, "bob", *commit_of(kind, bob, earlier, kept)) is Errors.NONE
    assert commit_error(story, "bob", *commit_of(kind, bob, earlier, new)) is Errors.ILLEGAL_GENERATION
    assert commit_error(story, "bob", *commit_of(kind, bob, earlier, others)) is Errors.ILLEGAL_GENERATION
    if kind == "txn":
        assert set(story.life.shard.pending.by_group["g"]["orders"]) == {kept}
    else:
        assert (fetched(story, kept), fetched(story, new)) == (9, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_at_a_future_epoch_it_commits_nothing(kind: str) -> None:
    story, _, bob, kept, _, _ = with_later_epoch()
    commit = commit_of(kind, bob, bob.generation + 1, kept)
    assert commit_error(story, "bob", *commit) is Errors.ILLEGAL_GENERATION
    assert fetched(story, kept) == -1


# --- removed by an administrator -------------------------------------------------------------------


def remove(story: Story, *member_ids: str) -> list[Errors]:
    """Remove members with an administrator's LeaveGroup; return their errors."""
    identities = tuple(MemberIdentity(member_id=each) for each in member_ids)
    answer: Any = story.life.ask("admin", LeaveGroupRequest(group_id="g", members=identities), 3)
    assert not answer.error_code
    assert [each.member_id for each in answer.members] == list(member_ids)
    return [Errors(each.error_code) for each in answer.members]


def test_members_of_both_protocols_are_removed_in_one_request() -> None:
    """The epoch is bumped once for both; the remaining members get all tasks, and an unknown id is
    reported."""
    story, ann, (bob0, bob1) = upgraded(2)
    cid = Restorer("cid", "cid", STATELESS, reports=False)
    cid.beat(story)
    settle(story, [ann, cid], [bob0, bob1])
    group, rebalances = streams_group(story), len(story.life.why)
    epoch, written = group.epoch, len(story.life.log.batches)
    answers = remove(story, ann.member_id, "nobody", bob0.member_id)
    assert answers == [Errors.NONE, Errors.UNKNOWN_MEMBER_ID, Errors.NONE]
    assert (streams_group(story) is group, group.epoch) == (True, epoch + 1)
    assert len(story.life.log.batches) == written + 1
    assert set(group.members) == {cid.member_id, bob1.member_id}
    removed = {(cause, member_id) for cause, member_id in causes_since(story, rebalances)}
    assert removed == {("removed-by-admin", ann.member_id), ("removed-by-admin", bob0.member_id)}
    assert timers_of(story, ann.member_id) == timers_of(story, bob0.member_id) == set()
    assert error_of(story, "bob0", bob0.beat_request(), 4) is Errors.UNKNOWN_MEMBER_ID
    settle(story, [cid], [bob1])
    assert sorted([*cid.active, *bob1.active]) == tasks(*range(6))


def test_the_last_streams_member_is_removed_with_a_classic_one() -> None:
    """The group becomes a classic one of the remaining member, at its epoch, and starts a rebalance."""
    story, ann, (bob0, bob1) = upgraded(2)
    epoch = streams_group(story).epoch
    assert remove(story, bob0.member_id, ann.member_id) == [Errors.NONE, Errors.NONE]
    group = classic_group(story)
    assert (group.state, group.generation) == (State.PREPARING_REBALANCE, epoch)
    assert set(group.members) == {bob1.member_id}
    assert not record_types(story.life.log.batches) & STREAMS_RECORDS
    assert bob1.beat(story) is Errors.REBALANCE_IN_PROGRESS
    assert ann.beat(story) is Errors.GROUP_ID_NOT_FOUND


def test_removing_all_members_leaves_an_empty_streams_group() -> None:
    """No classic member is left: there is no group to downgrade to."""
    story, ann, (bob,) = upgraded(1)
    epoch = streams_group(story).epoch
    assert remove(story, ann.member_id, bob.member_id) == [Errors.NONE, Errors.NONE]
    group = streams_group(story)
    assert (dict(group.members), group.epoch, group.classic_members) == ({}, epoch + 1, 0)
    assert not story.life.runtime.timers.keys() & {("session", "g", bob.member_id)}
