"""Faults of coordinators and of the broker: sessions that end, appends that fail, restarts at bad moments."""

from __future__ import annotations

import asyncio

import pytest
from tests.testing.wire import COMMIT_VERSION, RawMember, commit, committed, connect, talk

from konvene.client import Connection
from konvene.client.errors import ConnectionLost
from konvene.errors import Errors
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.shard import causes
from konvene.testing import Konvene

pytestmark = pytest.mark.konvene(topics={"orders": 2})


def test_a_session_ends_when_it_is_told_to(konvene: Konvene) -> None:
    """The member is out, the rebalance is told as what it looks like to the group: a session that expired."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        fault = konvene.faults.expire_session("ann")
        assert fault.happened == 1
        assert await member.heartbeat() == Errors.UNKNOWN_MEMBER_ID

    talk(konvene, work)
    konvene.wait_group("g", lambda group: group.state == "Empty")
    told = konvene.rebalances("g")
    assert [row.causes for row in told] == [(causes.MEMBER_JOINED,), (causes.SESSION_EXPIRED,)]
    assert told[1].who == ("ann",)
    (done,) = konvene.faults.log
    assert str(done).startswith("expire the session of member ann of group g now (ann-")


def test_a_session_that_nobody_has_cannot_end(konvene: Konvene) -> None:
    """Who is not there, and who could be several, is told."""
    with pytest.raises(LookupError, match="no member ann in any group"):
        konvene.faults.expire_session("ann")

    async def work(ann: Connection) -> None:
        await RawMember(ann, "g").join()
        await RawMember(ann, "h").join()
        with pytest.raises(LookupError, match="2 members in any group are meant by 1"):
            konvene.faults.expire_session(1)
        with pytest.raises(LookupError, match="no member 2 in group h"):
            konvene.faults.expire_session(2, group="h")
        konvene.faults.expire_session(1, group="h")
        assert len(konvene.group("g").members) == 1

    talk(konvene, work)


@pytest.mark.parametrize("error", ["FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
def test_a_member_is_fenced_in_the_generation_that_is_named(konvene: Konvene, error: str) -> None:
    """It is told so at its next heartbeat in that generation, and once."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann, instance="a")
        await member.join()
        konvene.faults.fence(1, generation=2, error=error)
        assert await member.heartbeat() == 0
        await member.join()
        assert member.generation == 2
        assert await member.heartbeat() == Errors[error]
        assert await member.heartbeat() == 0

    talk(konvene, work)


def test_a_member_is_really_fenced(konvene: Konvene) -> None:
    """Somebody else has its instance id; the broker itself says FENCED_INSTANCE_ID, and goes on saying so."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann, instance="a")
        await member.join()
        konvene.faults.fence("a", really=True)
        assert await member.heartbeat() == Errors.FENCED_INSTANCE_ID
        assert await member.heartbeat() == Errors.FENCED_INSTANCE_ID
        (usurper,) = konvene.group("g").members
        assert usurper.instance_id == "a"
        assert usurper.member_id != member.member_id

    talk(konvene, work)


def test_a_dynamic_member_cannot_be_replaced(konvene: Konvene) -> None:
    """There is no place to take: its heartbeat passes."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        fault = konvene.faults.fence("ann", really=True)
        assert await member.heartbeat() == 0
        assert fault.happened == 1

    talk(konvene, work)


def test_a_commit_survives_a_coordinator_that_dies_before_it_answers(konvene: Konvene) -> None:
    """The client is told NOT_COORDINATOR; the commit and the member are there."""
    fault = konvene.faults.restart_after_append("g", "OffsetCommit")

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        who = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
        assert await committed(ann, 5, **who) == Errors.NOT_COORDINATOR
        await asyncio.to_thread(konvene.wait_stable, "g", 1)
        assert konvene.group("g").offsets == {"orders": {0: 5}}
        assert await member.heartbeat() == 0
        assert await committed(ann, 6, **who) == 0

    talk(konvene, work)
    assert fault.happened == 1
    assert konvene.group("g").offsets == {"orders": {0: 6}}
    assert len(konvene.rebalances("g")) == 1


