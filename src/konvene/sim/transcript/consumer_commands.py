"""Commands of scenarios about consumer groups: heartbeats, descriptions, and background work."""

from __future__ import annotations

from typing import TYPE_CHECKING
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
    AssignmentToCompute,
    RegexesResolved,
    RegexesToResolve,
)
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.sim.transcript.vocabulary import (
    EPOCHS,
    LAST_ASSIGNED,
    NONE,
    OMITTED,
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


def consumer_heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    """`consumer-heartbeat CLIENT [join|stay|leave|away]`: send a heartbeat with the member epoch for this
    word: 0, the current one (also without a word), -1, or -2 for a static member that leaves temporarily."""
    client, action = s.client(plain[0]), plain[1] if len(plain) > 1 else "stay"
    if action not in EPOCHS:
        raise ScenarioError(f"expected one of {', '.join(EPOCHS)}, not {action!r}", "")
    client.group = o.get("group", client.group)
    client.instance, client.assigned = instance(client, o), True
    joins, version = action == "join", number(o, "version", 1)
    epoch = EPOCHS[action]
    names = o.get("topics", "orders" if joins and "regex" not in o else None)
    request = ConsumerGroupHeartbeatRequest(
        group_id=client.group,
        member_id=modern_member_id(s, client, o, generated=version > 0),
        member_epoch=number(o, "epoch", client.generation if epoch is None else epoch),
        instance_id=client.instance,
        rack_id=unquote(o["rack"]) if "rack" in o else None,
        rebalance_timeout_ms=number(o, "rebalance", 30_000 if joins else -1),
        subscribed_topic_names=None
        if names in (None, OMITTED)
        else tuple(n for n in names.split(",") if n != NONE),
        subscribed_topic_regex=name_or_none(o["regex"]) if "regex" in o else None,
        server_assignor=unquote(o["assignor"]) if "assignor" in o else None,
        topic_partitions=_owned(s, client, o.get("owns", NONE if joins else None)),
    )
    s.ask(client.name, request, o, 1)


def modern_member_id(s: Scenario, client: Client, o: Options, *, generated: bool = True) -> str:
    """Return the member id for a client's heartbeat: that of the option `member`, otherwise the client's own.

    If `generated`, the client generates a new id for `member=new`, or if it has none yet."""
    member_id = o.get("member")
    if member_id is not None and member_id != "new":
        return name_or_none(member_id)
    if generated and (member_id == "new" or not client.member_id):
        client.member_id = s.life.own_id(client.name)
    return client.member_id


def _owned(s: Scenario, client: Client, text: str | None) -> tuple[TopicPartitions, ...] | None:
    if text in (None, OMITTED):
        return None
    owned: dict[Uuid, tuple[int, ...]] = {}
    if text == LAST_ASSIGNED:
        owned = client.owned
    elif text != NONE:
        owned = {referenced_topic(s, topic): indexes for topic, indexes in ranges(text)}
    return tuple(TopicPartitions(topic_id=topic, partitions=indexes) for topic, indexes in owned.items())


def referenced_topic(s: Scenario, topic: str) -> Uuid:
    """Return the id of the topic with this name; for `@NAME`, the id that scenarios derive from NAME, even if
    no topic has it."""
    return s.topic_id(topic[1:]) if topic.startswith("@") else s.id_of(topic)


def consumer_describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", ConsumerGroupDescribeRequest(group_ids=(plain[0],)), o, 1)


def work(s: Scenario, plain: list[str], o: Options) -> None:
    """`work [fails]`: complete the background work that the coordinator requested; with the word `fails`, let
    it fail.

    The options `group` and `does` (type of the result) select only the first matching piece of work."""
    if plain not in ([], ["fails"]):
        raise ScenarioError(f"expected fails, not {plain[0]!r}", "")
    effects = [effect for effect in s.life.effects if effect.verb in (RESOLVE_REGEXES, COMPUTE_ASSIGNMENT)]
    if o:
        effects = [effect for effect in effects if _matches(effect.subject, o)][:1]
    s.life.effects = [effect for effect in s.life.effects if not any(effect is w for w in effects)]
    for work_item in [effect.subject for effect in effects]:
        s.life.inform(_result_of(work_item, fails=bool(plain)))


def _matches(work_item: RegexesToResolve | AssignmentToCompute, o: Options) -> bool:
    result_type = RegexesResolved if isinstance(work_item, RegexesToResolve) else AssignmentComputed
    return (
        o.get("group", work_item.group_id) == work_item.group_id
        and o.get("does", result_type.__name__) == result_type.__name__
    )


def _result_of(
    work_item: RegexesToResolve | AssignmentToCompute, *, fails: bool
) -> RegexesResolved | AssignmentComputed:
    """Return the result of background work; topics with the prefix `secret` are not authorized."""
    if isinstance(work_item, RegexesToResolve):
        names = sorted(name for name in work_item.topics.by_name if not name.startswith(SECRET))
        found = {} if fails else matching(work_item.regexes, names)
        return RegexesResolved(work_item.group_id, found, work_item.topics.version)
    by_client = PartitionAssignorError("it fails") if fails else work_item.compute()
    return AssignmentComputed(work_item.group_id, work_item.epoch, work_item.assignor.name, by_client)


def heavy(s: Scenario, plain: list[str], o: Options) -> None:
    """`heavy N`: from here on compute target assignments in the background if members plus partitions, or
    tasks, are at least N."""
    s.heavy = number({"N": plain[0]}, "N", 0)


def kinds(s: Scenario, plain: list[str], o: Options) -> None:
    """`kinds KIND ...`: check the invariants of the named kinds of groups, and no others, from here on."""
    s.life.invariant(plain)


# --- metadata of classic consumers ------------------------------------------------------------------


def subscription(o: Options) -> bytes:
    """Encode the options `reads`, `owns`, `rack` and `data` into a consumer's subscription metadata."""
    owned = () if o.get("owns", NONE) == NONE else tuple(ranges(o["owns"]))
    metadata = ConsumerProtocolSubscription(
        topics=tuple(o["reads"].split(",")),
        user_data=unquote(o["data"]).encode() if "data" in o else None,
        owned_partitions=tuple(TopicPartition(topic=topic, partitions=indexes) for topic, indexes in owned),
        rack_id=o.get("rack"),
    )
    return b"\0\3" + encode(metadata, 3)


def assignments(text: str, data: str | None) -> dict[str, bytes]:
    """Encode the value of the option `gives`, such as `ann:orders:0-2,bob:orders:3-5`, into an assignment for
    each client, with the user data `data`."""
    by_client: dict[str, list[str]] = {}
    for part in text.split(","):
        client, _, indexes = part.partition(":")
        by_client.setdefault(client, []).append(indexes)
    extra = len(data).to_bytes(4, "big") + data.encode() if data is not None else None
    found = {}
    for client, parts in by_client.items():
        partitions = [] if parts == [NONE] else list(ranges(",".join(parts)))
        plain = write_assignment(partitions, b"\0\3")
        found[client] = plain if extra is None else plain[:-4] + extra
    return found
