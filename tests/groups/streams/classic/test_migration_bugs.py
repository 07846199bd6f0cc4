"""Bugs that other coordinators had as groups changed their protocol, and what else may go wrong then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.groups.asking import commit_request, fetch_request
from tests.groups.offsets.transacting import txn_commit_request
from tests.groups.streams.classic.test_older_clients import gives_itself_all
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.members import Member, Play
from tests.groups.streams.restorers import Restorer, Story, rounds
from tests.groups.streams.topology.changing import (
    STATELESS,
    STREAMS_RECORDS,
    asked,
    classic_at,
    kinds,
    leads,
    settle,
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


def commits(play: Play, who: str, request: Any, version: int) -> Errors:
    """What a commit of one partition comes to."""
    answer: Any = play.life.ask(who, request, version)
    return answer if isinstance(answer, Errors) else Errors(answer.topics[0].partitions[0].error_code)


def classic_group(story: Story) -> ClassicGroup:
    group = story.life.group("g")
    assert isinstance(group, ClassicGroup)
    return group


def streams_group(story: Story) -> StreamsGroup:
    assert story.group is not None
    return story.group


# --- bug 30: sizes ---------------------------------------------------------------------------------


def test_bug_30_a_group_is_not_downgraded_above_the_limit() -> None:
    """It stays a streams group, of classic members alone, and they get what is free."""
    story, ann, threads = upgraded(2, group_max_size="1")
    epoch = streams_group(story).epoch
    ann.leave(story)
    group = streams_group(story)
    assert (group.epoch, len(group.members), group.classic_members) == (epoch + 1, 2, 2)
    settle(story, [], threads)
    assert sorted([*threads[0].active, *threads[1].active]) == tasks(*range(6))
    assert not set(threads[0].active) & set(threads[1].active)
    assert 2 not in kinds(story.life.log.batches)


def test_bug_30_at_the_limit_it_is_downgraded() -> None:
    story, ann, threads = upgraded(2, group_max_size="2")
    ann.leave(story)
    assert set(classic_group(story).members) == {thread.member_id for thread in threads}
    assert not kinds(story.life.log.batches) & STREAMS_RECORDS


@pytest.mark.parametrize(
    ("most", "error", "words"),
    [
        ("1", Errors.GROUP_ID_NOT_FOUND, "because the group size exceeds the streams group maximum size."),
        ("2", Errors.GROUP_MAX_SIZE_REACHED, "maximum capacity of 2 members"),
    ],
)
def test_without_room_in_a_streams_group_nothing_is_upgraded(most: str, error: Errors, words: str) -> None:
    """Who wants to join is refused, and the log and the group are as before."""
    ann = Member("ann", "ann", STATELESS)
    a, b = Thread("A"), Thread("B")
    play = classic_at(7, (a, tasks(0, 2, 4)), (b, tasks(1, 3, 5)), group_streams_max_size=most)
    written, before = len(play.life.log.batches), play.life.group("g")
    assert ann.beat(play) is error
    assert words in play.answer("ann").error_message
    assert len(play.life.log.batches) == written
    assert play.life.group("g") is before
    assert isinstance(before, ClassicGroup)
    assert (before.state, before.generation, set(before.members)) == (State.STABLE, 7, {"A", "B"})
    assert [a.beat(play), b.beat(play)] == [Errors.NONE] * 2


# --- bugs 2 and 4: what a coordinator reads --------------------------------------------------------


def committed(shard: GroupShard) -> int:
    """What is committed for the first partition."""
    return int(shard.offsets["g"]["orders"][0].offset)


def test_bug_2_a_commit_that_is_read_first_is_in_nobodys_way() -> None:
    """The cleaner left the commit of the classic group in front of what is a streams group by now: with the
    commit alone it is a simple classic group."""
    story, ann, (bob,) = upgraded(1)
    commit = commit_request(9, bob.member_id, bob.generation)
    assert commits(story, "bob", commit, 8) is Errors.NONE
    batches = story.life.log.batches
    said = [(b, i) for b in batches for i, (key, _) in enumerate(b.pairs) if key[:2] in (b"\0\0", b"\0\1")]
    (batch, at), *others = said
    assert not others
    first = Batch((batch.pairs[at],), (batch.records[at],))
    shard = replayed([first])
    assert isinstance(shard.groups["g"], ClassicGroup)
    assert shard.groups["g"].is_simple
    for read in ([first, *batches], [first, *(b for b in batches if kinds([b]) - {2})]):
        shard = replayed(read)
        group = shard.groups["g"]
        assert isinstance(group, StreamsGroup)
        assert set(group.members) == {ann.member_id, bob.member_id}
        assert group.members[bob.member_id].classic is not None
        assert committed(shard) == 9
        assert_loads(story.life.runtime, shard)


def test_a_committed_offset_survives_both_ways() -> None:
    """It is there after each step, and after a restart; nobody has to have committed it anew."""
    story = started()
    bob = leads(story, "bob")
    assert commits(story, "bob", commit_request(6, bob.member_id, bob.generation), 8) is Errors.NONE
    ann = Restorer("ann", "ann", STATELESS, reports=False)
    ann.beat(story)
    settle(story, [ann], [bob])
    assert fetched(story) == 6
    story.life.restart()
    assert fetched(story) == 6
    settle(story, [ann], [bob])
    partition = ann.active[0][1]
    mine = commit_request(8, ann.member_id, ann.epoch, partitions=(partition,))
    assert commits(story, "ann", mine, 9) is Errors.NONE
    ann.leave(story)
    classic_group(story)
    assert (fetched(story), fetched(story, partition)) == (8 if partition == 0 else 6, 8)
    story.life.restart()
    assert (fetched(story), fetched(story, partition)) == (8 if partition == 0 else 6, 8)


def fetched(story: Story, partition: int = 0) -> int:
    answer = story.life.ask("someone", fetch_request((partition,)), 8)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def shown(shard: GroupShard) -> Any:
    """Of the group, what its log has to say."""
    group = shard.groups.get("g")
    if isinstance(group, StreamsGroup):
        members = {name: (m.current.epoch, m.classic is not None) for name, m in group.members.items()}
        return "streams", group.epoch, group.assignment_epoch, members, group.topology is not None
    if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.EMPTY) and not group.is_simple:
        return "classic", group.generation, set(group.members)
    return None


def both_ways_twice() -> tuple[Story, dict[int, Any]]:
    """A group's history, and what was to be seen when so many batches were written."""
    story, seen = started(), dict[int, Any]()

    def look() -> None:
        seen[len(story.life.log.batches)] = shown(story.life.shard)

    bob = leads(story, "bob")
    look()
    assert commits(story, "bob", commit_request(6, bob.member_id, bob.generation), 8) is Errors.NONE
    look()
    for name in ("ann", "cid"):
        ann = Restorer(name, name, STATELESS, reports=False)
        ann.beat(story)
        look()
        for _ in range(4):
            for speaks in (bob.settle, ann.beat):
                speaks(story)
                look()
        assert len(ann.active) == len(bob.active) == 3
        commit = commit_request(7, bob.member_id, bob.generation, partitions=(bob.active[0][1],))
        assert commits(story, "bob", commit, 8) is Errors.NONE
        look()
        ann.leave(story)
        assert bob.beat(story) is Errors.REBALANCE_IN_PROGRESS
        assert asked(story, "bob", bob.join_request(), 9) is Errors.NONE
        bob.joined(story.answer("bob"))
        given = bob.sync_request().replace(assignments=(gives_itself_all(bob),))
        assert bob.synced(story.life.ask("bob", given, 5)) is Errors.NONE
        look()
    return story, seen


