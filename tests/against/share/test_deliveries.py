"""How often a record is delivered, when, and which ones are."""

import time

import pytest

from ..clients import Client, Fleet
from .queues import EXPLICIT, JAVA, SHARERS, Queue, poll


@pytest.mark.parametrize("library", SHARERS)
def test_a_lock_ends(library: str, queue: Queue) -> None:
    """A record that is not acknowledged before its lock times out is delivered again, also to the same
    member."""
    queue.configure(**{"share.record.lock.duration.ms": "1000"})
    queue.write("a")
    slow = queue.member(library, **EXPLICIT)
    assert poll(slow) == [("a", 1)]
    time.sleep(1.5)
    queue.acknowledge(slow, "accept", 0)
    assert queue.commit(slow) == "INVALID_RECORD_STATE"
    assert poll(slow) == [("a", 2)]
    queue.acknowledge(slow, "accept", 0)
    assert queue.commit(slow) is None


@pytest.mark.parametrize("library", SHARERS)
def test_a_record_is_given_up_when_it_was_delivered_too_often(library: str, queue: Queue) -> None:
    """After its last permitted delivery a record is archived; the records behind it are delivered."""
    queue.configure(**{"share.delivery.count.limit": "3"})
    queue.write("poison")
    member = queue.member(library, **EXPLICIT)
    for count in (1, 2, 3):
        assert poll(member) == [("poison", count)]
        queue.acknowledge(member, "release", 0)
        assert queue.commit(member) is None
    queue.write("food")
    assert poll(member) == [("food", 1)]
    queue.acknowledge(member, "accept", 1)
    assert queue.commit(member) is None


@pytest.mark.parametrize("library", SHARERS)
def test_who_waits_for_commits_has_nothing_else(
    library: str, queue: Queue, shared_fleet: Fleet, writer: Client
) -> None:
    """Of a group that reads what is committed no member has records of an open transaction, nor ever those of
    an aborted one; of another group they do."""
    queue.configure(**{"share.isolation.level": "read_committed"})
    transactional = shared_fleet.producer("confluent-kafka", transactional_id=queue.name)
    transactional.call("init", within_s=40)
    member = queue.member(library, **EXPLICIT)

    def write(value: str) -> None:
        row = {"topic": queue.name, "partition": 0, "key": None, "value": value}
        transactional.call("send", records=[row])

    transactional.call("begin")
    write("aborted")
    write("aborted as well")
    queue.write("plain")
    assert poll(member, 700) == []
    transactional.call("abort")
    assert poll(member) == [("plain", 1)]
    queue.acknowledge(member, "accept", 2)
    assert queue.commit(member) is None
    transactional.call("begin")
    write("committed")
    assert poll(member, 500) == []
    transactional.call("commit")
    assert poll(member) == [("committed", 1)]
    queue.acknowledge(member, "accept", 4)
    assert queue.commit(member) is None
    transactional.close()


@pytest.mark.parametrize("library", SHARERS)
@pytest.mark.parametrize("reset", ["latest", "by_duration:PT1H"])
def test_where_a_group_begins(library: str, reset: str, queue: Queue) -> None:
    """Without a start offset the group begins at the position of `share.auto.offset.reset`."""
    queue.configure(**{"share.auto.offset.reset": reset})
    queue.write("before")
    member = queue.member(library, **EXPLICIT)
    first = poll(member, 1500 if reset == "latest" else 10_000)
    assert first == ([] if reset == "latest" else [("before", 1)])
    queue.write("after")
    if first:
        queue.acknowledge(member, "accept", 0)
    assert poll(member) == [("after", 1)]
    queue.acknowledge(member, "accept", 1)
    assert queue.commit(member) is None


@pytest.mark.parametrize("library", [JAVA])
def test_a_member_that_wants_few_has_no_more(library: str, queue: Queue) -> None:
    """Where records are limited strictly (KIP-1206) a batch is shared by members, record by record."""
    queue.write("a", "b", "c", "d", "e")
    few = {"mode": "explicit", "acquire": "record_limit", "max_poll_records": 2}
    first, second = (queue.member(library, **few) for _ in range(2))
    assert poll(first) == [("a", 1), ("b", 1)]
    assert poll(second) == [("c", 1), ("d", 1)]
    queue.acknowledge(first, "accept", 0)
    queue.acknowledge(first, "release", 1)
    assert queue.commit(first) is None
    queue.acknowledge(second, "accept", 2, 3)
    assert queue.commit(second) is None
    assert poll(second) == [("b", 2), ("e", 1)]
    queue.acknowledge(second, "accept", 1, 4)
    assert queue.commit(second) is None
