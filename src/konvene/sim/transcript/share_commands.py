"""Commands of scenarios about share groups: heartbeats, descriptions, administration, and share state.

An administrative command starts a request and prints the share state that has to change first; the command
`state` completes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from konvene.codec.uuid import Uuid
from konvene.groups.share.work import (
    DELETE_STATE,
    GROUP_EMPTY,
    INITIALIZE_STATE,
    MEMBER_FENCED,
    MEMBER_LEFT,
    BeginDeletion,
    DeletedTopics,
    StateDeleted,
    StateInitialized,
)
from konvene.messages import alter_share_group_offsets as alter
from konvene.messages import delete_share_group_offsets as forget
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.share_state.requests import SharePartitionKey
from konvene.sim.transcript.consumer_commands import referenced_topic
from konvene.sim.transcript.vocabulary import NONE, Options, ScenarioError, name_or_none, number, partitions

if TYPE_CHECKING:
    from konvene.sim.transcript.scenario import Scenario

SHARE_EPOCHS = {"join": 0, "stay": None, "leave": -1}
"""Member epochs of heartbeats by action; `stay` uses the current epoch."""

SHARE_WORK = (INITIALIZE_STATE, DELETE_STATE, MEMBER_FENCED, MEMBER_LEFT, GROUP_EMPTY)


def share_heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-heartbeat CLIENT [join|stay|leave]`: send a heartbeat with the member epoch for this word: 0,
    the current one (also without a word), or -1."""
    client, action = s.client(plain[0]), plain[1] if len(plain) > 1 else "stay"
    if action not in SHARE_EPOCHS:
        raise ScenarioError(f"expected one of {', '.join(SHARE_EPOCHS)}, not {action!r}", "")
    client.group, client.assigned = o.get("group", client.group), True
    epoch = SHARE_EPOCHS[action]
    names = o.get("topics", "orders" if action == "join" else None)
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
    """`share-alter GROUP TOPIC-PARTITION:OFFSET,...`: alter the group's start offsets."""
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
        previous = () if known is None else known.partitions
        by_name[row.topic_name] = row.replace(partitions=(*previous, *row.partitions))
    request = alter.AlterShareGroupOffsetsRequest(group_id=plain[0], topics=tuple(by_name.values()))
    s.ask("admin", request, o, 0)


def share_forget(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-forget GROUP TOPIC,...`: delete the group's offsets of these topics."""
    topics = tuple(
        forget.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in plain[1].split(",") if name
    )
    s.ask("admin", forget.DeleteShareGroupOffsetsRequest(group_id=plain[0], topics=topics), o, 0)


def share_delete(s: Scenario, plain: list[str], o: Options) -> None:
    """`share-delete GROUP`: request the deletion of all share state of the group, which the command `state`
    completes; after that, `delete` deletes the group."""
    s.life.ask("admin", BeginDeletion(plain[0]), 0)


def _reported_result(s: Scenario, o: Options) -> StateInitialized | StateDeleted | DeletedTopics:
    """Return the result of the share coordinator that the options of the command `state` describe; see
    `state`."""
    if "gone" in o:
        return DeletedTopics(frozenset(_ids(s, o["gone"])))
    if "deleted" in o:
        return StateDeleted(o["group"], tuple(_ids(s, o["deleted"])))
    return StateInitialized(o["group"], *(tuple(_keys(s, o, word)) for word in ("begun", "failed")))


def _ids(s: Scenario, words: str) -> list[Uuid]:
    return [referenced_topic(s, word) for word in words.split(",") if word != NONE]


def _keys(s: Scenario, o: Options, option: str) -> Iterator[SharePartitionKey]:
    for item in o.get(option, "").split(","):
        if item:
            topic, _, index = item.rpartition(":")
            yield SharePartitionKey(
                o["group"], referenced_topic(s, topic), number({option: index}, option, 0)
            )


def state(s: Scenario, plain: list[str], o: Options) -> None:
    """`state [fails]`: complete all pending requests to the share coordinator; with the word `fails`, let
    them fail.

    With options, report only what they list: share partitions whose state is initialized (`begun`) or not
    (`failed`), topics whose state is `deleted`, or topics that were deleted themselves."""
    if o:
        if "group" not in o and "gone" not in o:
            raise ScenarioError("expected group=NAME or gone=TOPIC", "")
        s.life.inform(_reported_result(s, o))
        return
    if plain not in ([], ["fails"]):
        raise ScenarioError(f"expected fails, not {plain[0]!r}", "")
    effects = [effect for effect in s.life.effects if effect.verb in SHARE_WORK]
    s.life.effects = [effect for effect in s.life.effects if effect.verb not in SHARE_WORK]
    for verb, request in effects:
        if verb == INITIALIZE_STATE:
            keys = tuple(request.key for request in request.requests)
            result = StateInitialized(request.group_id, *(((), keys) if plain else (keys, ())))
            s.life.inform(result)
        elif verb == DELETE_STATE and not plain:
            topics = dict.fromkeys(request.key.topic_id for request in request.requests)
            s.life.inform(StateDeleted(request.group_id, tuple(topics)))
