"""Commands of scenarios about consumer groups: heartbeats, descriptions, and work that is done elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from konvene.codec.compile import encode
from konvene.codec.uuid import Uuid
from konvene.groups.assignors import PartitionAssignorError
from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.consumer.regex import matching
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved, RegexesToResolve
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.sim.scenario_words import (
    NONE,
    Client,
    Options,
    ScenarioError,
    instance,
    name_or_none,
    number,
    ranges,
)

if TYPE_CHECKING:
    from konvene.sim.scenario import Scenario

EPOCHS = {"join": 0, "stay": None, "leave": -1, "away": -2}
"""What a member does, and at which epoch; when it stays it is at its own."""

TOLD = "told"
"""As what a member owns: what it was told last to have."""


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
        rack_id=o.get("rack"),
        rebalance_timeout_ms=number(o, "rebalance", 30_000 if joins else -1),
        subscribed_topic_names=None if names is None else tuple(n for n in names.split(",") if n != NONE),
        subscribed_topic_regex=name_or_none(o["regex"]) if "regex" in o else None,
        server_assignor=o.get("assignor"),
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
    if text is None:
        return None
    owned: dict[Uuid, tuple[int, ...]] = {}
    if text == TOLD:
        owned = client.has
    elif text != NONE:
        owned = {s.id_of(topic): some for topic, some in ranges(text)}
    return tuple(TopicPartitions(topic_id=topic, partitions=some) for topic, some in owned.items())


def consumer_describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", ConsumerGroupDescribeRequest(group_ids=(plain[0],)), o, 1)


def work(s: Scenario, plain: list[str], o: Options) -> None:
    """All work that was asked for is done, and what came of it told; or it `fails`."""
    if plain not in ([], ["fails"]):
        raise ScenarioError(f"expected fails, not {plain[0]!r}", "")
    wanted = [effect.subject for effect in s.life.wanted]
    s.life.wanted.clear()
    for asked in wanted:
        if isinstance(asked, RegexesToResolve):
            names = sorted(asked.topics.by_name)
            found = {} if plain else matching(asked.regexes, names)
            s.life.inform(RegexesResolved(asked.group_id, found, asked.topics.version))
        else:
            given = PartitionAssignorError("it fails") if plain else asked.assignor.assign(asked.spec)
            s.life.inform(AssignmentComputed(asked.group_id, asked.epoch, asked.assignor.name, given))


def kinds(s: Scenario, plain: list[str], o: Options) -> None:
    """The promises of these kinds of groups are asked for, from here on."""
    s.life.promise(plain)


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
