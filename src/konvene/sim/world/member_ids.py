"""Member ids that say whose they are: the n-th that is made for somebody ends in n, whoever else is there.

A coordinator makes an id of the client's name, or of the instance id where there is one, and of something
random. Here that is a number, which rises only when an id was taken. In a consumer group all of it is random;
here it says whose it is as well, as do the ids that clients of that protocol make by themselves.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from konvene.codec.schema import Struct
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest


class MemberIds:
    """How many were made, by the name that they begin with."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<member ids: {self._made.total()} made>"

    def fresh(self, client_id: str, request: Struct, groups: Any = None) -> str:
        """What stands for something random in this request."""
        stem = _stem(client_id, request)
        number = str(self._made[stem] + 1)
        whole = isinstance(request, ConsumerGroupHeartbeatRequest)
        if groups is not None and isinstance(request, JoinGroupRequest):
            group = groups.get(request.group_id)
            whole = isinstance(group, ConsumerGroup | StreamsGroup) and not group.is_empty
        return f"{stem}-{number}" if whole else number

    def own(self, client_id: str) -> str:
        """One that a client makes by itself."""
        self._made[client_id] += 1
        return f"{client_id}-{self._made[client_id]}"

    def asked(self, client_id: str, request: Struct, groups: Any) -> None:
        """The request was decided: an id that was taken is not given again."""
        if not isinstance(request, JoinGroupRequest | ConsumerGroupHeartbeatRequest):
            return
        group, stem = groups.get(request.group_id), _stem(client_id, request)
        made = f"{stem}-{self._made[stem] + 1}"
        if group is not None and (made in group.members or made in getattr(group, "pending_joins", ())):
            self._made[stem] += 1


def _stem(client_id: str, request: Struct) -> str:
    named = request.group_instance_id if isinstance(request, JoinGroupRequest) else None
    return client_id if named is None else named
