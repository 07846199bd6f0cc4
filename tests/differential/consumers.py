"""Lines of conversations for members of consumer groups, in addition to those of `language.py`.

    beat WHO [v=1] [group=g] [static=ID] [member=M] [epoch=E] [rebalance=MS] [reads=TOPIC,...] [regex=RE]
             [own=PARTITIONS] [assignor=NAME] [rack=ID] [full=yes]
    picture WHO g,h [v=1] [operations=yes]                          ConsumerGroupDescribe
    join WHO ... reads=TOPIC,... [own=PARTITIONS] [sub=VERSION]     a classic member with a real subscription
    sync WHO ... assign=deal|WHO@TOPIC-P+TOPIC-P[|DATA],...        real assignments; `deal` deals `orders` out
    config g NAME=VALUE ...                                         alter configs of a group
    grow TOPIC PARTITIONS                                           add partitions to a topic
    written                                                         read new internal records (`written.py`)

The default member id is WHO; `-` is the empty id. Epochs are numbers, `next` or `last`. A member outside the
group joins with a subscription to `orders` and a rebalance timeout of 30 s. Fields without an option are
null, as in the heartbeats of a client whose state is unchanged; `full=yes` sends all fields. PARTITIONS are
`orders-0,orders-1`, `all` (the received assignment), `none`, or `-` for null. A regular expression is
prefixed with the tag of the conversation.

Kafka iterates over members in hash-map order. Conversations in which that order decides the assignment use
member ids of one letter: their hash-map order is alphabetical, as in konvene.
"""

from __future__ import annotations

from typing import Any

from tests.differential.language import Line, Memory, Speaker, partitions, text

from konvene.codec.compile import decode_from, encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)

REBALANCE_MS = 30_000
ROUND_ROBIN = ("orders", 6)
"""Topic and number of partitions that a leader assigns round robin to the members."""


