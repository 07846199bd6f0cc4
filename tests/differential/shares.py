"""Lines of conversations for members of share groups, in addition to those of the other protocols.

    share WHO [group=g] [member=M] [epoch=E] [reads=TOPIC,...] [rack=ID] [full=yes]     ShareGroupHeartbeat
    take WHO [PARTITIONS] [v=2] [session=N] [acks=ACKS] [drop=PARTITIONS] [most=N] [chunk=N] [wait=MS] [min=N]
             [bytes=N] [limit=yes] [renew=yes]                      ShareFetch
    ack WHO ACKS [v=2] [session=N] [renew=yes]                      ShareAcknowledge
    fill WHO PARTITION COUNT                                        Produce: one batch of COUNT records
    crowd WHO g,h [operations=yes]                                  ShareGroupDescribe
    stand WHO g,h [PARTITIONS] [v=1]                                DescribeShareGroupOffsets; default: all
    move WHO PARTITION:OFFSET,... [group=g]                         AlterShareGroupOffsets
    quit WHO TOPIC,... [group=g]                                    DeleteShareGroupOffsets
    written shares                                                  new records of `__share_group_state`

The default member id is WHO; `-` is the empty id. Member epochs and session epochs are numbers, `next` or
`last`. A share session starts with epoch 0, increments it after each response, and ends with -1. ACKS are
`orders-0:0-4:accept`, `orders-0:7:release`, `orders-0:0-2:accept+gap+reject`, separated by commas; types may
be numbers. `zero-0` is a partition of the zero topic id.

After a heartbeat the coordinator may still initialize the states of share partitions; the conversation
continues when they are initialized.
"""

from __future__ import annotations

import time
from typing import Any

from tests.differential.language import Line, Memory, partitions, text
from tests.differential.transactions import TransactionsSpeaker

from konvene.codec import batches
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import share_acknowledge, share_fetch
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from konvene.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SHARE_VERBS = ("share", "take", "ack", "fill", "crowd", "stand", "move", "quit")
"""Verbs whose request always gets one response."""

TYPES = {"gap": 0, "accept": 1, "release": 2, "reject": 3, "renew": 4}
RECORD_LIMIT = 1
"""Acquire mode `record_limit`: acquire at most `max_records` (KIP-1206)."""

WAIT_MS = 400
Acks = dict[tuple[str, int], list[dict[str, Any]]]


