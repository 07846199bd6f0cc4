"""Real Kafka clients under faults: groups survive them, and rebalances have the right causes."""

from __future__ import annotations

import pytest
from tests.testing.readers import LIBRARIES, SHORT_SESSION_MS, reader

from konvene.shard import causes
from konvene.testing import GroupView, Konvene

pytestmark = pytest.mark.konvene(topics={"orders": 4})

each_library = pytest.mark.parametrize("library", LIBRARIES)
LONG_S = 30


def wait_settled(konvene: Konvene, members: int = 1, client: str = "ann") -> GroupView:
    """Return the group once a member has sent heartbeats; kafka-python's leader joins twice before that."""
    konvene.wait_stable("readers", members, timeout=LONG_S)
    konvene.faults.delay("Heartbeat", ms=0, client=client, times=2).wait(LONG_S, times=2)
    return konvene.wait_stable("readers", members, timeout=LONG_S)


@each_library
def test_lost_heartbeat_response_causes_no_rebalance(konvene: Konvene, library: str) -> None:
    """The member stays in its generation."""
    with reader(konvene, library, "ann"):
        before = wait_settled(konvene)
        fault = konvene.faults.lose_response("Heartbeat", client="ann")
        fault.wait(LONG_S)
        assert wait_settled(konvene) == before


@each_library
def test_static_member_survives_a_lost_join_response(konvene: Konvene, library: str) -> None:
    """ST8. After a lost JoinGroup response it joins again, is not fenced, and is the only member."""
    fault = konvene.faults.lose_response("JoinGroup", instance="a")
    with reader(konvene, library, "ann", instance="a") as ann:
        fault.wait(LONG_S)
        group = wait_settled(konvene)
        assert group.member("a").owned == "orders:0,1,2,3"
        assert wait_settled(konvene).member("a") == group.member("a")
        assert not [error for error in ann.errors if "Fenced" in error]


@each_library
def test_client_retries_a_commit_after_a_coordinator_restart(konvene: Konvene, library: str) -> None:
    """A restart between append and reply: the client receives NOT_COORDINATOR and retries; nothing is
    lost."""
    konvene.produce("orders", ["one", "two"], partition=0)
    with reader(konvene, library, "ann") as ann:
        konvene.wait_stable("readers", 1, timeout=LONG_S)
        konvene.wait_group("readers", lambda _group: len(ann.records) == 2, timeout=LONG_S)
        fault = konvene.faults.restart_after_append("readers", "OffsetCommit")
        ann.commit(LONG_S)
        assert fault.applied == 1
        group = konvene.wait_stable("readers", 1, timeout=LONG_S)
        assert group.offsets["orders"][0] == 2
    assert len(ann.records) == 2


@each_library
def test_expired_session_is_recorded_as_the_cause(konvene: Konvene, library: str) -> None:
    """The removed member joins again, and the rebalance has the cause session-expired."""
    with reader(konvene, library, "ann"):
        konvene.wait_stable("readers", 1, timeout=LONG_S)
        konvene.faults.run("expire the session of client ann now")
        konvene.wait_group(
            "readers",
            lambda g: g.state == "Stable" and g.generation > 1 and len(g.members) == 1,
            timeout=LONG_S,
        )
        rebalances = konvene.rebalances("readers")
    assert (causes.SESSION_EXPIRED,) in [row.causes for row in rebalances]
    assert next(row for row in rebalances if causes.SESSION_EXPIRED in row.causes).cause_clients == ("ann",)


@each_library
def test_member_waits_for_a_delayed_assignment(konvene: Konvene, library: str) -> None:
    """With a late SyncGroup response the member consumes in its first generation."""
    fault = konvene.faults.hold("SyncGroup", direction="response", client="ann")
    konvene.produce("orders", ["one"], partition=3)
    with reader(konvene, library, "ann") as ann:
        fault.wait(LONG_S)
        assert ann.records == []
        fault.release()
        konvene.wait_group("readers", lambda _group: len(ann.records) == 1, timeout=LONG_S)
    assert causes.SESSION_EXPIRED not in [cause for row in konvene.rebalances() for cause in row.causes]


@each_library
def test_duplicated_requests_change_nothing(konvene: Konvene, library: str) -> None:
    """A duplicated SyncGroup, Heartbeat or OffsetCommit leaves the group as without the duplicate."""
    konvene.faults.run("""
        duplicate the next SyncGroup request
        duplicate the next Heartbeat request
        duplicate the next OffsetCommit request
    """)
    konvene.produce("orders", ["one"], partition=0)
    with reader(konvene, library, "ann") as ann:
        before = wait_settled(konvene)
        konvene.wait_group("readers", lambda _group: len(ann.records) == 1, timeout=LONG_S)
        ann.commit(LONG_S)
        after = wait_settled(konvene)
        assert konvene.faults.armed == ()
        assert after == before._replace(offsets=after.offsets)
        assert after.offsets["orders"][0] == 1


@each_library
def test_fenced_static_member_does_not_rejoin(konvene: Konvene, library: str) -> None:
    """A member whose instance id was taken over is fenced, and the group keeps one member."""
    with reader(konvene, library, "ann", instance="a"):
        before = wait_settled(konvene).member("a")
        fault = konvene.faults.fence("a", takeover=True)
        fault.wait(LONG_S)
        konvene.wait_group("readers", lambda g: g.member("a").member_id != before.member_id, timeout=LONG_S)
        assert len(konvene.group("readers").members) == 1


@pytest.mark.konvene(settings={"group.min.session.timeout.ms": SHORT_SESSION_MS})
@each_library
def test_member_rejoins_after_unknown_member_id(konvene: Konvene, library: str) -> None:
    """After UNKNOWN_MEMBER_ID it joins as a new member and waits until the session of its old id expires."""
    with reader(konvene, library, "ann", session_ms=SHORT_SESSION_MS):
        now = wait_settled(konvene).generation
        konvene.faults.run(f"fence member 1 at generation {now} of group readers with UNKNOWN_MEMBER_ID")
        konvene.wait_group("readers", lambda g: g.generation > now, timeout=LONG_S)
        group = konvene.wait_stable("readers", timeout=LONG_S)
        assert group.members[-1].client_id == "ann"


def test_group_of_three_libraries_survives_a_killed_broker(konvene: Konvene) -> None:
    """Assignments and generation are unchanged: a restart causes no rebalance."""
    with (
        reader(konvene, LIBRARIES[0], "ann"),
        reader(konvene, LIBRARIES[1], "bob"),
        reader(konvene, LIBRARIES[2], "cid") as cid,
    ):
        konvene.wait_stable("readers", 3, timeout=LONG_S)
        before = wait_settled(konvene, 3, "bob")
        assert {m.client_id for m in before.members} == {"ann", "bob", "cid"}
        konvene.faults.run("kill and restart the broker")
        after = wait_settled(konvene, 3, "cid")
        assert (after.state, after.generation) == ("Stable", before.generation)
        assert {m.owned for m in after.members} == {m.owned for m in before.members}
        assert cid.errors == []
