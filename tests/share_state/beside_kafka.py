"""Record the responses and the log of Apache Kafka's share coordinator for random requests.

    python -m tests.share_state.beside_kafka

starts a Kafka broker, sends it random requests and writes `vectors/share_state/kafka.jsonl.gz`: one line for
each request with Kafka's response, then one for each record of its log. The weights let most requests
succeed: epochs are near the current ones, batches overlap, and every fourth record is a snapshot. One topic
is deleted in between, and another one of the same name is created.

Times are not recorded. `test_beside_kafka.py` sends the same requests to konvene's shard.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.against.brokers import Kafka
from tests.differential.playing import Wire

from konvene.codec import batches as rb
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.share_state.requests import (
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateBatch,
    Write,
)

KEPT = Path(__file__).parents[1] / "vectors" / "share_state" / "kafka.jsonl.gz"
UPDATES_PER_SNAPSHOT = 3
SEED, STEPS = 932, 1500
SHARE = 2

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.append.linger.ms": "0",
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
}

Request = Initialize | Read | Write | Delete | ReadSummary


def on_the_wire(request: Request) -> Struct:
    """Return the Kafka request for one share partition."""
    key = request.key
    if isinstance(request, Initialize):
        i = initialize_share_group_state
        one: Any = i.PartitionData(
            partition=key.partition, state_epoch=request.state_epoch, start_offset=request.start_offset
        )
        return i.InitializeShareGroupStateRequest(
            group_id=key.group_id, topics=(i.InitializeStateData(topic_id=key.topic_id, partitions=(one,)),)
        )
    if isinstance(request, Read):
        r = read_share_group_state
        one = r.PartitionData(partition=key.partition, leader_epoch=request.leader_epoch)
        return r.ReadShareGroupStateRequest(
            group_id=key.group_id, topics=(r.ReadStateData(topic_id=key.topic_id, partitions=(one,)),)
        )
    if isinstance(request, Write):
        w = write_share_group_state
        one = w.PartitionData(
            partition=key.partition,
            state_epoch=request.state_epoch,
            leader_epoch=request.leader_epoch,
            start_offset=request.start_offset,
            delivery_complete_count=request.delivery_complete_count,
            state_batches=tuple(
                w.StateBatch(first_offset=a, last_offset=b, delivery_state=state, delivery_count=count)
                for a, b, state, count in request.batches
            ),
        )
        return w.WriteShareGroupStateRequest(
            group_id=key.group_id, topics=(w.WriteStateData(topic_id=key.topic_id, partitions=(one,)),)
        )
    if isinstance(request, Delete):
        d = delete_share_group_state
        one = d.PartitionData(partition=key.partition)
        return d.DeleteShareGroupStateRequest(
            group_id=key.group_id, topics=(d.DeleteStateData(topic_id=key.topic_id, partitions=(one,)),)
        )
    s = read_share_group_state_summary
    one = s.PartitionData(partition=key.partition, leader_epoch=request.leader_epoch)
    return s.ReadShareGroupStateSummaryRequest(
        group_id=key.group_id, topics=(s.ReadStateSummaryData(topic_id=key.topic_id, partitions=(one,)),)
    )


def response_row(request: Request, answer: Any) -> list[Any]:
    """Return the response for the one partition as a row: error code, message, and the fields on success."""
    ((one,),) = (topic.partitions for topic in answer.results)
    row = [one.error_code, one.error_message]
    if one.error_code:
        return row
    if isinstance(request, Read):
        batches = [
            [b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in one.state_batches
        ]
        return [*row, one.state_epoch, one.start_offset, batches]
    if isinstance(request, ReadSummary):
        return [*row, one.state_epoch, one.leader_epoch, one.start_offset, one.delivery_complete_count]
    return row


class RandomRequests:
    """Draws the next request."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.epochs: dict[SharePartitionKey, list[int]] = {}
        """State epoch and leader epoch that the coordinator probably has."""

    def request(self, keys: list[SharePartitionKey]) -> Request:
        chance = self.random
        key = chance.choice(keys)
        if key not in self.epochs and chance.random() < 0.7:
            self.epochs[key] = [0, 0]
            return Initialize(key, 0, 0)
        state, leader = self.epochs.setdefault(key, [0, 0])
        kind = chance.choices((Write, Read, ReadSummary, Initialize, Delete), (70, 14, 10, 8, 3))[0]
        near = chance.choices((0, 1, -1), (12, 2, 2))[0]
        if kind is Initialize:
            self.epochs[key][0] = max(state, state + near)
            return Initialize(key, state + near, chance.choice((-1, 0, 0, 5, 30)))
        if kind is Read:
            self.epochs[key][1] = max(leader, leader + near)
            return Read(key, leader + near)
        if kind is ReadSummary:
            return ReadSummary(key, leader + near)
        if kind is Delete:
            self.epochs.pop(key)
            return Delete(key)
        leader_offset = chance.choices((0, 1, -1), (12, 2, 2))[0]
        return Write(
            key, state + near, leader + leader_offset, chance.choice((-1, 0, 5, *range(10, 40))),
            chance.randint(-1, 20),
            tuple(self.batch() for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5)))),
        )  # fmt: skip

    def batch(self) -> StateBatch:
        first = self.random.randint(0, 60)
        last = first + self.random.choice((0, 0, 1, 4, 9, 20))
        return StateBatch(first, last, self.random.choice((0, 0, 2, 3, 4)), self.random.randint(1, 4))