class ShareSpeaker(TransactionsSpeaker):
    """Builds requests from the lines of all protocols."""

    def _share(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        member_id = self._member_id(memory, line)
        epoch = self._epoch(memory, o.get("epoch"))
        full = o.get("full") == "yes" or epoch == 0
        if "reads" in o:
            memory.reads = None if o["reads"] == "-" else tuple(filter(None, o["reads"].split(",")))
        names = memory.reads if full or "reads" in o else None
        return ShareGroupHeartbeatRequest(
            group_id=self._members_group(memory, line),
            member_id=member_id,
            member_epoch=epoch,
            rack_id=text(o["rack"]) if "rack" in o else None,
            subscribed_topic_names=None if names is None else tuple(self.topic(n) for n in names),
        )

    def _member_id(self, memory: Memory, line: Line) -> str:
        """Return the member id of a request; `member=` overrides it for this request only."""
        own = f"!{line.client.partition('/')[0]}"
        memory.member_id = memory.member_id or self._member(memory, own)
        return self._member(memory, line.options.get("member"))

    def _session(self, memory: Memory, line: Line) -> int:
        word = line.options.get("session")
        if word is not None:
            memory.requested_session = (
                memory.session + {"next": 1, "last": -1}[word] if word.isalpha() else int(word)
            )
        else:
            memory.requested_session = memory.session
        return memory.requested_session

    def _take(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        wanted = dict.fromkeys(_pairs(line.plain[0])) if line.plain else {}
        acks = _acks(o.get("acks", ""))
        by_topic: dict[str, list[share_fetch.FetchPartition]] = {}
        for name, partition in [*wanted, *(pair for pair in acks if pair not in wanted)]:
            acknowledged = tuple(
                share_fetch.AcknowledgementBatch(**ack) for ack in acks.get((name, partition), ())
            )
            by_topic.setdefault(name, []).append(
                share_fetch.FetchPartition(partition_index=partition, acknowledgement_batches=acknowledged)
            )
        renews = o.get("renew") == "yes"
        return share_fetch.ShareFetchRequest(
            group_id=self._members_group(memory, line),
            member_id=self._member_id(memory, line),
            share_session_epoch=self._session(memory, line),
            max_wait_ms=int(o.get("wait", 0 if renews else WAIT_MS)),
            min_bytes=int(o.get("min", 0 if renews else 1)),
            max_bytes=int(o.get("bytes", 0 if renews else 1_000_000)),
            max_records=int(o.get("most", 0 if renews else 500)),
            batch_size=int(o.get("chunk", 500)),
            share_acquire_mode=RECORD_LIMIT if o.get("limit") == "yes" and line.version >= 2 else 0,
            is_renew_ack=renews and line.version >= 2,
            topics=tuple(
                share_fetch.FetchTopic(topic_id=self._id(name), partitions=tuple(some))
                for name, some in by_topic.items()
            ),
            forgotten_topics_data=tuple(
                share_fetch.ForgottenTopic(topic_id=self._id(name), partitions=tuple(some))
                for name, some in (partitions(o["drop"]) if "drop" in o else {}).items()
            ),
        )

    def _ack(self, memory: Memory, line: Line) -> Struct:
        by_topic: dict[str, list[share_acknowledge.AcknowledgePartition]] = {}
        for (name, partition), acks in (_acks(line.plain[0]) if line.plain else {}).items():
            by_topic.setdefault(name, []).append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=partition,
                    acknowledgement_batches=tuple(
                        share_acknowledge.AcknowledgementBatch(**ack) for ack in acks
                    ),
                )
            )
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._members_group(memory, line),
            member_id=self._member_id(memory, line),
            share_session_epoch=self._session(memory, line),
            is_renew_ack=line.options.get("renew") == "yes" and line.version >= 2,
            topics=tuple(
                share_acknowledge.AcknowledgeTopic(topic_id=self._id(name), partitions=tuple(some))
                for name, some in by_topic.items()
            ),
        )

    def _id(self, name: str) -> Uuid:
        found: Uuid = self._named(name, 10)["topic_id"]
        return found

    def _fill(self, memory: Memory, line: Line) -> Struct:
        name, _, partition = line.plain[0].rpartition("-")
        now_ms = time.time_ns() // 1_000_000
        values = [f"{line.client}{n}".encode() for n in range(int(line.plain[1]))]
        batch = batches.build([batches.Record(n, now_ms, None, value) for n, value in enumerate(values)])
        data = (PartitionProduceData(index=int(partition), records=batch),)
        topic = TopicProduceData(topic_id=self._id(name), partition_data=data)
        return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))

    def _crowd(self, memory: Memory, line: Line) -> Struct:
        requested = line.options.get("operations") == "yes"
        return ShareGroupDescribeRequest(
            group_ids=tuple(self.group(g) for g in line.plain[0].split(",")),
            include_authorized_operations=requested,
        )

    def _stand(self, memory: Memory, line: Line) -> Struct:
        requested = None
        if len(line.plain) > 1:
            requested = tuple(
                DescribeShareGroupOffsetsRequestTopic(topic_name=self.topic(n), partitions=tuple(p))
                for n, p in partitions(line.plain[1]).items()
            )
        return DescribeShareGroupOffsetsRequest(
            groups=tuple(
                DescribeShareGroupOffsetsRequestGroup(group_id=self.group(g), topics=requested)
                for g in line.plain[0].split(",")
            )
        )

    def _move(self, memory: Memory, line: Line) -> Struct:
        by_topic: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for word in line.plain[0].split(","):
            where, _, offset = word.partition(":")
            name, _, partition = where.rpartition("-")
            by_topic.setdefault(name, []).append(
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=int(partition), start_offset=int(offset)
                )
            )
        return AlterShareGroupOffsetsRequest(
            group_id=self.group(line.options.get("group", "g")),
            topics=tuple(
                AlterShareGroupOffsetsRequestTopic(topic_name=self.topic(n), partitions=tuple(p))
                for n, p in by_topic.items()
            ),
        )

    def _quit(self, memory: Memory, line: Line) -> Struct:
        return DeleteShareGroupOffsetsRequest(
            group_id=self.group(line.options.get("group", "g")),
            topics=tuple(
                DeleteShareGroupOffsetsRequestTopic(topic_name=self.topic(n))
                for n in line.plain[0].split(",")
            ),
        )

    def learn(self, memory: Memory, answer: Any) -> None:
        """Update the client's memory from a response."""
        kind = type(answer).__name__
        if kind == "ShareGroupHeartbeatResponse":
            memory.last = ("ShareGroupHeartbeat", Errors(answer.error_code))
            if answer.error_code == Errors.NONE:
                memory.generation = answer.member_epoch
            if answer.assignment is not None:
                memory.assigned = {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}
        elif kind in ("ShareFetchResponse", "ShareAcknowledgeResponse"):
            memory.last_error = Errors(answer.error_code)
            if answer.error_code == Errors.NONE:
                memory.session = memory.requested_session + 1
            elif answer.error_code in (Errors.SHARE_SESSION_NOT_FOUND, Errors.INVALID_SHARE_SESSION_EPOCH):
                memory.session = 0
            if kind == "ShareFetchResponse":
                for topic in answer.responses:
                    for p in topic.partitions:
                        held = [(a.first_offset, a.last_offset) for a in p.acquired_records]
                        memory.held.setdefault((topic.topic_id, p.partition_index), []).extend(held)
        else:
            super().learn(memory, answer)


def _pairs(word: str) -> list[tuple[str, int]]:
    return [(name, p) for name, some in partitions(word).items() for p in some]


def _acks(word: str) -> Acks:
    """Parse ACKS into acknowledgement batches by partition."""
    found: Acks = {}
    for ack in filter(None, word.split(",")):
        topic_partition, offsets, types = ack.split(":")
        name, _, partition = topic_partition.rpartition("-")
        first, _, last = offsets.partition("-")
        acknowledge_types = tuple(TYPES[t] if t in TYPES else int(t) for t in types.split("+") if t != "none")
        found.setdefault((name, int(partition)), []).append(
            {
                "first_offset": int(first),
                "last_offset": int(last or first),
                "acknowledge_types": acknowledge_types,
            }
        )
    return found