def kind_of(batches: list[Batch]) -> type | None:
    """What a group is by the records that count."""
    live = kinds(batches)
    assert not (2 in live and live & STREAMS_RECORDS), "it is two kinds at once"
    if live & STREAMS_RECORDS:
        return StreamsGroup
    return ClassicGroup if live & {1, 2} else None


def test_bug_4_every_prefix_of_the_log_loads() -> None:
    """Wherever it ends, the group is what its last records say, with the members and epochs of that time."""
    story, seen = both_ways_twice()
    batches = story.life.log.batches
    assert [said[0] for said in seen.values() if said].count("streams") > 4
    kinds = []
    for end in range(len(batches) + 1):
        shard = replayed(batches[:end])
        assert_loads(story.life.runtime, shard)
        kind = kind_of(batches[:end])
        assert kind is None or type(shard.groups["g"]) is kind
        if kind is not None and (not kinds or kinds[-1] is not kind):
            kinds.append(kind)
        if seen.get(end) is not None:
            assert shown(shard) == seen[end]
    assert kinds == [ClassicGroup, StreamsGroup, ClassicGroup, StreamsGroup, ClassicGroup]


def test_bug_4_every_prefix_loads_that_was_compacted_up_to_anywhere() -> None:
    """Whatever the cleaner left, with tombstones or without, is the group as the whole prefix has it."""
    story, seen = both_ways_twice()
    batches = story.life.log.batches
    compared = 0
    for end in range(1, len(batches) + 1):
        kind = kind_of(batches[:end])
        for left in compactions(batches[:end]):
            shard = replayed(left)
            assert_loads(story.life.runtime, shard)
            assert kind is None or type(shard.groups["g"]) is kind
            if seen.get(end) is not None:
                assert shown(shard) == seen[end]
                compared += 1
    assert compared > 100