def test_a_commit_that_could_not_be_written_was_not_made(konvene: Konvene) -> None:
    """The same answer, but nothing is there; the next one is written."""
    konvene.faults.fail_append("g", "OffsetCommit")

    async def work(ann: Connection) -> None:
        assert await committed(ann, 4, group="other") == 0
        assert await committed(ann, 5) == Errors.NOT_COORDINATOR
        assert konvene.group("g").offsets == {}
        await asyncio.to_thread(wait_until_it_serves, konvene)
        assert await committed(ann, 6) == 0

    talk(konvene, work)
    assert konvene.group("g").offsets == {"orders": {0: 6}}


def wait_until_it_serves(konvene: Konvene) -> None:
    """The coordinator of the group g has read its log."""
    konvene.wait_group("g", lambda _group: all_serve(konvene), what="served")


def all_serve(konvene: Konvene) -> bool:
    """On the broker's loop, where `wait_group` asks."""
    node = konvene._node
    return node is not None and all(c.state == "active" for c in node.broker.groups.all())


def test_a_generation_is_lost_with_the_append_that_fails(konvene: Konvene) -> None:
    """The assignment could not be written: the leader is told, and the group is as the log has it, unmade."""
    konvene.faults.fail_append("g", "SyncGroup", nth=1)

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        with pytest.raises(AssertionError, match="error_code"):
            await member.join()
        await asyncio.to_thread(wait_until_it_serves, konvene)
        again = RawMember(ann)
        await again.join()
        assert await again.heartbeat() == 0

    talk(konvene, work)


def test_a_coordinator_says_for_how_long_it_loads(konvene: Konvene) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS, but a heartbeat is taken for granted; then all is there again."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        assert await committed(ann, 5, generation_id_or_member_epoch=1, member_id=member.member_id) == 0
        konvene.faults.load_coordinator("g", ms=50)
        fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
        assert await member.heartbeat() == 0
        answer = await ann.send(fetch, 8)
        assert answer.groups[0].error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.to_thread(wait_until_it_serves, konvene)
        answer = await ann.send(fetch, 8)
        assert answer.groups[0].topics[0].partitions[0].committed_offset == 5
        assert await member.heartbeat() == 0

    talk(konvene, work)


@pytest.mark.parametrize("kill", [False, True])
def test_a_broker_that_restarts_remembers(konvene: Konvene, kill: bool) -> None:
    """Members, generations, commits, and why there were rebalances; connections end."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann, instance="a")
        await member.join()
        assert await committed(ann, 5, group="other") == 0
        before = konvene.group("g"), konvene.rebalances()
        waiting = ann.post(commit(6, group="other"), COMMIT_VERSION)
        konvene.faults.restart_broker(kill=kill)
        assert (konvene.group("g"), konvene.rebalances()) == before
        with pytest.raises(ConnectionLost):
            await waiting
            await member.heartbeat()
        member.connection = await connect(konvene)
        assert await member.heartbeat() == 0
        member.connection.close()

    talk(konvene, work)
    assert konvene.group("other").offsets["orders"][0] in (5, 6)


def test_faults_outlive_the_broker(konvene: Konvene) -> None:
    """What was asked for before a restart happens after it; a held request dies with its connection."""
    held = konvene.faults.hold("OffsetCommit")
    later = konvene.faults.answer("OffsetCommit", "NOT_COORDINATOR", nth=1)

    async def work(ann: Connection) -> None:
        waiting = ann.post(commit(5), COMMIT_VERSION)
        await asyncio.to_thread(held.wait)
        konvene.restart(kill=True)
        with pytest.raises(ConnectionLost):
            await waiting
        held.release()
        again = await connect(konvene)
        assert await committed(again, 6) == Errors.NOT_COORDINATOR
        again.close()

    talk(konvene, work)
    assert (held.happened, later.happened) == (1, 1)
    assert konvene.group("g").offsets == {}


def test_a_rebalance_is_told_once_however_often_its_log_is_read(konvene: Konvene) -> None:
    """After a crash rows that are missing are derived; what was told since is not derived again."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        konvene.restart(kill=True)
        member.connection = await connect(konvene)
        for _ in range(3):
            konvene.faults.load_coordinator("g")
            await asyncio.to_thread(wait_until_it_serves, konvene)
            await member.join()
        member.connection.close()

    talk(konvene, work)
    assert [row.generation for row in konvene.rebalances("g")] == [1, 2, 3, 4]
