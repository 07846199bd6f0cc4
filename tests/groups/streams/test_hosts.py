"""Endpoint information of classic members in a streams group: current, and encoded once for all of them."""

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


def endpoints_of(thread: Thread) -> dict[str, list[int]]:
    """Return the partitions per endpoint that a thread received last."""
    assert thread.has is not None
    by_host = thread.has.partitions_by_host
    return {host: [partition for _, partition in by_host[host, port]] for host, port in sorted(by_host)}


def running(*threads: Thread) -> dict[str, list[int]]:
    """Return the partitions per endpoint that the threads run."""
    found: dict[str, list[int]] = {}
    for thread in threads:
        host = thread.endpoint.partition(":")[0]
        found[host] = sorted([*found.get(host, []), *(partition for _, partition in thread.active)])
    return found


def mixed(*threads: Thread) -> tuple[Story, Restorer]:
    """Return a settled group of the threads and of ann, a streams member without an endpoint."""
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
def test_every_member_gets_the_current_endpoints(version: int) -> None:
    """Also after tasks moved, and after a member left."""
    bob = Thread("bob", endpoint="b:1", version=version)
    cid = Thread("cid", endpoint="c:1", version=11)
    story, ann = mixed(bob, cid)
    assert endpoints_of(bob) == endpoints_of(cid) == running(bob, cid)
    assert {len(some) for some in running(bob, cid).values()} == {2}
    dan = Thread("dan", endpoint="d:1")
    dan.join(story)
    dan.sync(story)
    settle(story, ann, bob, cid, dan)
    assert endpoints_of(bob) == endpoints_of(cid) == endpoints_of(dan) == running(bob, cid, dan)
    assert "d" in endpoints_of(bob)
    story.run(f"leave cid member={cid.member_id}")
    settle(story, ann, bob, dan)
    assert endpoints_of(bob) == endpoints_of(dan) == running(bob, dan)


def test_threads_of_one_process_share_its_endpoint() -> None:
    bob, bobby = Thread("bob", endpoint="b:1"), Thread("bobby", endpoint="b:1")
    mixed(bob, bobby)
    assert endpoints_of(bob) == endpoints_of(bobby) == running(bob, bobby)
    assert len(endpoints_of(bob)["b"]) == 4


def test_a_member_with_an_invalid_endpoint_gets_no_endpoints() -> None:
    """A client that receives other endpoints but not its own rejoins at once, and for ever."""
    bob, far = Thread("bob", endpoint="b:1"), Thread("far", endpoint="f:70000")
    mixed(bob, far)
    assert endpoints_of(bob) == running(bob)
    assert far.active and endpoints_of(far) == {}


@pytest.mark.parametrize("endpoint", ["[::1]:8080", "http://b:80", ":80"])
def test_a_member_finds_its_own_endpoint(endpoint: str) -> None:
    """The client's own endpoint must be among the keys, in the form that its code parses."""
    bob, cid = Thread("bob", endpoint=endpoint), Thread("cid", endpoint="c:1")
    mixed(bob, cid)
    own = SubscriptionInfo(11, 11, "", user_endpoint=endpoint).endpoint
    assert bob.has is not None and cid.has is not None
    assert bob.has.partitions_by_host.keys() == {own, ("c", 1)} == cid.has.partitions_by_host.keys()


def test_common_endpoint_information_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as no task has moved, for all requests."""
    bob, cid = Thread("bob", endpoint="b:1"), Thread("cid", endpoint="c:1")
    story, _ = mixed(bob, cid)
    written: list[AssignmentInfo] = []

    def write(info: AssignmentInfo) -> bytes:
        written.append(info)
        return write_hosts(info)

    monkeypatch.setattr(tasks, "write_hosts", write)
    before = endpoints_of(bob)
    for thread in (bob, cid, bob):
        thread.join(story)
        thread.sync(story)
    assert written == []
    assert endpoints_of(bob) == endpoints_of(cid) == before


@pytest.mark.parametrize("version", range(1, 12))
def test_the_tasks_of_a_leaders_assignment_can_be_decoded_alone(version: int) -> None:
    """The bytes after the tasks are not parsed, whatever they are."""
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