# --- timers of classic members ---------------------------------------------------------------------


def causes_since(story: Story, before: int, epoch: int = 0) -> list[tuple[str, str]]:
    """Why the group has moved since, from an epoch on: each cause, and who it is about."""
    told = [each.value for each in story.life.why[before:] if each.value.epoch >= epoch]
    return [(cause.kind, cause.member_id) for each in told for cause in each.causes]


def nobody_but(story: Story, gone: str, cause: str, speak: Iterator[Any], at_most_ms: int) -> int:
    """Time passes, and others speak, until a member is gone: it alone, for this cause. After how long."""
    group = streams_group(story)
    there, epoch, told = set(group.members), group.epoch, len(story.life.why)
    for passed in range(1_000, at_most_ms + 1_000, 1_000):
        story.say("advance 1000")
        if gone not in group.members:
            assert set(group.members) == there - {gone}
            assert group.epoch == epoch + 1
            assert set(causes_since(story, told, epoch + 1)) == {(cause, gone)}
            assert timers_of(story, gone) == set()
            return passed
        next(speak)
    raise AssertionError(f"{gone} is still there")


def speaking(
    story: Story, streams: list[Restorer], classic: list[Thread], deaf: Thread | None = None
) -> Iterator[None]:
    """They heartbeat, each time they are asked to, and join when they are told to; `deaf` does not."""
    while True:
        rounds(story, streams)
        for thread in classic:
            thread.settle(story)
        if deaf is not None:
            assert deaf.beat(story) in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS)
        yield


def test_a_classic_members_session_is_its_own() -> None:
    """That is what it said as it joined, and not the group's setting."""
    story, ann, (bob0, bob1) = upgraded(2, group_streams_session_timeout_ms="60000")
    assert timers_of(story, bob0.member_id) == {"session"}
    passed = nobody_but(story, bob0.member_id, "session-expired", speaking(story, [ann], [bob1]), 50_000)
    assert passed == 45_000
    settle(story, [ann], [bob1])
    assert sorted([*ann.active, *bob1.active]) == tasks(*range(6))


def told_to_join(story: Story, ann: Restorer, thread: Thread) -> Restorer:
    """Somebody else joins, and the thread has to give something up."""
    cid = Restorer("cid", "cid", STATELESS, reports=False)
    cid.beat(story)
    assert thread.beat(story) is Errors.REBALANCE_IN_PROGRESS
    assert timers_of(story, thread.member_id) == {"session", "rejoin"}
    return cid


def test_who_heartbeats_and_does_not_join_is_taken_out() -> None:
    """Its rebalance timeout, from when it was told first: heartbeats do not prolong it."""
    story, ann, (bob0, bob1) = upgraded(2)
    cid = told_to_join(story, ann, bob0)
    speak = speaking(story, [ann, cid], [bob1], bob0)
    assert nobody_but(story, bob0.member_id, "rebalance-timeout", speak, 70_000) == 60_000


def test_who_joins_and_does_not_sync_is_taken_out() -> None:
    """Its rebalance timeout again, from its join."""
    story, ann, (bob0, bob1) = upgraded(2)
    cid = told_to_join(story, ann, bob0)
    speak = speaking(story, [ann, cid], [bob1], bob0)
    story.say("advance 20000")
    next(speak)
    bob0.join(story)
    assert timers_of(story, bob0.member_id) == {"session", "resync"}
    assert nobody_but(story, bob0.member_id, "sync-timeout", speak, 70_000) == 60_000