class ConsumerSpeaker(Speaker):
    """Builds requests from the lines of the classic and the consumer protocol."""

    def _beat(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        if "static" in o:
            memory.instance = None if o["static"] == "-" else text(o["static"])
        if "member" in o or not memory.member_id:
            memory.member_id = self._member(memory, o.get("member", f"!{line.client.partition('/')[0]}"))
        epoch = self._epoch(memory, o.get("epoch"))
        full = o.get("full") == "yes" or epoch == 0
        if "reads" in o:
            memory.reads = None if o["reads"] == "-" else tuple(filter(None, o["reads"].split(",")))
        elif "regex" in o and epoch == 0:
            memory.reads = None
        if "regex" in o:
            memory.regex = {"-": None, "": ""}.get(o["regex"], self.tag + text(o["regex"]))
        own = "none" if epoch == 0 else "all" if full else "-"
        rebalance = int(o.get("rebalance", REBALANCE_MS if full else -1))
        names = memory.reads if full or "reads" in o else None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._members_group(memory, line),
            member_id=memory.member_id,
            member_epoch=epoch,
            instance_id=memory.instance,
            rack_id=text(o["rack"]) if "rack" in o else None,
            rebalance_timeout_ms=rebalance,
            subscribed_topic_names=None if names is None else tuple(self.topic(n) for n in names),
            subscribed_topic_regex=memory.regex if line.version and (full or "regex" in o) else None,
            server_assignor=text(o["assignor"]) if "assignor" in o else None,
            topic_partitions=self._topic_partitions(memory, o.get("own", own)),
        )

    def _epoch(self, memory: Memory, word: str | None) -> int:
        epoch = max(memory.generation, 0)
        if word is None:
            return epoch
        return epoch + {"next": 1, "last": -1}[word] if word.isalpha() else int(word)

    def _topic_partitions(self, memory: Memory, word: str) -> tuple[TopicPartitions, ...] | None:
        if word == "-":
            return None
        return tuple(TopicPartitions(topic_id=t, partitions=p) for t, p in self.owned(memory, word).items())

    def owned(self, memory: Memory, word: str) -> dict[Uuid, tuple[int, ...]]:
        """Return the partitions, by topic id, that an option such as `all` or `orders-0` names."""
        if word == "all":
            return memory.assigned
        named = {} if word == "none" else partitions(word)
        return {self._named(name, 10)["topic_id"]: tuple(some) for name, some in named.items()}

    def _picture(self, memory: Memory, line: Line) -> Struct:
        with_operations = line.options.get("operations") == "yes"
        return ConsumerGroupDescribeRequest(
            group_ids=self._named_groups(line), include_authorized_operations=with_operations
        )

    # --- classic members with the consumer protocol ---

    def _metadata(self, memory: Memory, line: Line, quoted: str) -> bytes:
        o = line.options
        if "reads" not in o:
            return super()._metadata(memory, line, quoted)
        version = int(o.get("sub", 1))
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        owned = self.owned(memory, o.get("own", "none"))
        subscribed = ConsumerProtocolSubscription(
            topics=tuple(self.topic(n) for n in o["reads"].split(",")),
            owned_partitions=tuple(
                TopicPartition(topic=names[t], partitions=p) for t, p in owned.items() if version
            ),
            generation_id=memory.generation if version >= 2 else -1,
        )
        return version.to_bytes(2, "big") + encode(subscribed, version)

    def _given(self, memory: Memory, assign: str) -> dict[str, bytes]:
        if assign == "deal":
            topic, count = ROUND_ROBIN
            dealt = {m: range(i, count, len(memory.led)) for i, m in enumerate(memory.led)}
            return {m: self._assignment({topic: list(p)}, b"") for m, p in dealt.items()}
        if "@" not in assign:
            return super()._given(memory, assign)
        given = {}
        for word in assign.split(","):
            client, _, rest = word.partition("@")
            where, _, data = rest.partition("|")
            named = partitions(where.replace("+", ",")) if where else {}
            given[self._member(memory, client)] = self._assignment(named, text(data).encode())
        return given

    def _assignment(self, named: dict[str, list[int]], data: bytes) -> bytes:
        assigned = ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                ConsumerProtocolAssignmentTopicPartition(topic=self.topic(n), partitions=tuple(p))
                for n, p in named.items()
            ),
            user_data=data or None,
        )
        return b"\0\1" + encode(assigned, 1)

    # --- responses ---

    def learn(self, memory: Memory, answer: Any) -> None:
        """Update the client's memory from a response."""
        kind = type(answer).__name__
        if kind == "ConsumerGroupHeartbeatResponse":
            memory.last = ("ConsumerGroupHeartbeat", Errors(answer.error_code))
            if answer.error_code == Errors.NONE:
                memory.member_id, memory.generation = answer.member_id, answer.member_epoch
            if answer.assignment is not None:
                memory.assigned = {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}
        if kind == "ListGroupsResponse":
            memory.kinds = {
                g.group_id.removeprefix(self.tag): f"{g.group_type} {g.group_state}" for g in answer.groups
            }
        if kind == "SyncGroupResponse" and answer.error_code == Errors.NONE:
            assigned = assignment(answer.assignment)
            if assigned is not None:
                memory.assigned = {
                    self.topic_ids[t.topic]: t.partitions
                    for t in assigned.assigned_partitions
                    if t.topic in self.topic_ids
                }


def assignment(content: bytes) -> Any:
    """Decode an assignment of the classic consumer protocol; return None if `content` is not one."""
    return _decode_all(ConsumerProtocolAssignment, content)


def subscription(content: bytes) -> Any:
    """Decode a subscription of the classic consumer protocol; return None if `content` is not one."""
    return _decode_all(ConsumerProtocolSubscription, content)


def _decode_all(kind: type[Struct], content: bytes) -> Any:
    version = int.from_bytes(content[:2], "big") if len(content) > 2 else 99
    if version > 3:
        return None
    try:
        structure, end = decode_from(kind, version, content, 2)
    except Exception:
        return None
    return structure if end == len(content) else None
