"""Readable member ids for simulated clients: the n-th id that a client is issued ends in n.

A coordinator builds a classic member id from the client id, or the instance id, and a random part. Here the
random part is a number, which rises only when an id was used. A consumer group's member id is random as a
whole; here it begins with the client id as well, as do the ids that clients of that protocol generate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import Group
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest


class MemberIds:
    """A counter of issued member ids for each prefix: a client id or instance id."""

    def __init__(self) -> None:
        self._issued: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<member ids: {self._issued.total()} made>"

    def random_part(self, client_id: str, request: object, groups: Mapping[str, Group]) -> str:
        """Return what replaces the random part of the member id that the coordinator may issue for a request.

        It is a number, or the whole id if the coordinator's id would be random as a whole."""
        stem = _stem(client_id, request)
        number = str(self._issued[stem] + 1)
        whole = isinstance(request, ConsumerGroupHeartbeatRequest)
        if isinstance(request, JoinGroupRequest):
            group = groups.get(request.group_id)
            whole = isinstance(group, ConsumerGroup | StreamsGroup) and not group.is_empty
        return f"{stem}-{number}" if whole else number

    def generate_for_client(self, client_id: str) -> str:
        """Return an id that a client generates for itself."""
        self._issued[client_id] += 1
        return f"{client_id}-{self._issued[client_id]}"

    def request_decided(self, client_id: str, request: object, groups: Mapping[str, Group]) -> None:
        """Count the id that `random_part` returned if the group uses it now, so that it is not reissued."""
        if not isinstance(request, JoinGroupRequest | ConsumerGroupHeartbeatRequest):
            return
        group, stem = groups.get(request.group_id), _stem(client_id, request)
        candidate = f"{stem}-{self._issued[stem] + 1}"
        if group is not None and (
            candidate in group.members or candidate in getattr(group, "pending_joins", ())
        ):
            self._issued[stem] += 1


def _stem(client_id: str, request: object) -> str:
    instance_id = request.group_instance_id if isinstance(request, JoinGroupRequest) else None
    return client_id if instance_id is None else instance_id