def test_who_joins_and_syncs_is_waited_for_no_more() -> None:
    story, ann, (bob0, bob1) = upgraded(2)
    cid = told_to_join(story, ann, bob0)
    bob0.join(story)
    assert bob0.sync(story) is Errors.NONE
    assert timers_of(story, bob0.member_id) == {"session"}
    settle(story, [ann, cid], [bob0, bob1])
    speak = speaking(story, [ann, cid], [bob0, bob1])
    for _ in range(130):
        story.say("advance 1000")
        next(speak)
    assert len(streams_group(story).members) == 4


@pytest.mark.parametrize("joins", [False, True])
def test_of_who_speaks_the_streams_protocol_now_no_join_or_sync_is_waited_for(*, joins: bool) -> None:
    """It says so under the id that it has."""
    story, ann, (bob0, _) = upgraded(2)
    told_to_join(story, ann, bob0)
    if joins:
        bob0.join(story)
    again = Member("again", "bob0", STATELESS, member_id=bob0.member_id)
    assert again.beat(story) is Errors.NONE
    assert timers_of(story, bob0.member_id) & {"session", "rejoin", "resync"} == {"session"}


def test_the_last_streams_members_session_is_over() -> None:
    """Its expiry is what takes the group back: the classic members are asked to join anew."""
    story, ann, (bob0, bob1) = upgraded(2)
    told = len(story.life.why)
    for _ in range(46):
        story.say("advance 1000")
        if story.group is None:
            break
        for thread in (bob0, bob1):
            assert thread.beat(story) is Errors.NONE
    group = classic_group(story)
    assert group.state is State.PREPARING_REBALANCE
    assert set(group.members) == {bob0.member_id, bob1.member_id}
    assert not kinds(story.life.log.batches) & STREAMS_RECORDS
    assert asked(story, "bob0", bob0.join_request(), 9) is None
    assert asked(story, "bob1", bob1.join_request(), 9) is Errors.NONE
    for thread in (bob0, bob1):
        thread.joined(story.answer(thread.name))
    leader, other = (bob0, bob1) if story.answer("bob0").leader == bob0.member_id else (bob1, bob0)
    given = leader.sync_request().replace(assignments=(gives_itself_all(leader),))
    assert leader.synced(story.life.ask(leader.name, given, 5)) is Errors.NONE
    assert asked(story, other.name, other.sync_request(), 5) is Errors.NONE
    found = causes_since(story, told)
    assert ("downgraded", ann.member_id) in found
    assert ("session-expired", ann.member_id) in found


# --- commits of classic members --------------------------------------------------------------------


def moved_on() -> tuple[Story, Restorer, Thread, int, int, int]:
    """bob is at a later epoch than before; a partition that he had then already, one that he has had since,
    and the epoch that is past."""
    story, ann, (bob0, bob1) = upgraded(2)
    earlier, had = bob1.generation, set(bob1.active)
    bob0_had = bob0.active
    leave = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=bob0.member_id),))
    assert asked(story, "bob0", leave, 5) is Errors.NONE
    settle(story, [ann], [bob1])
    kept = sorted(had & set(bob1.active))
    new = sorted(set(bob1.active) - had)
    assert kept
    assert new
    assert set(new) <= set(bob0_had)
    assert bob1.generation > earlier
    return story, ann, bob1, kept[0][1], new[0][1], earlier


def commit_of(kind: str, bob: Thread, epoch: int, partition: int) -> tuple[Any, int]:
    """An OffsetCommit of this version, or one in a transaction."""
    if kind == "txn":
        return txn_commit_request(9, member_id=bob.member_id, generation=epoch, partitions=(partition,)), 3
    return commit_request(9, bob.member_id, epoch, partitions=(partition,)), int(kind)


