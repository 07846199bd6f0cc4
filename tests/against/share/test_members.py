"""Members of different libraries share one partition; one of them dies, another sleeps."""

import time

import pytest

from ..clients import eventually
from .queues import EXPLICIT, SHARERS, Queue, accepted, offsets_of, poll

CHUNK = 10
LEAST = 300
MOST = 5000


@pytest.mark.java
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_members_share_a_partition(mode: str, queue: Queue) -> None:
    """Each record goes to one of them, once; all of them have some; nothing is left."""
    settings = {"mode": mode, "max_poll_records": 10, "go": True}
    members = [queue.member(library, **settings) for library in ("java", "confluent-kafka", "java")]
    written = 0
    while written < LEAST or (written < MOST and not all(member.values() for member in members)):
        queue.write(*(f"r{n}" for n in range(written, written + CHUNK)))
        written += CHUNK
    eventually(
        "all acknowledgements",
        lambda: sum(len(list(offsets_of(m, "acknowledged"))) for m in members) >= written,
        30,
        among=members,
    )
    assert all(member.values() for member in members)
    read = [value for m in members for value in m.values()]
    assert sorted(read) == sorted(f"r{n}" for n in range(written))
    assert {record["delivery_count"] for m in members for record in m.records()} == {1}
    assert sorted(offset for m in members for offset in accepted(m, 1)) == list(range(written))
    assert [m.of("acknowledge_failed") + m.of("error") for m in members] == [[], [], []]


@pytest.mark.parametrize("library", SHARERS)
def test_what_a_dead_member_had_goes_to_others(library: str, queue: Queue) -> None:
    """Its connection is lost, and with it its locks."""
    queue.write("a", "b")
    victim = queue.member(library, **EXPLICIT)
    assert poll(victim) == [("a", 1), ("b", 1)]
    heir = queue.member("confluent-kafka", **EXPLICIT)
    assert poll(heir, 300) == []
    victim.kill()
    begun = time.monotonic()
    assert poll(heir) == [("a", 2), ("b", 2)]
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize("library", SHARERS)
def test_who_sleeps_too_long_has_lost_its_records(library: str, queue: Queue) -> None:
    """After a lock timeout another member receives the records; the late acknowledgement is rejected."""
    queue.configure(**{"share.record.lock.duration.ms": "1000"})
    queue.write("a", "b")
    sleeper = queue.member(library, **EXPLICIT)
    assert poll(sleeper) == [("a", 1), ("b", 1)]
    sleeper.sleep()
    other = queue.member("confluent-kafka", **EXPLICIT)
    try:
        assert poll(other) == [("a", 2), ("b", 2)]
    finally:
        sleeper.wake()
    for member, error in ((sleeper, "INVALID_RECORD_STATE"), (other, None)):
        queue.acknowledge(member, "accept", 0, 1)
        assert queue.commit(member) == error
    sleeper.call("leave")
    queue.write("c")
    assert poll(other) == [("c", 1)]
