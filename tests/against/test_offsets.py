"""Where a consumer is and what its group has committed: metadata, resuming, seeks, pauses, times."""

from typing import Any

import pytest

from .clients import Client, Fleet, Refused, group_offsets
from .conftest import Admins
from .test_data import AN_HOUR_AGO_MS, EACH


@pytest.fixture
def filled(topic: str, shared_fleet: Fleet, admins: Admins) -> str:
    """A topic whose partition 0 holds ten records, a second apart."""
    producer = shared_fleet.producer("confluent-kafka", idempotence=True)
    records = [
        {"topic": topic, "partition": 0, "key": "k", "value": f"v{n}", "timestamp": AN_HOUR_AGO_MS + 1000 * n}
        for n in range(10)
    ]
    producer.call("send", records=records)
    producer.kill()
    return topic


def reader(fleet: Fleet, library: str, topic: str, **settings: Any) -> Client:
    """A consumer of partition 0 that commits only on command."""
    return fleet.consumer(library, assign=[[topic, 0]], **settings)


@pytest.mark.parametrize("library", EACH)
def test_committed_offsets_and_metadata_are_returned_to_every_client(
    library: str, fleet: Fleet, filled: str, admins: Admins
) -> None:
    """Commits of a consumer with assigned partitions are returned to it and to the admin clients."""
    group = f"g-{filled}"
    consumer = fleet.consumer(library, assign=[[filled, 0], [filled, 1], [filled, 2]], group=group)
    consumer.until("ten records", lambda: len(consumer.records()) == 10)
    consumer.call("commit", offsets=[[filled, 0, 7, "seven of ten"], [filled, 1, 0, ""]])
    committed = consumer.call("committed", partitions=[[filled, 0], [filled, 1], [filled, 2]])
    assert [[filled, 0, 7], [filled, 1, 0], [filled, 2, -1]] == [row[:3] for row in committed]
    assert (committed[0][3] or "").rstrip("\0") in ("seven of ten", ""), (
        "aiokafka's consumer exposes no metadata"
    )
    # Not confluent-kafka's: its admin reads beyond the end of metadata that no NUL ends.
    for admin in ("kafka-python", "aiokafka"):
        wanted = [[filled, 0, 7, "seven of ten"], [filled, 1, 0, ""]]
        assert group_offsets(admins[admin], group) == wanted, admin


@pytest.mark.java
def test_javas_admin_returns_the_same_offsets(fleet: Fleet, filled: str, admins: Admins) -> None:
    """Java's Admin reads with another version of OffsetFetch, and the answer is the same."""
    group = f"g-{filled}"
    consumer = reader(fleet, "kafka-python", filled, group=group)
    consumer.until("ten records", lambda: len(consumer.records()) == 10)
    consumer.call("commit", offsets=[[filled, 0, 3, "three"]])
    assert group_offsets(admins["java"], group) == [[filled, 0, 3, "three"]]


@pytest.mark.parametrize("library", EACH)
def test_a_member_resumes_where_its_group_committed(library: str, fleet: Fleet, filled: str) -> None:
    """The next reader of the group begins at the committed offset and not at the log's start."""
    group = f"g-{filled}"
    first = reader(fleet, "kafka-python", filled, group=group)
    first.until("ten records", lambda: len(first.records()) == 10)
    first.call("commit", offsets=[[filled, 0, 6, ""]])
    first.close()
    second = reader(fleet, library, filled, group=group)
    second.until("four records", lambda: len(second.records()) == 4)
    assert [f"v{n}" for n in range(6, 10)] == second.values()
    assert [[filled, 0, 10]] == second.call("position", partitions=[[filled, 0]])


