"""Answers as text: every field of their version, with names in place of what is random.

Member ids end in `#1`, `#2` in the order in which they were first told; ids of topics are the topics' names;
what stands in the order of a hash map in Kafka is sorted. Throttle times are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.differential import consumers

from konvene.codec import batches
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors

RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MADE = re.compile(r"[A-Za-z0-9_-]{22}")
"""The ids that consumer groups give: Kafka writes them as it writes those of topics."""
MISSING = re.compile(r"(?<=Internal topics are missing: )[^;]*")
"""Kafka tells them as a hash map has them."""

LONG = 200
LEFT_OUT = {
    "throttle_time_ms", "current_state_timestamp", "commit_timestamp", "transaction_start_time_ms",
    "last_timestamp", "transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms",
    "create_timestamp", "write_timestamp",
}  # fmt: skip
LEFT_OUT_OF = {
    ("ConsumerGroupRegularExpressionValue", "version"), ("ConsumerGroupRegularExpressionValue", "timestamp"),
    ("StreamsGroupMemberMetadataValue", "classic_member_metadata"),
}  # fmt: skip
UNORDERED = {
    ("ConsumerGroupDescribeResponse", "groups"), ("JoinGroupResponse", "members"),
    ("DescribedGroup", "members"), ("ListGroupsResponse", "groups"),
    ("OffsetFetchResponse", "topics"), ("OffsetFetchResponseGroup", "topics"),
    ("OffsetFetchResponseTopics", "partitions"), ("OffsetFetchResponseTopic", "partitions"),
    ("DeleteGroupsResponse", "results"), ("OffsetCommitResponse", "topics"),
    ("OffsetCommitResponseTopic", "partitions"), ("OffsetDeleteResponse", "topics"),
    ("OffsetDeleteResponseTopic", "partitions"), ("Assignment", "topic_partitions"),
    ("TopicPartitions", "partitions"), ("Member", "subscribed_topic_names"),
    ("ConsumerProtocolAssignment", "assigned_partitions"),
    ("ConsumerProtocolSubscription", "owned_partitions"),
    ("ConsumerProtocolAssignmentTopicPartition", "partitions"), ("GroupMetadataValue", "members"),
    ("ConsumerGroupTargetAssignmentMemberValue", "topic_partitions"), ("TopicPartition", "partitions"),
    ("ConsumerGroupCurrentMemberAssignmentValue", "assigned_partitions"),
    ("ConsumerGroupCurrentMemberAssignmentValue", "partitions_pending_revocation"),
    ("ConsumerGroupRegularExpressionValue", "topics"),
    ("ConsumerGroupMemberMetadataValue", "subscribed_topic_names"),
    ("StreamsGroupDescribeResponse", "groups"), ("StreamsGroupHeartbeatResponse", "active_tasks"),
    ("StreamsGroupHeartbeatResponse", "standby_tasks"), ("StreamsGroupHeartbeatResponse", "warmup_tasks"),
    ("StreamsGroupHeartbeatResponse", "partitions_by_user_endpoint"),
    ("EndpointToPartitions", "active_partitions"), ("EndpointToPartitions", "standby_partitions"),
    ("Assignment", "active_tasks"), ("Assignment", "standby_tasks"), ("Assignment", "warmup_tasks"),
    ("Member", "client_tags"), ("Member", "task_offsets"), ("Member", "task_end_offsets"),
    ("TopicInfo", "topic_configs"), ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"),
    ("AddPartitionsToTxnResult", "topic_results"), ("AddPartitionsToTxnTopicResult", "results_by_partition"),
    ("TxnOffsetCommitResponse", "topics"), ("TxnOffsetCommitResponseTopic", "partitions"),
    ("ListTransactionsResponse", "transaction_states"), ("TransactionState", "topics"),
    ("TopicData", "partitions"), ("TransactionLogValue", "transaction_partitions"),
    ("PartitionsSchema", "partition_ids"), ("PartitionResponse", "active_producers"),
    ("WritableTxnMarkerResult", "topics"), ("WritableTxnMarkerTopicResult", "partitions"),
    ("DescribeProducersResponse", "topics"), ("TopicResponse", "partitions"),
    ("ListOffsetsResponse", "topics"), ("ListOffsetsTopicResponse", "partitions"),
    ("DescribeTransactionsResponse", "transaction_states"), ("PartitionData", "aborted_transactions"),
    ("ShareFetchResponse", "responses"), ("ShareFetchableTopicResponse", "partitions"),
    ("ShareAcknowledgeResponse", "responses"), ("ShareAcknowledgeTopicResponse", "partitions"),
    ("ShareGroupDescribeResponse", "groups"), ("DescribeShareGroupOffsetsResponse", "groups"),
    ("DescribeShareGroupOffsetsResponseGroup", "topics"),
    ("DescribeShareGroupOffsetsResponseTopic", "partitions"), ("AlterShareGroupOffsetsResponse", "responses"),
    ("AlterShareGroupOffsetsResponseTopic", "partitions"), ("DeleteShareGroupOffsetsResponse", "responses"),
    ("ShareGroupStatePartitionMetadataValue", "initializing_topics"),
    ("ShareGroupStatePartitionMetadataValue", "initialized_topics"),
    ("ShareGroupStatePartitionMetadataValue", "deleting_topics"), ("TopicPartitionsInfo", "partitions"),
    ("ShareGroupMemberMetadataValue", "subscribed_topic_names"),
    ("ShareGroupTargetAssignmentMemberValue", "topic_partitions"),
    ("ShareGroupCurrentMemberAssignmentValue", "assigned_partitions"),
}  # fmt: skip
"""Lists whose order is nobody's promise."""