KINDS = ["2", "5", "8", "9", "txn"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_classic_member_commits_at_its_epoch(kind: str) -> None:
    """In any version: before 9 there was no member epoch, and it has a generation."""
    story, ann, bob, kept, new, _ = moved_on()
    others = ann.active[0][1]
    for partition in (kept, new, others):
        assert commits(story, "bob", *commit_of(kind, bob, bob.generation, partition)) is Errors.NONE
    if kind == "txn":
        assert set(story.life.shard.pending.by_group["g"]["orders"]) == {kept, new, others}
    else:
        assert fetched(story, new) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_at_an_older_epoch_it_commits_what_it_had_then(kind: str) -> None:
    """A commit may have been on its way. Of what it has had since, or never had, it is refused."""
    story, ann, bob, kept, new, earlier = moved_on()
    others = ann.active[0][1]
    assert commits(story, "bob", *commit_of(kind, bob, earlier, kept)) is Errors.NONE
    assert commits(story, "bob", *commit_of(kind, bob, earlier, new)) is Errors.ILLEGAL_GENERATION
    assert commits(story, "bob", *commit_of(kind, bob, earlier, others)) is Errors.ILLEGAL_GENERATION
    if kind == "txn":
        assert set(story.life.shard.pending.by_group["g"]["orders"]) == {kept}
    else:
        assert (fetched(story, kept), fetched(story, new)) == (9, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_at_an_epoch_that_is_not_yet_it_commits_nothing(kind: str) -> None:
    story, _, bob, kept, _, _ = moved_on()
    commit = commit_of(kind, bob, bob.generation + 1, kept)
    assert commits(story, "bob", *commit) is Errors.ILLEGAL_GENERATION
    assert fetched(story, kept) == -1


# --- removed by an administrator -------------------------------------------------------------------


def remove(story: Story, *member_ids: str) -> list[Errors]:
    """An administrator's LeaveGroup."""
    identities = tuple(MemberIdentity(member_id=each) for each in member_ids)
    answer: Any = story.life.ask("admin", LeaveGroupRequest(group_id="g", members=identities), 3)
    assert not answer.error_code
    assert [each.member_id for each in answer.members] == list(member_ids)
    return [Errors(each.error_code) for each in answer.members]


def test_members_of_both_protocols_are_removed_at_one_stroke() -> None:
    """The epoch moves once, for both; who is left has all, and who was nobody is told so."""
    story, ann, (bob0, bob1) = upgraded(2)
    cid = Restorer("cid", "cid", STATELESS, reports=False)
    cid.beat(story)
    settle(story, [ann, cid], [bob0, bob1])
    group, told = streams_group(story), len(story.life.why)
    epoch, written = group.epoch, len(story.life.log.batches)
    answers = remove(story, ann.member_id, "nobody", bob0.member_id)
    assert answers == [Errors.NONE, Errors.UNKNOWN_MEMBER_ID, Errors.NONE]
    assert (streams_group(story) is group, group.epoch) == (True, epoch + 1)
    assert len(story.life.log.batches) == written + 1
    assert set(group.members) == {cid.member_id, bob1.member_id}
    removed = {(why, who) for why, who in causes_since(story, told)}
    assert removed == {("removed-by-admin", ann.member_id), ("removed-by-admin", bob0.member_id)}
    assert timers_of(story, ann.member_id) == timers_of(story, bob0.member_id) == set()
    assert asked(story, "bob0", bob0.beat_request(), 4) is Errors.UNKNOWN_MEMBER_ID
    settle(story, [cid], [bob1])
    assert sorted([*cid.active, *bob1.active]) == tasks(*range(6))


def test_the_last_streams_member_is_removed_with_a_classic_one() -> None:
    """The group is a classic one of who is left, at the epoch that it had, and begins a rebalance."""
    story, ann, (bob0, bob1) = upgraded(2)
    epoch = streams_group(story).epoch
    assert remove(story, bob0.member_id, ann.member_id) == [Errors.NONE, Errors.NONE]
    group = classic_group(story)
    assert (group.state, group.generation) == (State.PREPARING_REBALANCE, epoch)
    assert set(group.members) == {bob1.member_id}
    assert not kinds(story.life.log.batches) & STREAMS_RECORDS
    assert bob1.beat(story) is Errors.REBALANCE_IN_PROGRESS
    assert ann.beat(story) is Errors.GROUP_ID_NOT_FOUND


def test_all_are_removed_and_an_empty_streams_group_is_left() -> None:
    """Nobody is left who speaks the classic protocol: there is nothing to go back to."""
    story, ann, (bob,) = upgraded(1)
    epoch = streams_group(story).epoch
    assert remove(story, ann.member_id, bob.member_id) == [Errors.NONE, Errors.NONE]
    group = streams_group(story)
    assert (dict(group.members), group.epoch, group.classic_members) == ({}, epoch + 1, 0)
    assert not story.life.runtime.timers.keys() & {("session", "g", bob.member_id)}
