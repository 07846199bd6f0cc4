"""Changes that a user of the console may request: offset resets, removal of members and groups, settings.

Each change needs `confirm`, the name of the group or resource as the user typed it again. The functions take
the JSON body of the request and raise `Failure` for everything that a user or a cluster can cause.
Whether changes are allowed at all is not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from konvene.client.admin.admin import BROKER, GROUP_CONFIG, TOPIC, Admin
from konvene.client.admin.any_group import any_group
from konvene.client.admin.reset_offsets import (
    CannotReset,
    check_inactive,
    commit_offsets,
    current_offsets,
    plan_offsets,
)
from konvene.client.admin.reset_plan import BadInput, Goal, Plan, read_topics
from konvene.client.consumer.fetch import LATEST
from konvene.client.errors import ClientError
from konvene.client.hints import HINTS
from konvene.console.failure import Failure
from konvene.console.messages import failure_of, is_text, produce, required_text

if TYPE_CHECKING:
    from konvene.client.admin.any_group import AnyGroup
    from konvene.console.watch import ClusterWatch

__all__ = ["ACTIONS", "delete_group", "preview_reset", "remove_members", "reset_offsets", "set_config"]

T = TypeVar("T")
Body = Mapping[str, Any]

_GOALS = {"offset": "to-offset", "time": "to-datetime", "shift": "shift-by"}
_RESOURCES = {"topic": TOPIC, "group": GROUP_CONFIG, "broker": BROKER}
_REASON = "removed in the console"


# offset resets --------------------------------------------------------------------------------


class _Reset(NamedTuple):
    group: str
    is_share: bool
    planned: Plan


async def preview_reset(admin: Admin, body: Body) -> dict[str, Any]:
    """Return the new offset of each partition of a reset, and problems such as offsets outside of the log.

    `to` is earliest, latest, offset:N, time:MS or shift:N; `topics` are names or `topic:0,1`, null for all
    partitions with an offset."""
    return await _answered(_preview(admin, body))


async def _preview(admin: Admin, body: Body) -> dict[str, Any]:
    reset = await _plan_reset(admin, body)
    offsets = reset.planned.offsets
    current = await current_offsets(admin, reset.group, is_share=reset.is_share)
    ends = await admin.list_offsets(dict.fromkeys(offsets, LATEST)) if offsets else {}
    rows = [
        {
            "partition": f"{tp.topic}:{tp.partition}",
            "current": current.get(tp),
            "new": new,
            "end": ends[tp].offset,
            "lag_after": max(0, ends[tp].offset - new),
        }
        for tp, new in offsets.items()
    ]
    return {"plan": rows, "problems": reset.planned.warnings}


async def reset_offsets(admin: Admin, body: Body) -> dict[str, Any]:
    """Commit the offsets that `preview_reset` shows; the group must have no members."""
    _check_confirmation(body, required_text(body, "group"))
    return await _answered(_reset(admin, body))


async def _reset(admin: Admin, body: Body) -> dict[str, Any]:
    reset = await _plan_reset(admin, body)
    errors = await commit_offsets(admin, reset.group, reset.planned.offsets, is_share=reset.is_share)
    rows = [
        ({"partition": f"{tp.topic}:{tp.partition}", "offset": new}, errors[tp])
        for tp, new in reset.planned.offsets.items()
    ]
    return {
        "done": [row for row, error in rows if error is None],
        "failed": [row | {"error": str(error)} for row, error in rows if error is not None],
        "problems": reset.planned.warnings,
    }


async def _plan_reset(admin: Admin, body: Body) -> _Reset:
    name, goal = required_text(body, "group"), _goal(required_text(body, "to"))
    topics = body.get("topics")
    if topics is not None and not _are_texts(topics):
        raise Failure(400, "topics is not a list of names.", "Write null for all topics of the group.")
    group = await _existing_group(admin, name)
    is_share = group.type == "share"
    try:
        scope = None if topics is None else read_topics(topics)
        check_inactive(name, group)
        planned = await plan_offsets(admin, name, group, goal, scope, is_share=is_share)
    except BadInput as error:
        raise Failure(400, f"{error}.") from None
    except CannotReset as error:
        raise Failure(409, str(error), error.hint) from None
    return _Reset(name, is_share, planned)


def _goal(text: str) -> Goal:
    if text in ("earliest", "latest"):
        return Goal(f"to-{text}")
    kind, _, number = text.partition(":")
    if kind in _GOALS and re.fullmatch(r"[0-9]{1,18}" if kind != "shift" else r"[+-]?[0-9]{1,18}", number):
        return Goal(_GOALS[kind], int(number))
    raise Failure(
        400, f"to={text[:80]} is not a target.", "Use earliest, latest, offset:N, time:MS or shift:N."
    )


# groups and settings --------------------------------------------------------------------------


async def remove_members(admin: Admin, body: Body) -> dict[str, Any]:
    """Remove members from a group. A member that is still running joins again."""
    name = required_text(body, "group")
    members = body.get("members")
    if not _are_texts(members) or not members:
        raise Failure(400, "members is not a list of member ids.")
    _check_confirmation(body, name)
    removals = await _answered(admin.remove_members(name, member_ids=members, reason=_REASON))
    return {
        "done": [each.member_id for each in removals if each.error is None],
        "failed": [
            {"member": each.member_id, "error": str(each.error)}
            for each in removals
            if each.error is not None
        ],
    }


async def delete_group(admin: Admin, body: Body) -> dict[str, Any]:
    """Delete a group without members, and its offsets."""
    name = required_text(body, "group")
    _check_confirmation(body, name)
    await _answered(admin.delete_groups([name]))
    return {"done": [name], "failed": []}


async def set_config(admin: Admin, body: Body) -> dict[str, Any]:
    """Set a setting of a topic, a group or a broker (by id); the value null resets it to its default."""
    resource, name, key, value = (
        *(required_text(body, each) for each in ("resource", "name", "key")),
        body.get("value"),
    )
    if resource not in _RESOURCES:
        raise Failure(400, f"{resource[:80]} is not topic, group or broker.")
    if resource == "broker" and not re.fullmatch(r"[0-9]{1,10}", name):
        raise Failure(400, f"{name[:80]} is not the id of a broker.")
    if value is not None and not isinstance(value, str):
        raise Failure(400, "value is neither text nor null.")
    _check_confirmation(body, name)
    await _answered(_alter(admin, resource, name, {key: value}))
    return {"done": [key], "failed": []}


async def _alter(admin: Admin, resource: str, name: str, changes: Mapping[str, str | None]) -> None:
    await admin.cluster.refresh([])  # The address of a broker is needed for its settings.
    if resource == "broker" and int(name) not in admin.cluster.metadata.nodes:
        raise Failure(404, f"There is no broker {name}.")
    await admin.alter_configs(_RESOURCES[resource], name, changes)


# what they share ------------------------------------------------------------------------------


async def _existing_group(admin: Admin, name: str) -> AnyGroup:
    found = await any_group(admin, name)
    if found is None:
        raise Failure(404, f"There is no group {name}.", HINTS["GROUP_ID_NOT_FOUND"])
    return found


def _check_confirmation(body: Body, name: str) -> None:
    if body.get("confirm") != name:
        raise Failure(400, "The change is not confirmed.", f"confirm must be the name {name}.")


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(map(is_text, found))


async def _answered(request: Awaitable[T]) -> T:
    """Await requests to the cluster. Raises `Failure` for an error of the client."""
    try:
        return await request
    except ClientError as error:
        raise failure_of(error) from error


Run = Callable[["ClusterWatch", Body], Awaitable[dict[str, Any]]]


def _with_admin(run: Callable[[Admin, Body], Awaitable[dict[str, Any]]]) -> Run:
    return lambda watch, body: run(watch.admin, body)


ACTIONS: Mapping[str, Run] = {
    "produce": lambda watch, body: produce(watch.cluster, body),
    "actions/reset-offsets/preview": _with_admin(preview_reset),
    "actions/reset-offsets": _with_admin(reset_offsets),
    "actions/remove-members": _with_admin(remove_members),
    "actions/delete-group": _with_admin(delete_group),
    "actions/set-config": _with_admin(set_config),
}
"""The changes by their paths below `/api/`."""
