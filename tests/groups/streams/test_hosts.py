"""Classic members in a streams group are told where all tasks are now, and that is written once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.members import Member
from tests.groups.streams.restorers import Restorer, Story, rounds

from konvene.groups.streams.classic import tasks
from konvene.groups.streams.classic.user_data import (
    AssignmentInfo,
    SubscriptionInfo,
    UserDataError,
    read_assignment_info,
    write_assignment_info,
    write_hosts,
)

STATELESS = "0:orders"


def told(thread: Thread) -> dict[str, list[int]]:
    """The partitions that a thread was told last to be at each endpoint."""
    assert thread.has is not None
    there = thread.has.partitions_by_host
    return {host: [partition for _, partition in there[host, port]] for host, port in sorted(there)}


def runs(*threads: Thread) -> dict[str, list[int]]:
    """Those that they run, each at its own."""
    found: dict[str, list[int]] = {}
    for thread in threads:
        host = thread.endpoint.partition(":")[0]
        found[host] = sorted([*found.get(host, []), *(partition for _, partition in thread.active)])
    return found


def mixed(*threads: Thread) -> tuple[Story, Restorer]:
    """ann speaks the streams protocol and has no endpoint; the threads join it, and all have settled."""
    story, ann = Story(konvene_streams_mode="kip"), Restorer("ann", "ann", STATELESS, reports=False)
    rounds(story, [ann], 2)
    for thread in threads:
        thread.join(story)
        thread.sync(story)
    settle(story, ann, *threads)
    return story, ann


def settle(story: Story, ann: Member, *threads: Thread) -> None:
    for _ in range(20):
        ann.beat(story)
        if not [thread for thread in threads if thread.settle(story)]:
            return
    pytest.fail("they do not settle")


@pytest.mark.parametrize("version", [2, 5, 11])
def test_everybody_is_told_what_is_so_now(version: int) -> None:
    """Also when tasks move, and when somebody is gone."""
    bob = Thread("bob", endpoint="b:1", version=version)
    cid = Thread("cid", endpoint="c:1", version=11)
    story, ann = mixed(bob, cid)
    assert told(bob) == told(cid) == runs(bob, cid)
    assert {len(some) for some in runs(bob, cid).values()} == {2}
    dan = Thread("dan", endpoint="d:1")
    dan.join(story)
    dan.sync(story)
    settle(story, ann, bob, cid, dan)
    assert told(bob) == told(cid) == told(dan) == runs(bob, cid, dan)
    assert "d" in told(bob)
    story.say(f"leave cid member={cid.member_id}")
    settle(story, ann, bob, dan)
    assert told(bob) == told(dan) == runs(bob, dan)


def test_threads_of_one_process_have_their_endpoint_together() -> None:
    bob, bobby = Thread("bob", endpoint="b:1"), Thread("bobby", endpoint="b:1")
    mixed(bob, bobby)
    assert told(bob) == told(bobby) == runs(bob, bobby)
    assert len(told(bob)["b"]) == 4


def test_who_has_no_place_among_them_is_told_of_nobody() -> None:
    """A client that is told of others and does not find itself joins again at once, and for ever."""
    bob, far = Thread("bob", endpoint="b:1"), Thread("far", endpoint="f:70000")
    mixed(bob, far)
    assert told(bob) == runs(bob)
    assert far.active and told(far) == {}


@pytest.mark.parametrize("endpoint", ["[::1]:8080", "http://b:80", ":80"])
def test_whoever_has_one_finds_its_own(endpoint: str) -> None:
    """As its client reads it, whose own must be among them."""
    bob, cid = Thread("bob", endpoint=endpoint), Thread("cid", endpoint="c:1")
    mixed(bob, cid)
    own = SubscriptionInfo(11, 11, "", user_endpoint=endpoint).endpoint
    assert bob.has is not None and cid.has is not None
    assert bob.has.partitions_by_host.keys() == {own, ("c", 1)} == cid.has.partitions_by_host.keys()


def test_what_everybody_is_told_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing has moved, whoever asks."""
    bob, cid = Thread("bob", endpoint="b:1"), Thread("cid", endpoint="c:1")
    story, _ = mixed(bob, cid)
    written: list[AssignmentInfo] = []

    def write(info: AssignmentInfo) -> bytes:
        written.append(info)
        return write_hosts(info)

    monkeypatch.setattr(tasks, "write_hosts", write)
    before = told(bob)
    for thread in (bob, cid, bob):
        thread.join(story)
        thread.sync(story)
    assert written == []
    assert told(bob) == told(cid) == before


@pytest.mark.parametrize("version", range(1, 12))
def test_of_what_a_leader_gave_a_member_its_own_tasks_can_be_read_alone(version: int) -> None:
    """What stands behind them is not looked at, whatever it is."""
    partitions = (("orders", 3), ("orders", 4))
    own = AssignmentInfo(
        version,
        version if version >= 3 else -1,
        tuple((("0", p), (topic, p)) for topic, p in partitions),
        {("0", 1): (("orders", 1),)},
    )
    everywhere = {(f"host-{n}", 9): (("orders", n),) for n in range(3)}
    whole = write_assignment_info(
        replace(own, partitions_by_host=everywhere, standby_partitions_by_host=everywhere, error_code=1)
    )
    assert read_assignment_info(whole, partitions, tasks_alone=True) == own
    tail = 4 * (version >= 4) + 8 * (version >= 7)
    behind = len(write_assignment_info(own, b"")) - tail
    assert read_assignment_info(whole[:behind] + b"?", partitions, tasks_alone=True) == own
    with pytest.raises(UserDataError):
        read_assignment_info(whole[: behind - 1], partitions, tasks_alone=True)
