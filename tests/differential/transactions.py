"""Lines of conversations for transactional producers, in addition to the lines of group members.

    init WHO [v=5] [id=TX] [timeout=60000] [pid=P] [epoch=E] [keep=yes]      InitProducerId
    enlist WHO PARTITIONS [v=3] [verify=yes]                        AddPartitionsToTxn
    pledge WHO [v=4] [group=g]                                      AddOffsetsToTxn
    write WHO PARTITION [v=13] [seq=N] [plain=yes]                  Produce: one record, in the transaction
    stow WHO PARTITION:OFFSET[:METADATA],... [v=5] [group=g] [member=M] [generation=G] [static=ID]
                                                                    TxnOffsetCommit
    end WHO commit|abort [v=5]                                      EndTxn
    mark WHO PARTITIONS commit|abort [v=1] [coordinator=0]          WriteTxnMarkers, as sent by an admin
    inquire WHO TX,...                                              DescribeTransactions
    roll WHO [v=2] [states=A,B] [pattern=RE] [longer=MS]            ListTransactions
    producers WHO PARTITIONS                                        DescribeProducers
    read WHO PARTITION [v=12] [isolation=committed] [from=N]        Fetch without waiting
    ends WHO PARTITIONS [v=7] [isolation=committed]                 ListOffsets: end offsets
    written state                                                   new records of `__transaction_state`

The default transactional id is WHO; two clients may share one id. Each line except those of admins takes
`pid=P` and `epoch=E`: numbers, `next` or `last`; `-` is -1, and `pid=WHO` is the producer id of that client.
A client keeps its producer id and epoch from responses and counts the sequence numbers of each partition.
After the end of a transaction its coordinator still writes markers; the conversation continues when they are
written.
"""

from __future__ import annotations

import time
from typing import Any

from tests.differential.language import Line, Memory, partitions, text
from tests.differential.streams import StreamsSpeaker

from konvene.codec import batches
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from konvene.messages.describe_producers import DescribeProducersRequest, TopicRequest
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.list_transactions import ListTransactionsRequest
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from konvene.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

VERBS = (
    "init",
    "enlist",
    "pledge",
    "write",
    "stow",
    "end",
    "mark",
    "inquire",
    "roll",
    "producers",
    "read",
    "ends",
)
"""Verbs whose request always gets one response."""

ENDS = {"init", "end"}
"""Verbs after which the coordinator may still complete a transaction."""

MOST_BYTES = 1_000_000
LATEST_OFFSET = -1
FIRST_BATCHED = 4
"""First version of AddPartitionsToTxn with a batch of transactions."""


