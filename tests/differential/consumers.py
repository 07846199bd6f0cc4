"""What members of consumer groups say, beside the lines of `language.py`, and what they remember.

    beat WHO [v=1] [group=g] [static=ID] [member=M] [epoch=E] [rebalance=MS] [reads=TOPIC,...] [regex=RE]
             [own=PARTITIONS] [assignor=NAME] [rack=ID] [full=yes]
    picture WHO g,h [v=1] [operations=yes]                          ConsumerGroupDescribe
    join WHO ... reads=TOPIC,... [own=PARTITIONS] [sub=VERSION]     a classic member with a real subscription
    sync WHO ... assign=deal|WHO@TOPIC-P+TOPIC-P[|DATA],...        real assignments; `deal` deals `orders` out
    config g NAME=VALUE ...                                         settings of a group
    grow TOPIC PARTITIONS                                           a topic has more of them
    written                                                         what is new in the log (`written.py`)

A member's own id is WHO unless it says otherwise; `-` is none. Epochs are numbers, `next` or `last`; who is
not in a group joins, reads `orders` and has 30 s to revoke. Whatever is not named is left out, as clients do
that have nothing new to say; `full=yes` says all of it again. PARTITIONS are `orders-0,orders-1`, `all` that
it was told, `none`, or `-` for nothing said. An expression has the conversation's own prefix before it.

Kafka takes members as its hash map has them. Where that decides who gets what, ids of one letter are used:
they stand in the order of the alphabet with both.
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
DEALT = ("orders", 6)
"""What a leader deals out, one after another, to those whom it leads."""


class ConsumerSpeaker(Speaker):
    """Makes requests of the lines of both protocols."""

    def _beat(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        if "static" in o:
            memory.instance = None if o["static"] == "-" else text(o["static"])
        if "member" in o or not memory.member_id:
            memory.member_id = self._member(memory, o.get("member", f"!{line.who.partition('/')[0]}"))
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
            topic_partitions=self._said(memory, o.get("own", own)),
        )

    def _epoch(self, memory: Memory, word: str | None) -> int:
        epoch = max(memory.generation, 0)
        if word is None:
            return epoch
        return epoch + {"next": 1, "last": -1}[word] if word.isalpha() else int(word)

    def _said(self, memory: Memory, word: str) -> tuple[TopicPartitions, ...] | None:
        if word == "-":
            return None
        return tuple(TopicPartitions(topic_id=t, partitions=p) for t, p in self.owned(memory, word).items())

    def owned(self, memory: Memory, word: str) -> dict[Uuid, tuple[int, ...]]:
        """The partitions that a word names."""
        if word == "all":
            return memory.assigned
        named = {} if word == "none" else partitions(word)
        return {self._named(name, 10)["topic_id"]: tuple(some) for name, some in named.items()}

    def _picture(self, memory: Memory, line: Line) -> Struct:
        asked = line.options.get("operations") == "yes"
        return ConsumerGroupDescribeRequest(
            group_ids=self._named_groups(line), include_authorized_operations=asked
        )

    # --- classic members who are consumers ---

    def _metadata(self, memory: Memory, line: Line, said: str) -> bytes:
        o = line.options
        if "reads" not in o:
            return super()._metadata(memory, line, said)
        version = int(o.get("sub", 1))
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        owned = self.owned(memory, o.get("own", "none"))
        told = ConsumerProtocolSubscription(
            topics=tuple(self.topic(n) for n in o["reads"].split(",")),
            owned_partitions=tuple(
                TopicPartition(topic=names[t], partitions=p) for t, p in owned.items() if version
            ),
            generation_id=memory.generation if version >= 2 else -1,
        )
        return version.to_bytes(2, "big") + encode(told, version)

    def _given(self, memory: Memory, assign: str) -> dict[str, bytes]:
        if assign == "deal":
            topic, count = DEALT
            places = {m: range(i, count, len(memory.led)) for i, m in enumerate(memory.led)}
            return {m: self._assignment({topic: list(p)}, b"") for m, p in places.items()}
        if "@" not in assign:
            return super()._given(memory, assign)
        given = {}
        for word in assign.split(","):
            who, _, rest = word.partition("@")
            where, _, data = rest.partition("|")
            named = partitions(where.replace("+", ",")) if where else {}
            given[self._member(memory, who)] = self._assignment(named, text(data).encode())
        return given

    def _assignment(self, named: dict[str, list[int]], data: bytes) -> bytes:
        told = ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                ConsumerProtocolAssignmentTopicPartition(topic=self.topic(n), partitions=tuple(p))
                for n, p in named.items()
            ),
            user_data=data or None,
        )
        return b"\0\1" + encode(told, 1)

    # --- what is heard ---

    def learn(self, memory: Memory, answer: Any) -> None:
        """Remember what a consumer was told."""
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
            told = assignment(answer.assignment)
            if told is not None:
                memory.assigned = {
                    self.topic_ids[t.topic]: t.partitions
                    for t in told.assigned_partitions
                    if t.topic in self.topic_ids
                }


def assignment(content: bytes) -> Any:
    """An assignment of the classic consumer protocol, or None."""
    return _whole(ConsumerProtocolAssignment, content)


def subscription(content: bytes) -> Any:
    """A subscription of the classic consumer protocol, or None."""
    return _whole(ConsumerProtocolSubscription, content)


def _whole(kind: type[Struct], content: bytes) -> Any:
    version = int.from_bytes(content[:2], "big") if len(content) > 2 else 99
    if version > 3:
        return None
    try:
        told, end = decode_from(kind, version, content, 2)
    except Exception:
        return None
    return told if end == len(content) else None
