"""What a group gives up is copied to a topic of dead letters (KIP-1191), if the group has one."""

from typing import Any

import pytest

from ..clients import Client, Fleet
from .queues import EXPLICIT, SHARERS, Queue, poll

HEADERS = "__dlq.errors."
TOO_OFTEN = "Offset delivery count exceeded the threshold."


@pytest.mark.parametrize("library", SHARERS)
def test_what_is_given_up_is_copied(library: str, queue: Queue, admin: Client, shared_fleet: Fleet) -> None:
    """A record that was rejected and one that was delivered too often: where it came from, and why."""
    letters = f"dlq.{queue.name}"
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    admin.call("create_topics", topics=[{"name": letters, "partitions": 1, "configs": enabled}])
    queue.configure(
        **{
            "share.delivery.count.limit": "2",
            "errors.deadletterqueue.topic.name": letters,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
    )
    queue.write("good", "bad", "slow")
    member = queue.member(library, **EXPLICIT)
    assert poll(member) == [("good", 1), ("bad", 1), ("slow", 1)]
    queue.acknowledge(member, "accept", 0)
    queue.acknowledge(member, "reject", 1)
    queue.acknowledge(member, "release", 2)
    assert queue.commit(member) is None
    assert poll(member) == [("slow", 2)]
    queue.acknowledge(member, "release", 2)
    assert queue.commit(member) is None
    reader = shared_fleet.consumer("confluent-kafka", assign=[[letters, 0]])
    reader.until("dead letters", lambda: len(reader.records()) >= 2)
    deliveries = {record["value"]: copied(record) for record in reader.records()}
    where = {"topic": queue.name, "partition": "0", "group": queue.name}
    assert deliveries == {
        "bad": where | {"offset": "1", "delivery.count": "1", "message": "Offset rejected by client."},
        "slow": where | {"offset": "2", "delivery.count": "2", "message": TOO_OFTEN},
    }
    reader.close()


def copied(record: dict[str, Any]) -> dict[str, str]:
    return {name.removeprefix(HEADERS): value for name, value in record["headers"]}