class TransactionsSpeaker(StreamsSpeaker):
    """Builds requests from the lines of group members and transactional producers."""

    def transactional_id(self, line: Line) -> str:
        memory = self.of(line.client)
        memory.transactional_id = line.options.get(
            "id", memory.transactional_id or line.client.partition("/")[0]
        )
        return "" if memory.transactional_id == "-" else self.tag + text(memory.transactional_id)

    def _pid(self, memory: Memory, line: Line) -> int:
        word = line.options.get("pid")
        if word is None:
            return memory.producer_id
        if word in ("next", "last"):
            return memory.producer_id + {"next": 1, "last": -1}[word]
        if word == "-":
            return -1
        return int(word) if word.lstrip("-").isdigit() else self.of(word).producer_id

    def _producer_epoch(self, memory: Memory, line: Line) -> int:
        word = line.options.get("epoch")
        if word is None:
            return memory.producer_epoch
        return (
            -1
            if word == "-"
            else memory.producer_epoch + {"next": 1, "last": -1}[word]
            if word.isalpha()
            else int(word)
        )

    def _producer_fields(self, memory: Memory, line: Line) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id(line),
            "producer_id": self._pid(memory, line),
            "producer_epoch": self._producer_epoch(memory, line),
        }

    def _init(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        keeps = o.get("keep") == "yes" and line.version >= 3
        named = line.version >= 3
        transactional_id = self.transactional_id(line)
        return InitProducerIdRequest(
            transactional_id=None if o.get("id") == "none" else transactional_id,
            transaction_timeout_ms=int(o.get("timeout", 60_000)),
            producer_id=self._pid(memory, line) if keeps or (named and "pid" in o) else -1,
            producer_epoch=self._producer_epoch(memory, line) if keeps or (named and "epoch" in o) else -1,
        )

    def _enlist(self, memory: Memory, line: Line) -> Struct:
        producer = self._producer_fields(memory, line)
        topics = tuple(
            AddPartitionsToTxnTopic(name=self.topic(n), partitions=tuple(p))
            for n, p in partitions(line.plain[0]).items()
        )
        if line.version < FIRST_BATCHED:
            return AddPartitionsToTxnRequest(
                v3_and_below_topics=topics,
                **{f"v3_and_below_{name}": value for name, value in producer.items()},
            )
        verify = line.options.get("verify") == "yes"
        transaction = AddPartitionsToTxnTransaction(verify_only=verify, topics=topics, **producer)
        return AddPartitionsToTxnRequest(transactions=(transaction,))

    def _pledge(self, memory: Memory, line: Line) -> Struct:
        group = self.group(line.options.get("group", "g"))
        return AddOffsetsToTxnRequest(group_id=group, **self._producer_fields(memory, line))

    def _write(self, memory: Memory, line: Line) -> Struct:
        name, _, partition = line.plain[0].rpartition("-")
        producer = self._producer_fields(memory, line)
        plain = line.options.get("plain") == "yes"
        key = (producer["producer_id"], producer["producer_epoch"], line.plain[0])
        sequence = int(line.options.get("seq", memory.sequences.get(key, 0)))
        memory.writing = (key, sequence)
        now_ms = time.time_ns() // 1_000_000
        batch = batches.build(
            [batches.Record(0, now_ms, None, f"{line.client} {sequence}".encode())],
            producer_id=-1 if plain else producer["producer_id"],
            producer_epoch=-1 if plain else producer["producer_epoch"],
            base_sequence=-1 if plain else sequence,
            transactional=not plain,
        )
        data = (PartitionProduceData(index=int(partition), records=batch),)
        named = (
            {"topic_id": self.topic_ids[self.topic(name)]}
            if line.version >= 13
            else {"name": self.topic(name)}
        )
        return ProduceRequest(
            transactional_id=None if plain else producer["transactional_id"],
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(partition_data=data, **named),),
        )

    def _stow(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for word in line.plain[0].split(","):
            where, offset, metadata = (*word.split(":"), "")[:3]
            name, _, partition = where.rpartition("-")
            by_topic.setdefault(name, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=int(partition),
                    committed_offset=int(offset),
                    committed_metadata=text(metadata),
                )
            )
        member: dict[str, Any] = {}
        if line.version >= 3 and ("member" in o or "generation" in o or "static" in o):
            member["member_id"] = self._member(memory, o.get("member"))
            member["generation_id_or_member_epoch"] = self._generation(memory, o.get("generation"))
            member["group_instance_id"] = self._instance(memory, line, 3)
        elif line.version >= 3:
            member = {"member_id": ""}
        return TxnOffsetCommitRequest(
            group_id=self.group(o.get("group", "g")),
            topics=tuple(
                TxnOffsetCommitRequestTopic(partitions=tuple(p), **self._txn_named(name, line.version))
                for name, p in by_topic.items()
            ),
            **self._producer_fields(memory, line),
            **member,
        )

    def _txn_named(self, name: str, version: int) -> dict[str, Any]:
        return self._named(name, 10 if version >= 6 else 0)

    def _end(self, memory: Memory, line: Line) -> Struct:
        return EndTxnRequest(committed=line.plain[0] == "commit", **self._producer_fields(memory, line))

    def _mark(self, memory: Memory, line: Line) -> Struct:
        producer = self._producer_fields(memory, line)
        marker = WritableTxnMarker(
            producer_id=producer["producer_id"],
            producer_epoch=producer["producer_epoch"],
            transaction_result=line.plain[1] == "commit",
            coordinator_epoch=int(line.options.get("coordinator", 0)),
            topics=tuple(
                WritableTxnMarkerTopic(name=self.topic(n), partition_indexes=tuple(p))
                for n, p in partitions(line.plain[0]).items()
            ),
        )
        return WriteTxnMarkersRequest(markers=(marker,))

    def _inquire(self, memory: Memory, line: Line) -> Struct:
        ids = tuple(self.tag + text(word) for word in line.plain[0].split(","))
        return DescribeTransactionsRequest(transactional_ids=ids)

    def _roll(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        pattern = o.get("pattern")
        return ListTransactionsRequest(
            state_filters=tuple(filter(None, o.get("states", "").split(","))),
            duration_filter=int(o.get("longer", -1)) if line.version >= 1 else -1,
            transactional_id_pattern=None if pattern is None or line.version < 2 else text(pattern),
        )

    def _producers(self, memory: Memory, line: Line) -> Struct:
        return DescribeProducersRequest(
            topics=tuple(
                TopicRequest(name=self.topic(n), partition_indexes=tuple(p))
                for n, p in partitions(line.plain[0]).items()
            )
        )

    def _read(self, memory: Memory, line: Line) -> Struct:
        name, _, partition = line.plain[0].rpartition("-")
        requested = FetchPartition(
            partition=int(partition),
            fetch_offset=int(line.options.get("from", 0)),
            partition_max_bytes=MOST_BYTES,
        )
        return FetchRequest(
            min_bytes=0,
            isolation_level=_isolation(line),
            topics=(FetchTopic(topic=self.topic(name), partitions=(requested,)),),
        )

    def _ends(self, memory: Memory, line: Line) -> Struct:
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=_isolation(line),
            topics=tuple(
                ListOffsetsTopic(
                    name=self.topic(n),
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=i, timestamp=LATEST_OFFSET) for i in p
                    ),
                )
                for n, p in partitions(line.plain[0]).items()
            ),
        )

    def learn(self, memory: Memory, answer: Any) -> None:
        """Update the client's memory from a response."""
        kind = type(answer).__name__
        if kind == "InitProducerIdResponse":
            memory.last_error = Errors(answer.error_code)
            if answer.error_code == Errors.NONE:
                memory.producer_id, memory.producer_epoch = answer.producer_id, answer.producer_epoch
        elif kind == "EndTxnResponse":
            memory.last_error = Errors(answer.error_code)
            if answer.error_code == Errors.NONE and answer.producer_id >= 0:
                memory.producer_id, memory.producer_epoch = answer.producer_id, answer.producer_epoch
        elif kind == "ProduceResponse":
            memory.last_error = Errors(answer.responses[0].partition_responses[0].error_code)
            if memory.last_error is Errors.NONE and memory.writing is not None:
                key, sequence = memory.writing
                memory.sequences[key] = sequence + 1
        else:
            super().learn(memory, answer)


def _isolation(line: Line) -> int:
    return int(line.options.get("isolation") == "committed")