READ: dict[str, Callable[[bytes], Any]] = {
    "assignment": consumers.assignment, "member_assignment": consumers.assignment,
    "metadata": consumers.subscription, "member_metadata": consumers.subscription,
    "subscription": consumers.subscription,
}  # fmt: skip
"""Fields whose bytes may be a structure of clients."""


@dataclass
class Reader:
    """Tells answers of one conversation."""

    tag: str
    port: int
    topic_names: dict[Uuid, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    hashes: dict[int, int] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    """Producer ids are given out for all conversations together; a conversation numbers its own."""
    coordinators: dict[int, int] = field(default_factory=dict)
    """Epochs of coordinators rise, by one or two; a conversation numbers them, too."""
    leaders: dict[int, int] = field(default_factory=dict)
    """So do epochs of leaders."""
    stable: int = 0
    """Up to where a fetch may go. Kafka names aborted transactions to the end of a segment."""

    def meet(self, answer: Struct) -> None:
        """Number the member id that an answer is addressed to, before all others in it."""
        member_id = getattr(answer, "member_id", None) or ""
        for found in RANDOM.findall(member_id) or MADE.findall(member_id):
            self.numbers.setdefault(found, len(self.numbers) + 1)

    def render(self, answer: Struct, version: int) -> str:
        name = type(answer).__name__.removesuffix("Response")
        return f"{name} v{version} " + self.named(self.struct(answer, version)[1:-1])

    def named(self, rendered: str) -> str:
        def number(found: re.Match[str]) -> str:
            return f"#{self.numbers.setdefault(found[0], len(self.numbers) + 1)}"

        for met, known in self.numbers.items():
            rendered = rendered.replace(met, f"#{known}")
        return RANDOM.sub(number, rendered)

    def struct(self, value: Struct, version: int) -> str:
        self.stable = getattr(value, "last_stable_offset", self.stable)
        if getattr(value, "assignment_epochs", None):
            value = _in_order(value)
        parts = []
        for f in type(value).__fields__:
            if (
                version not in f.versions
                or f.name in LEFT_OUT
                or (type(value).__name__, f.name) in LEFT_OUT_OF
            ):
                continue
            content: Any = getattr(value, f.name)
            if f.name in ("error_code", "partition_error_code", "acknowledge_error_code"):
                parts.append(Errors(content).name)
                continue
            if isinstance(content, tuple):
                text_ = "[" + ", ".join(self._list(type(value).__name__, f.name, content, version)) + "]"
            else:
                text_ = self._value(f.name, content, version)
            parts.append(f"{f.name}={text_}")
        return "{" + " ".join(parts) + "}"

    def _list(self, owner: str, name: str, content: tuple[Any, ...], version: int) -> list[str]:
        if (owner, name) == ("ListGroupsResponse", "groups"):
            content = tuple(g for g in content if g.group_id.startswith(self.tag))
        if name == "aborted_transactions":
            content = tuple(t for t in content if t.first_offset < self.stable)
        if owner == "ShareGroupTargetAssignmentMemberValue":
            content = tuple(
                t for t in content if t.partitions
            )  # Kafka keeps topics of which nothing is left.
        if (owner, name) == ("ListTransactionsResponse", "transaction_states"):
            content = tuple(t for t in content if t.transactional_id.startswith(self.tag))
        rendered = [self._value(name, c, version) for c in content]
        return sorted(rendered, key=self.rank) if (owner, name) in UNORDERED else rendered

    def rank(self, rendered: str) -> str:
        """By what does not depend on chance: ids count by their numbers, those not yet met last."""

        def known(found: re.Match[str]) -> str:
            return f"{self.numbers.get(found[0], 9999):04}"

        for met, number in self.numbers.items():
            rendered = rendered.replace(met, f"{number:04}")
        return RANDOM.sub(known, rendered)

    def producer(self, producer_id: int) -> str:
        return f"p{self.producers.setdefault(producer_id, len(self.producers) + 1)}"

    def coordinator(self, epoch: int) -> str:
        return f"c{self.coordinators.setdefault(epoch, len(self.coordinators) + 1)}"

    def batch(self, data: bytes) -> str:
        """A batch of a topic: where it is, whose it is, and what it says."""
        header = batches.read_header(data)
        if header.is_control:
            marker = batches.read_end_marker(batches.records(data)[0])
            assert marker is not None
            end = "commit" if marker.committed else "abort"
            whose = f"{self.producer(header.producer_id)}/{header.producer_epoch}"
            return f"{header.base_offset} {end} of {whose} by {self.coordinator(marker.coordinator_epoch)}"
        text_ = ",".join((r.value or b"").decode() for r in batches.records(data))
        if not header.has_producer_id:
            return f"{header.base_offset} {text_!r}"
        whose = f"{self.producer(header.producer_id)}/{header.producer_epoch}/{header.base_sequence}"
        return (
            f"{header.base_offset} {text_!r} in {whose}"
            if header.is_transactional
            else f"{text_!r} of {whose}"
        )

    def _value(self, name: str, content: Any, version: int) -> str:
        if isinstance(content, Struct):
            return self.struct(content, version)
        if content is None:
            return "null"
        if isinstance(content, bool):
            return "yes" if content else "no"
        if name == "metadata_hash" and content:
            return f"hash-{self.hashes.setdefault(content, len(self.hashes) + 1)}"
        if name in ("assignment_timestamp", "expire_timestamp", "log_append_time_ms") and content > 0:
            return "TIME"
        if name.endswith("producer_id") and content >= 0:
            return self.producer(content)
        if name == "coordinator_epoch" and content >= 0:
            return self.coordinator(content)
        if name == "leader_epoch" and content > 0:
            return f"l{self.leaders.setdefault(content, len(self.leaders) + 1)}"
        if isinstance(content, int):
            return "PORT" if name == "port" and content == self.port else str(content)
        if name == "records":
            return "; ".join(self.batch(bytes(whole)) for _, whole in batches.batches(content)) or "nothing"
        if name == "topic_id":
            return self.topic_names.get(Uuid(content), str(Uuid(content)))
        rendered = READ[name](content) if name in READ and isinstance(content, bytes) else None
        if rendered is not None:
            return self.struct(rendered, int.from_bytes(content[:2], "big")).replace(self.tag, "")
        text_ = content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else str(content)
        text_ = text_.replace(self.tag, "")
        if name == "status_detail":
            text_ = MISSING.sub(_sorted, text_)
        if len(text_) > LONG:
            text_ = f"{text_[:20]}..{text_[-40:]}({len(text_)})"
        return repr(text_)


def _in_order(value: Any) -> Struct:
    """Partitions and their epochs belong together."""
    partitions, epochs = zip(
        *sorted(zip(value.partitions, value.assignment_epochs, strict=True)), strict=True
    )
    ordered: Struct = value.replace(partitions=partitions, assignment_epochs=epochs)
    return ordered


def _sorted(listed: re.Match[str]) -> str:
    return ", ".join(sorted(listed[0].split(", ")))
