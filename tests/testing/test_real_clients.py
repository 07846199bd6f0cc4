"""The clients that people have, under faults: what a group must survive, and how it is told."""

from __future__ import annotations

import pytest
from tests.testing.readers import LIBRARIES, SHORT_SESSION_MS, reader

from konvene.shard import causes
from konvene.testing import GroupView, Konvene

pytestmark = pytest.mark.konvene(topics={"orders": 4})

each_library = pytest.mark.parametrize("library", LIBRARIES)
LONG_S = 30


def settled(konvene: Konvene, members: int = 1, client: str = "ann") -> GroupView:
    """The group once a member heartbeats: kafka-python's leader joins twice before it does."""
    konvene.wait_stable("readers", members, timeout=LONG_S)
    konvene.faults.delay("Heartbeat", ms=0, client=client, times=2).wait(LONG_S, times=2)
    return konvene.wait_stable("readers", members, timeout=LONG_S)


@each_library
def test_a_lost_heartbeat_response_does_not_lose_the_member(konvene: Konvene, library: str) -> None:
    """It heartbeats on, in the same generation; nobody rebalances."""
    with reader(konvene, library, "ann"):
        before = settled(konvene)
        fault = konvene.faults.lose_response("Heartbeat", client="ann")
        fault.wait(LONG_S)
        assert settled(konvene) == before


@each_library
def test_a_static_member_is_not_fenced_by_its_own_lost_join(konvene: Konvene, library: str) -> None:
    """ST8. The response of its JoinGroup is lost, it joins anew, and is the one member of its name."""
    fault = konvene.faults.lose_response("JoinGroup", instance="a")
    with reader(konvene, library, "ann", instance="a") as ann:
        fault.wait(LONG_S)
        group = settled(konvene)
        assert group.member("a").has == "orders:0,1,2,3"
        assert settled(konvene).member("a") == group.member("a")
        assert not [error for error in ann.errors if "Fenced" in error]


@each_library
def test_a_commit_survives_a_coordinator_that_restarts(konvene: Konvene, library: str) -> None:
    """Between append and reply: the client is told NOT_COORDINATOR, tries again, and nothing is lost."""
    konvene.produce("orders", ["one", "two"], partition=0)
    with reader(konvene, library, "ann") as ann:
        konvene.wait_stable("readers", 1, timeout=LONG_S)
        konvene.wait_group("readers", lambda _group: len(ann.records) == 2, timeout=LONG_S)
        fault = konvene.faults.restart_after_append("readers", "OffsetCommit")
        ann.commit(LONG_S)
        assert fault.happened == 1
        group = konvene.wait_stable("readers", 1, timeout=LONG_S)
        assert group.offsets["orders"][0] == 2
    assert len(ann.records) == 2


@each_library
def test_a_session_that_ends_is_told_as_such(konvene: Konvene, library: str) -> None:
    """The member is thrown out, comes back by itself, and the history says why."""
    with reader(konvene, library, "ann"):
        konvene.wait_stable("readers", 1, timeout=LONG_S)
        konvene.faults.run("expire the session of client ann now")
        konvene.wait_group(
            "readers",
            lambda g: g.state == "Stable" and g.generation > 1 and len(g.members) == 1,
            timeout=LONG_S,
        )
        told = konvene.rebalances("readers")
    assert (causes.SESSION_EXPIRED,) in [row.causes for row in told]
    assert next(row for row in told if causes.SESSION_EXPIRED in row.causes).who == ("ann",)


@each_library
def test_a_delayed_assignment_is_waited_for(konvene: Konvene, library: str) -> None:
    """The response of SyncGroup comes late: the member reads then, in its first generation."""
    fault = konvene.faults.hold("SyncGroup", way="response", client="ann")
    konvene.produce("orders", ["one"], partition=3)
    with reader(konvene, library, "ann") as ann:
        fault.wait(LONG_S)
        assert ann.records == []
        fault.release()
        konvene.wait_group("readers", lambda _group: len(ann.records) == 1, timeout=LONG_S)
    assert causes.SESSION_EXPIRED not in [cause for row in konvene.rebalances() for cause in row.causes]


@each_library
def test_a_request_that_comes_twice_is_done_once(konvene: Konvene, library: str) -> None:
    """A doubled Heartbeat, OffsetCommit and SyncGroup change nothing: the group is as it would have been."""
    konvene.faults.run("""
        duplicate the next SyncGroup request
        duplicate the next Heartbeat request
        duplicate the next OffsetCommit request
    """)
    konvene.produce("orders", ["one"], partition=0)
    with reader(konvene, library, "ann") as ann:
        before = settled(konvene)
        konvene.wait_group("readers", lambda _group: len(ann.records) == 1, timeout=LONG_S)
        ann.commit(LONG_S)
        after = settled(konvene)
        assert konvene.faults.armed == ()
        assert after == before._replace(offsets=after.offsets)
        assert after.offsets["orders"][0] == 1


@each_library
def test_a_fenced_member_holds_nothing(konvene: Konvene, library: str) -> None:
    """Somebody else has its instance id: the broker tells it so, and it does not come back for more."""
    with reader(konvene, library, "ann", instance="a"):
        before = settled(konvene).member("a")
        fault = konvene.faults.fence("a", really=True)
        fault.wait(LONG_S)
        konvene.wait_group("readers", lambda g: g.member("a").member_id != before.member_id, timeout=LONG_S)
        assert len(konvene.group("readers").members) == 1


@pytest.mark.konvene(settings={"group.min.session.timeout.ms": SHORT_SESSION_MS})
@each_library
def test_an_unknown_member_joins_anew(konvene: Konvene, library: str) -> None:
    """Told UNKNOWN_MEMBER_ID in the generation that was named, it joins again, as somebody new, and waits for
    the end of who it was."""
    with reader(konvene, library, "ann", session_ms=SHORT_SESSION_MS):
        now = settled(konvene).generation
        konvene.faults.run(f"fence member 1 at generation {now} of group readers with UNKNOWN_MEMBER_ID")
        konvene.wait_group("readers", lambda g: g.generation > now, timeout=LONG_S)
        group = konvene.wait_stable("readers", timeout=LONG_S)
        assert group.members[-1].client_id == "ann"


def test_three_libraries_in_one_group_outlive_a_broker_that_is_killed(konvene: Konvene) -> None:
    """They hold what they held, in the same generation: a restart is no rebalance."""
    with (
        reader(konvene, LIBRARIES[0], "ann"),
        reader(konvene, LIBRARIES[1], "bob"),
        reader(konvene, LIBRARIES[2], "cid") as cid,
    ):
        konvene.wait_stable("readers", 3, timeout=LONG_S)
        before = settled(konvene, 3, "bob")
        assert {m.client_id for m in before.members} == {"ann", "bob", "cid"}
        konvene.faults.run("kill and restart the broker")
        after = settled(konvene, 3, "cid")
        assert (after.state, after.generation) == ("Stable", before.generation)
        assert {m.has for m in after.members} == {m.has for m in before.members}
        assert cid.errors == []
