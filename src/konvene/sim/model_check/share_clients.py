"""What a client of a small share group believes, what it asks, and what it makes of the answer.

Whoever is fenced joins again with all that it reads; any other refusal ends it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from konvene.sim.model_check.consumer_groups import FENCED, GROUP

Held = frozenset[int]


class Client(NamedTuple):
    """What a client believes. Epochs of a state's key count from the group's."""

    name: str
    inside: bool = False
    epoch: int = -1
    held: Held = frozenset()
    says_all: bool = True
    question: ShareGroupHeartbeatRequest | None = None
    answer: ShareGroupHeartbeatResponse | None = None
    joins: int = 1
    """How often it will still come."""


def is_request(client: Client) -> Client:
    """The next heartbeat: what it reads where it joins, or where an answer was lost."""
    says_all = client.says_all or client.epoch == 0
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=client.name,
        member_epoch=client.epoch,
        subscribed_topic_names=("orders",) if says_all else None,
    )
    return client._replace(question=request, says_all=False)


def heard(client: Client) -> Client:
    answer: Any = client.answer
    client = client._replace(answer=None)
    error = Errors(answer.error_code)
    if error in (*FENCED, Errors.GROUP_ID_NOT_FOUND):
        return client._replace(epoch=0, held=frozenset(), says_all=True)
    if error is not Errors.NONE:  # It stops; whoever started it may start it again.
        return Client(client.name, joins=client.joins)
    told, held = answer.assignment, client.held
    if told is not None:
        held = frozenset(p for t in told.topic_partitions for p in t.partitions)
    return client._replace(epoch=answer.member_epoch, held=held)
