"""Commands of scenarios about share groups: heartbeats, descriptions, and what the share coordinator does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from konvene.groups.share.work import (
    DELETE_STATE,
    GROUP_EMPTY,
    INITIALIZE_STATE,
    MEMBER_GONE,
    StateDeleted,
    StateInitialized,
)
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.sim.scenario_words import NONE, Options, ScenarioError, name_or_none, number

if TYPE_CHECKING:
    from konvene.sim.scenario import Scenario

SHARE_EPOCHS = {"join": 0, "stay": None, "leave": -1}
"""What a member does, and at which epoch; when it stays it is at its own."""

SHARE_WORK = (INITIALIZE_STATE, DELETE_STATE, MEMBER_GONE, GROUP_EMPTY)


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


def state(s: Scenario, plain: list[str], o: Options) -> None:
    """All that the share coordinator was asked is done, and what came of it told; or it `fails`."""
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
