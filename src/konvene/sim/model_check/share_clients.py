"""Client of a share group in a model check: its beliefs, its heartbeats, and how it handles responses.

A fenced client joins again with its whole subscription; any other error stops it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from konvene.sim.model_check.group_model import FENCED, GROUP

Held = frozenset[int]


class Client(NamedTuple):
    """A client in the model: what it believes of its membership, and its request or response under way.
    `held` are the partitions that it was assigned last."""

    name: str
    inside: bool = False
    epoch: int = -1
    held: Held = frozenset()
    has_all_tags: bool = True
    request: ShareGroupHeartbeatRequest | None = None
    response: ShareGroupHeartbeatResponse | None = None
    joins: int = 1
    """How often it may still be started."""


def next_heartbeat(client: Client) -> Client:
    """Return the client with its next heartbeat as the request under way. It includes the subscription when
    the client joins and after a lost response."""
    has_all_tags = client.has_all_tags or client.epoch == 0
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=client.name,
        member_epoch=client.epoch,
        subscribed_topic_names=("orders",) if has_all_tags else None,
    )
    return client._replace(request=request, has_all_tags=False)


def after_response(client: Client) -> Client:
    """Return the client after it handled its response."""
    answer: Any = client.response
    client = client._replace(response=None)
    error = Errors(answer.error_code)
    if error in (*FENCED, Errors.GROUP_ID_NOT_FOUND):
        return client._replace(epoch=0, held=frozenset(), has_all_tags=True)
    if error is not Errors.NONE:  # The client stops, and may be started again.
        return Client(client.name, joins=client.joins)
    assignment, held = answer.assignment, client.held
    if assignment is not None:
        held = frozenset(p for t in assignment.topic_partitions for p in t.partitions)
    return client._replace(epoch=answer.member_epoch, held=held)
