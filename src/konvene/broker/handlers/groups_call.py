"""How the group APIs ask the coordinator of a group, and turn its refusal into their response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.later import then
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call
    from konvene.codec.schema import Struct


def ask(
    broker: Broker, group_id: str, request: Struct, call: Call, refused: Callable[[Errors], Struct]
) -> Any:
    """The coordinator's response, or what `refused` makes of its error."""
    coordinator = broker.groups.of(group_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    answer = coordinator.submit(request, call)
    return then(answer, lambda value: refused(value) if isinstance(value, Errors) else value)
