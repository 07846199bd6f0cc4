"""How the group APIs ask the coordinator of a group, and turn its refusal into their response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.later import Later
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call
    from konvene.codec.schema import Struct


def ask(
    broker: Broker, group_id: str, request: Struct, call: Call, refused: Callable[[Errors], Struct]
) -> Later[Any] | Struct:
    """The coordinator's response, or what `refused` makes of its error."""
    coordinator = broker.groups.of(group_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    answer = coordinator.submit(request, call)
    if answer.done:
        value = answer.value
        return refused(value) if isinstance(value, Errors) else value
    later: Later[Any] = Later()
    answer.listen(lambda value: later.resolve(refused(value) if isinstance(value, Errors) else value))
    return later