@pytest.mark.parametrize("library", EACH)
def test_seek_and_pause_are_obeyed(library: str, fleet: Fleet, filled: str) -> None:
    """After a seek the records come again from there; from a paused partition none comes."""
    consumer = reader(fleet, library, filled)
    consumer.until("ten records", lambda: len(consumer.records()) == 10)
    consumer.call("seek", topic=filled, partition=0, offset=4)
    consumer.until("six more", lambda: len(consumer.records()) == 16)
    assert [r["offset"] for r in consumer.records()[10:]] == [4, 5, 6, 7, 8, 9]
    consumer.call("pause", partitions=[[filled, 0]])
    consumer.call("seek", topic=filled, partition=0, offset=8)
    with pytest.raises(TimeoutError):
        consumer.until("a record of a paused partition", lambda: len(consumer.records()) > 16, 0.7)
    consumer.call("resume", partitions=[[filled, 0]])
    consumer.until("two more", lambda: len(consumer.records()) == 18)
    assert [r["offset"] for r in consumer.records()[16:]] == [8, 9]


@pytest.mark.parametrize("library", EACH)
def test_seek_beyond_the_log_resets_to_earliest(library: str, fleet: Fleet, filled: str) -> None:
    """OFFSET_OUT_OF_RANGE makes the client reset to the earliest record, as configured."""
    consumer = reader(fleet, library, filled)
    consumer.until("ten records", lambda: len(consumer.records()) == 10)
    consumer.call("seek", topic=filled, partition=0, offset=1000)
    consumer.until("all ten again", lambda: len(consumer.records()) == 20)
    assert list(range(10)) == [r["offset"] for r in consumer.records()[10:]]


@pytest.mark.parametrize("library", EACH)
def test_offsets_for_times(library: str, fleet: Fleet, filled: str) -> None:
    """The first record at or after a time; none after the last; the log's edges are 0 and 10."""
    consumer = reader(fleet, library, filled)
    here = [[filled, 0]]

    def at(timestamp_ms: int) -> Any:
        return consumer.call("offsets_for_times", partitions=here, timestamp=timestamp_ms)[0][2]

    assert (at(AN_HOUR_AGO_MS - 1), at(AN_HOUR_AGO_MS + 3000), at(AN_HOUR_AGO_MS + 3001)) == (0, 3, 4)
    assert at(AN_HOUR_AGO_MS + 9001) == -1
    assert [[filled, 0, 0, 10]] == consumer.call("watermarks", partitions=here)


@pytest.mark.parametrize("library", EACH)
def test_auto_commit_commits_what_was_read(library: str, fleet: Fleet, filled: str, admins: Admins) -> None:
    """A group member that commits by itself has committed its ten records soon after it read them."""
    group = f"g-{filled}"
    consumer = fleet.consumer(
        library, group=group, topics=[filled], commit="auto", auto_commit_interval_ms=200
    )
    consumer.until("ten records", lambda: len(consumer.records()) == 10)

    def committed() -> bool:
        rows = group_offsets(admins["confluent-kafka"], group)
        return any(row[:3] == [filled, 0, 10] for row in rows)

    consumer.until("the commit", committed, 10)
    consumer.close()


@pytest.mark.parametrize("library", EACH)
def test_a_commit_from_outside_a_living_group_is_refused(
    library: str, fleet: Fleet, filled: str, admins: Admins
) -> None:
    """While a group has members, only they commit: UNKNOWN_MEMBER_ID (25), and nothing changes."""
    group = f"g-{filled}"
    member = fleet.consumer("kafka-python", group=group, topics=[filled], commit="none")
    member.until("ten records", lambda: len(member.records()) == 10)
    member.call("commit", offsets=[[filled, 0, 5, "mine"]])
    outsider = reader(fleet, library, filled, group=group)
    with pytest.raises(Refused) as refused:
        outsider.call("commit", offsets=[[filled, 0, 9, "not mine"]])
    assert refused.value.code == 25 or refused.value.name.startswith("CommitFailed")
    assert group_offsets(admins["kafka-python"], group) == [[filled, 0, 5, "mine"]]
