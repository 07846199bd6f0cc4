"""Faults of coordinators and of the broker: expired sessions, failed appends, restarts."""

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


def test_expire_session_removes_the_member(konvene: Konvene) -> None:
    """The rebalance has the cause session-expired."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        fault = konvene.faults.expire_session("ann")
        assert fault.applied == 1
        assert await member.heartbeat() == Errors.UNKNOWN_MEMBER_ID

    talk(konvene, work)
    konvene.wait_group("g", lambda group: group.state == "Empty")
    rebalances = konvene.rebalances("g")
    assert [row.causes for row in rebalances] == [(causes.MEMBER_JOINED,), (causes.SESSION_EXPIRED,)]
    assert rebalances[1].cause_clients == ("ann",)
    (event,) = konvene.faults.log
    assert str(event).startswith("expire the session of member ann of group g now (ann-")


def test_expire_session_needs_exactly_one_member(konvene: Konvene) -> None:
    """No matching member and several ones raise LookupError."""
    with pytest.raises(LookupError, match="no member ann in any group"):
        konvene.faults.expire_session("ann")

    async def work(ann: Connection) -> None:
        await RawMember(ann, "g").join()
        await RawMember(ann, "h").join()
        with pytest.raises(LookupError, match="2 members in any group match 1"):
            konvene.faults.expire_session(1)
        with pytest.raises(LookupError, match="no member 2 in group h"):
            konvene.faults.expire_session(2, group="h")
        konvene.faults.expire_session(1, group="h")
        assert len(konvene.group("g").members) == 1

    talk(konvene, work)


@pytest.mark.parametrize("error", ["FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
def test_fence_applies_in_the_given_generation(konvene: Konvene, error: str) -> None:
    """One heartbeat of that generation is answered with the error."""

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


def test_fence_with_takeover_replaces_the_member(konvene: Konvene) -> None:
    """Another member has the instance id, so the broker itself answers FENCED_INSTANCE_ID, repeatedly."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann, instance="a")
        await member.join()
        konvene.faults.fence("a", takeover=True)
        assert await member.heartbeat() == Errors.FENCED_INSTANCE_ID
        assert await member.heartbeat() == Errors.FENCED_INSTANCE_ID
        (replacement,) = konvene.group("g").members
        assert replacement.instance_id == "a"
        assert replacement.member_id != member.member_id

    talk(konvene, work)


def test_takeover_of_a_dynamic_member_has_no_effect(konvene: Konvene) -> None:
    """Without an instance id, the heartbeat passes."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        fault = konvene.faults.fence("ann", takeover=True)
        assert await member.heartbeat() == 0
        assert fault.applied == 1

    talk(konvene, work)


def test_commit_survives_a_crash_between_append_and_reply(konvene: Konvene) -> None:
    """The client receives NOT_COORDINATOR; the commit and the member exist after the reload."""
    fault = konvene.faults.restart_after_append("g", "OffsetCommit")

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        identity = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
        assert await committed(ann, 5, **identity) == Errors.NOT_COORDINATOR
        await asyncio.to_thread(konvene.wait_stable, "g", 1)
        assert konvene.group("g").offsets == {"orders": {0: 5}}
        assert await member.heartbeat() == 0
        assert await committed(ann, 6, **identity) == 0

    talk(konvene, work)
    assert fault.applied == 1
    assert konvene.group("g").offsets == {"orders": {0: 6}}
    assert len(konvene.rebalances("g")) == 1


def test_commit_is_not_stored_if_its_append_fails(konvene: Konvene) -> None:
    """The client receives NOT_COORDINATOR and nothing is stored; the next commit succeeds."""
    konvene.faults.fail_append("g", "OffsetCommit")

    async def work(ann: Connection) -> None:
        assert await committed(ann, 4, group="other") == 0
        assert await committed(ann, 5) == Errors.NOT_COORDINATOR
        assert konvene.group("g").offsets == {}
        await asyncio.to_thread(wait_until_active, konvene)
        assert await committed(ann, 6) == 0

    talk(konvene, work)
    assert konvene.group("g").offsets == {"orders": {0: 6}}


def wait_until_active(konvene: Konvene) -> None:
    """Wait until all coordinators have loaded their logs."""
    konvene.wait_group("g", lambda _group: all_active(konvene), description="active")


def all_active(konvene: Konvene) -> bool:
    """Return True if all coordinators are active; call on the broker's loop."""
    node = konvene._node
    return node is not None and all(c.state == "active" for c in node.broker.groups.all())


def test_failed_append_undoes_the_generation(konvene: Konvene) -> None:
    """SyncGroup fails if the assignment cannot be written, and the group is reloaded without the
    generation."""
    konvene.faults.fail_append("g", "SyncGroup", nth=1)

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        with pytest.raises(AssertionError, match="error_code"):
            await member.join()
        await asyncio.to_thread(wait_until_active, konvene)
        again = RawMember(ann)
        await again.join()
        assert await again.heartbeat() == 0

    talk(konvene, work)


def test_load_coordinator_answers_coordinator_load_in_progress(konvene: Konvene) -> None:
    """Heartbeats succeed during loading, as in Kafka; afterwards all state is available."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        assert await committed(ann, 5, generation_id_or_member_epoch=1, member_id=member.member_id) == 0
        konvene.faults.load_coordinator("g", ms=50)
        fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
        assert await member.heartbeat() == 0
        response = await ann.send(fetch, 8)
        assert response.groups[0].error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.to_thread(wait_until_active, konvene)
        response = await ann.send(fetch, 8)
        assert response.groups[0].topics[0].partitions[0].committed_offset == 5
        assert await member.heartbeat() == 0

    talk(konvene, work)


@pytest.mark.parametrize("kill", [False, True])
def test_restarted_broker_keeps_its_state(konvene: Konvene, kill: bool) -> None:
    """Members, generations, commits and rebalances survive; connections are closed."""

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


def test_armed_faults_survive_a_broker_restart(konvene: Konvene) -> None:
    """A fault armed before a restart applies after it; a held request is dropped with its connection."""
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
    assert (held.applied, later.applied) == (1, 1)
    assert konvene.group("g").offsets == {}


def test_rebalances_are_recorded_once_across_reloads(konvene: Konvene) -> None:
    """After a crash, missing audit rows are inferred; existing rows are not written again."""

    async def work(ann: Connection) -> None:
        member = RawMember(ann)
        await member.join()
        konvene.restart(kill=True)
        member.connection = await connect(konvene)
        for _ in range(3):
            konvene.faults.load_coordinator("g")
            await asyncio.to_thread(wait_until_active, konvene)
            await member.join()
        member.connection.close()

    talk(konvene, work)
    assert [row.generation for row in konvene.rebalances("g")] == [1, 2, 3, 4]