def play(broker: Kafka) -> tuple[list[dict[str, Any]], dict[str, int]]:
    wire = Wire(broker.port)
    ids = {name: topic(wire, name, count) for name, count in (("orders", 2), ("bills", 1))}
    partitions = {str(ids["orders"]): 2, str(ids["bills"]): 1}
    for _ in range(100):
        found = wire.ask(
            FindCoordinatorRequest(key_type=SHARE, coordinator_keys=(f"g:{ids['orders']}:0",)), 6
        )
        if not found.coordinators[0].error_code:
            break
        time.sleep(0.2)
    requests, rows = RandomRequests(SEED), []
    for step in range(STEPS):
        if step == STEPS * 2 // 3:
            deletion = wire.ask(
                DeleteTopicsRequest(timeout_ms=5000, topics=(DeleteTopicState(name="bills"),)), 6
            )
            assert deletion.responses[0].error_code == 0
            time.sleep(2)
            rows.append({"deleted": str(ids["bills"])})
            ids["bills again"] = topic(wire, "bills", 1)
            partitions[str(ids["bills again"])] = 1
        keys = [
            SharePartitionKey(group, topic_id, partition)
            for group in ("g", "h")
            for topic_id in ids.values()
            for partition in range(partitions[str(topic_id)])
        ]
        keys.append(SharePartitionKey("g", ids["orders"], requests.random.choice((-1, 2))))
        keys.append(SharePartitionKey("g", Uuid(b"there is no such"), 0))
        request = requests.request(keys)
        version = 1 if isinstance(request, Write | ReadSummary) else 0
        answer = wire.ask(on_the_wire(request), version)
        rows.append(
            {
                "ask": type(request).__name__,
                "key": [request.key.group_id, str(request.key.topic_id), request.key.partition],
                "said": list(request[1:]),
                "told": response_row(request, answer),
            }
        )
    wire.close()
    return rows, partitions


def topic(wire: Wire, name: str, partitions: int) -> Uuid:
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = wire.ask(CreateTopicsRequest(topics=(wanted,)), 7)
    assert answer.topics[0].error_code == 0
    time.sleep(1)
    return Uuid(answer.topics[0].topic_id)


def log_of(directory: Path) -> list[tuple[str, str | None]]:
    """Return keys and values of the records in the log, in hexadecimal."""
    found: list[tuple[str, str | None]] = []
    for file in sorted((directory / "data" / "__share_group_state-0").glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            for record in rb.records(batch, header):
                assert record.key is not None
                value = None if record.value is None else bytes(record.value).hex()
                found.append((bytes(record.key).hex(), value))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Kafka(Path(folder), SETTINGS)
        broker.start()
        try:
            rows, partitions = play(broker)
        finally:
            broker.stop()
        log = log_of(broker.directory)
    KEPT.parent.mkdir(exist_ok=True)
    lines = [{"topics": partitions}, *rows, *({"key": key, "value": value} for key, value in log)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    KEPT.write_bytes(gzip.compress(text.encode(), mtime=0))
    sys.stdout.write(f"{len(rows)} requests, {len(log)} records\n")


if __name__ == "__main__":
    main()
