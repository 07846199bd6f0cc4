"""Commands of scenarios about share groups: heartbeats, descriptions, what administrators ask, and what the
share coordinator does.

An administrator's request is begun by its command, which tells what is to be done; `state` says that it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from konvene.codec.uuid import Uuid
from konvene.groups.share.work import (
    DELETE_STATE,
    GROUP_EMPTY,
    INITIALIZE_STATE,
    MEMBER_GONE,
    MEMBER_LEFT,
    BeginDeletion,
    StateDeleted,
    StateInitialized,
    TopicsGone,
)
from konvene.messages import alter_share_group_offsets as alter
from konvene.messages import delete_share_group_offsets as forget
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.share_state.requests import SharePartitionKey
from konvene.sim.transcript.vocabulary import NONE, Options, ScenarioError, name_or_none, number, partitions

if TYPE_CHECKING:
    from konvene.sim.transcript.scenario import Scenario

SHARE_EPOCHS = {"join": 0, "stay": None, "leave": -1}
"""What a member does, and at which epoch; when it stays it is at its own."""

SHARE_WORK = (INITIALIZE_STATE, DELETE_STATE, MEMBER_GONE, MEMBER_LEFT, GROUP_EMPTY)


def share_heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-heartbeat WHO [join|stay|leave]`."""
    client, does = s.client(plain[0]), plain[1] if len(plain) > 1 else "stay"
    if does not in SHARE_EPOCHS:
        raise ScenarioError(f"expected one of {', '.join(SHARE_EPOCHS)}, not {does!r}", "")
    client.group, client.assigned = o.get("group", client.group), True
    epoch = SHARE_EPOCHS[does]
    names = o.get("topics", "orders" if does == "join" else None)
    if "member" in o:
        client.member_id = name_or_none(o["member"])
    elif not client.member_id:
        client.member_id = s.life.own_id(client.name)
    request = ShareGroupHeartbeatRequest(
        group_id=client.group,
        member_id=client.member_id,
        member_epoch=number(o, "epoch", client.generation if epoch is None else epoch),
        rack_id=unquote(o["rack"]) if "rack" in o else None,
        subscribed_topic_names=tuple(n for n in names.split(",") if n != NONE) if names else None,
    )
    s.ask(client.name, request, o, 1)


def share_describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", ShareGroupDescribeRequest(group_ids=(plain[0],)), o, 1)


def share_alter(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-alter GROUP TOPIC-PARTITION:OFFSET,...`."""
    rows = [
        alter.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=(
                alter.AlterShareGroupOffsetsRequestPartition(
                    partition_index=index, start_offset=number({"an offset": offset}, "an offset", 0)
                ),
            ),
        )
        for name, index, offset in partitions(plain[1])
    ]
    by_name: dict[str, alter.AlterShareGroupOffsetsRequestTopic] = {}
    for row in rows:
        known = by_name.get(row.topic_name)
        more = () if known is None else known.partitions
        by_name[row.topic_name] = row.replace(partitions=(*more, *row.partitions))
    request = alter.AlterShareGroupOffsetsRequest(group_id=plain[0], topics=tuple(by_name.values()))
    s.ask("admin", request, o, 0)


def share_forget(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-forget GROUP TOPIC,...`: its offsets are deleted."""
    topics = tuple(
        forget.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in plain[1].split(",") if name
    )
    s.ask("admin", forget.DeleteShareGroupOffsetsRequest(group_id=plain[0], topics=topics), o, 0)


def share_delete(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-delete GROUP`: all its state is to go, before `delete` has the group itself go."""
    s.life.ask("admin", BeginDeletion(plain[0]), 0)


def _told(s: Scenario, o: Options) -> Any:
    """The news that the options of `state` say."""
    if "gone" in o:
        return TopicsGone(frozenset(_ids(s, o["gone"])))
    if "deleted" in o:
        return StateDeleted(o["group"], tuple(_ids(s, o["deleted"])))
    return StateInitialized(o["group"], *(tuple(_keys(s, o, word)) for word in ("begun", "failed")))


def _ids(s: Scenario, words: str) -> list[Uuid]:
    return [_id(s, word) for word in words.split(",") if word != NONE]


def _id(s: Scenario, word: str) -> Uuid:
    return s.topic_id(word[1:]) if word.startswith("@") else s.id_of(word)


def _keys(s: Scenario, o: Options, which: str) -> Iterator[SharePartitionKey]:
    for each in o.get(which, "").split(","):
        if each:
            topic, _, index = each.rpartition(":")
            yield SharePartitionKey(o["group"], _id(s, topic), number({which: index}, which, 0))


def state(s: Scenario, plain: list[str], o: Options) -> None:
    """All that the share coordinator was asked is done, and what came of it told; or it `fails`. With options
    it is told what they say: what has `begun` or `failed`, what is `deleted`, or which topics are `gone`."""
    if o:
        if "group" not in o and "gone" not in o:
            raise ScenarioError("expected group=NAME or gone=TOPIC", "")
        s.life.inform(_told(s, o))
        return
    if plain not in ([], ["fails"]):
        raise ScenarioError(f"expected fails, not {plain[0]!r}", "")
    wanted = [effect for effect in s.life.wanted if effect.verb in SHARE_WORK]
    s.life.wanted = [effect for effect in s.life.wanted if effect.verb not in SHARE_WORK]
    for verb, asked in wanted:
        if verb == INITIALIZE_STATE:
            keys = tuple(request.key for request in asked.requests)
            news = StateInitialized(asked.group_id, *(((), keys) if plain else (keys, ())))
            s.life.inform(news)
        elif verb == DELETE_STATE and not plain:
            topics = dict.fromkeys(request.key.topic_id for request in asked.requests)
            s.life.inform(StateDeleted(asked.group_id, tuple(topics)))
