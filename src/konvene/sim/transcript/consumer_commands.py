"""Commands of scenarios about consumer groups: heartbeats, descriptions, and work that is done elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from konvene.codec.compile import encode
from konvene.codec.uuid import Uuid
from konvene.groups.assignors import PartitionAssignorError
from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.consumer.regex import matching
from konvene.groups.consumer.work import (
    COMPUTE_ASSIGNMENT,
    RESOLVE_REGEXES,
    AssignmentComputed,
    RegexesResolved,
    RegexesToResolve,
)
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.sim.transcript.vocabulary import (
    NONE,
    Client,
    Options,
    ScenarioError,
    instance,
    name_or_none,
    number,
    ranges,
)
from konvene.sim.world.faults import SECRET

if TYPE_CHECKING:
    from konvene.sim.transcript.scenario import Scenario

EPOCHS = {"join": 0, "stay": None, "leave": -1, "away": -2}
"""What a member does, and at which epoch; when it stays it is at its own."""

TOLD = "told"
"""As what a member owns: what it was told last to have."""

UNSAID = "unsaid"
"""As what a member reads or owns: it says nothing of that, also where it joins."""


def consumer_heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    """`consumer-heartbeat WHO [join|stay|leave|away]`."""
    client, does = s.client(plain[0]), plain[1] if len(plain) > 1 else "stay"
    if does not in EPOCHS:
        raise ScenarioError(f"expected one of {', '.join(EPOCHS)}, not {does!r}", "")
    client.group = o.get("group", client.group)
    client.instance, client.assigned = instance(client, o), True
    joins, version = does == "join", number(o, "version", 1)
    epoch = EPOCHS[does]
    names = o.get("topics", "orders" if joins and "regex" not in o else None)
    request = ConsumerGroupHeartbeatRequest(
        group_id=client.group,
        member_id=_member(s, client, o, version),
        member_epoch=number(o, "epoch", client.generation if epoch is None else epoch),
        instance_id=client.instance,
        rack_id=unquote(o["rack"]) if "rack" in o else None,
        rebalance_timeout_ms=number(o, "rebalance", 30_000 if joins else -1),
        subscribed_topic_names=None
        if names in (None, UNSAID)
        else tuple(n for n in names.split(",") if n != NONE),
        subscribed_topic_regex=name_or_none(o["regex"]) if "regex" in o else None,
        server_assignor=unquote(o["assignor"]) if "assignor" in o else None,
        topic_partitions=_owned(s, client, o.get("owns", NONE if joins else None)),
    )
    s.ask(client.name, request, o, 1)


def _member(s: Scenario, client: Client, o: Options, version: int) -> str:
    """The client's id. From version 1 on it makes one by itself, and anew if it is to be `new`."""
    told = o.get("member")
    if told is not None and told != "new":
        return name_or_none(told)
    if version and (told == "new" or not client.member_id):
        client.member_id = s.life.own_id(client.name)
    return client.member_id


def _owned(s: Scenario, client: Client, text: str | None) -> tuple[TopicPartitions, ...] | None:
    if text in (None, UNSAID):
        return None
    owned: dict[Uuid, tuple[int, ...]] = {}
    if text == TOLD:
        owned = client.has
    elif text != NONE:
        owned = {_id(s, topic): some for topic, some in ranges(text)}
    return tuple(TopicPartitions(topic_id=topic, partitions=some) for topic, some in owned.items())


def _id(s: Scenario, topic: str) -> Uuid:
    """The id of a topic by its name; behind an `@` what the id says, whether or not there is such a topic."""
    return s.topic_id(topic[1:]) if topic.startswith("@") else s.id_of(topic)


def consumer_describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", ConsumerGroupDescribeRequest(group_ids=(plain[0],)), o, 1)


def work(s: Scenario, plain: list[str], o: Options) -> None:
    """All work that was asked for is done, and what came of it told; or it `fails`. With `group` and `does`
    the next of this kind alone."""
    if plain not in ([], ["fails"]):
        raise ScenarioError(f"expected fails, not {plain[0]!r}", "")
    wanted = [effect for effect in s.life.wanted if effect.verb in (RESOLVE_REGEXES, COMPUTE_ASSIGNMENT)]
    if o:
        wanted = [effect for effect in wanted if _is_meant(effect.subject, o)][:1]
    s.life.wanted = [effect for effect in s.life.wanted if not any(effect is w for w in wanted)]
    for asked in [effect.subject for effect in wanted]:
        s.life.inform(_come_of(asked, fails=bool(plain)))


def _is_meant(asked: Any, o: Options) -> bool:
    comes = RegexesResolved if isinstance(asked, RegexesToResolve) else AssignmentComputed
    return (
        o.get("group", asked.group_id) == asked.group_id and o.get("does", comes.__name__) == comes.__name__
    )


def _come_of(asked: Any, *, fails: bool) -> Any:
    """Nobody may describe a topic whose name begins with `secret`."""
    if isinstance(asked, RegexesToResolve):
        names = sorted(name for name in asked.topics.by_name if not name.startswith(SECRET))
        found = {} if fails else matching(asked.regexes, names)
        return RegexesResolved(asked.group_id, found, asked.topics.version)
    given = PartitionAssignorError("it fails") if fails else asked.compute()
    return AssignmentComputed(asked.group_id, asked.epoch, asked.assignor.name, given)


def heavy(s: Scenario, plain: list[str], o: Options) -> None:
    """So many members and partitions together are too many for a target to be computed at once."""
    s.heavy = number({"N": plain[0]}, "N", 0)


def kinds(s: Scenario, plain: list[str], o: Options) -> None:
    """The invariants of these kinds of groups are asked for, from here on."""
    s.life.invariant(plain)


# --- what classic consumers say in bytes -------------------------------------------------------------


def subscription(o: Options) -> bytes:
    """`reads=orders,audit`, with `owns=orders:0-2`, `rack` and `data` beside it."""
    owned = () if o.get("owns", NONE) == NONE else tuple(ranges(o["owns"]))
    said = ConsumerProtocolSubscription(
        topics=tuple(o["reads"].split(",")),
        user_data=unquote(o["data"]).encode() if "data" in o else None,
        owned_partitions=tuple(TopicPartition(topic=topic, partitions=some) for topic, some in owned),
        rack_id=o.get("rack"),
    )
    return b"\0\3" + encode(said, 3)


def assignments(told: str, data: str | None) -> dict[str, bytes]:
    """`gives=ann:orders:0-2,bob:orders:3-5`, with `data` for each of them: bytes by name."""
    given: dict[str, list[str]] = {}
    for part in told.split(","):
        who, _, some = part.partition(":")
        given.setdefault(who, []).append(some)
    extra = len(data).to_bytes(4, "big") + data.encode() if data is not None else None
    found = {}
    for who, parts in given.items():
        partitions = [] if parts == [NONE] else list(ranges(",".join(parts)))
        plain = write_assignment(partitions, b"\0\3")
        found[who] = plain if extra is None else plain[:-4] + extra
    return found
