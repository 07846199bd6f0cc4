"""Acknowledgements by members of share groups, and their effect on redelivery."""

import time

import pytest

from .queues import EXPLICIT, JAVA, SHARERS, Queue, accepted, poll


@pytest.mark.parametrize("library", SHARERS)
def test_the_next_poll_accepts_what_the_last_one_brought(library: str, queue: Queue) -> None:
    """In implicit mode the next poll accepts the previous poll's records, which are not delivered again."""
    queue.write("a", "b", "c")
    member = queue.member(library)
    assert poll(member) == [("a", 1), ("b", 1), ("c", 1)]
    assert poll(member, 3000) == []  # Java's client reports acknowledgement results while it polls.
    assert accepted(member, 3) == [0, 1, 2]
    other = queue.member("confluent-kafka")
    assert poll(other, 300) == []
    member.call("leave")
    queue.write("d")
    assert poll(other) == [("d", 1)]


@pytest.mark.parametrize("library", SHARERS)
def test_each_record_is_answered_by_itself(library: str, queue: Queue) -> None:
    """What is released is delivered again, the rest is done."""
    queue.write("a", "b", "c", "d")
    member = queue.member(library, **EXPLICIT)
    assert poll(member) == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    queue.acknowledge(member, "accept", 0, 3)
    queue.acknowledge(member, "release", 1)
    queue.acknowledge(member, "reject", 2)
    assert queue.commit(member) is None
    assert poll(member) == [("b", 2)]
    queue.acknowledge(member, "accept", 1)
    assert queue.commit(member) is None
    queue.write("e")
    assert poll(member) == [("e", 1)]
    queue.acknowledge(member, "accept", 4)
    assert queue.commit(member) is None
    assert accepted(member, 6) == [0, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("library", SHARERS)
def test_who_leaves_gives_back_what_it_has_not_answered(library: str, queue: Queue) -> None:
    """Others have it at once, counted as a delivery; what was answered stays so."""
    queue.write("a", "b", "c")
    leaving = queue.member(library, **EXPLICIT)
    assert poll(leaving) == [("a", 1), ("b", 1), ("c", 1)]
    queue.acknowledge(leaving, "accept", 1)
    other = queue.member("confluent-kafka", **EXPLICIT)
    assert poll(other, 300) == []
    leaving.call("leave")
    begun = time.monotonic()
    assert poll(other) == [("a", 2), ("c", 2)]
    assert time.monotonic() - begun < 8  # a lock would have lasted for 30 s
    queue.acknowledge(other, "accept", 0, 2)
    assert queue.commit(other) is None


@pytest.mark.parametrize("library", [JAVA])
def test_a_lock_is_renewed(library: str, queue: Queue) -> None:
    """A slow member renews its lock and keeps the record; no other member receives it meanwhile."""
    queue.configure(**{"share.record.lock.duration.ms": "1500"})
    queue.write("a")
    slow = queue.member(library, **EXPLICIT)
    assert poll(slow) == [("a", 1)]
    assert slow.call("lock_ms") == 1500
    other = queue.member("confluent-kafka", **EXPLICIT)
    for _ in range(4):
        assert poll(other, 700) == []
        queue.acknowledge(slow, "renew", 0)
        assert queue.commit(slow) is None
        assert poll(slow) == [("a", 1)]
    queue.acknowledge(slow, "accept", 0)
    assert queue.commit(slow) is None
    assert poll(other, 2000) == []
