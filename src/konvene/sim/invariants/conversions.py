"""Conversions of groups between the classic protocol and another one, online.

The rules that consumer groups (KIP-848) and streams groups have in common, each once. `converted` finds the
groups that an event converted. This module has no `KINDS`: the invariants are those of the group types.
"""

from __future__ import annotations

from typing import TypeVar

from konvene.configs import BrokerConfig
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams.group import StreamsGroup
from konvene.records.commits import OffsetCommitted
from konvene.sim.world.event import Event

ConvertibleGroup = ConsumerGroup | StreamsGroup
"""Groups of these types may be converted from and to classic groups."""
A = TypeVar("A")
B = TypeVar("B")

UPGRADE_POLICIES = ("bidirectional", "upgrade")
DOWNGRADE_POLICIES = ("bidirectional", "downgrade")


def converted(event: Event, before: type[A], after: type[B]) -> list[tuple[str, A, B]]:
    """Return the groups that an event converted from class `before` to class `after`, as tuples of id, group
    before the event, and group after it."""
    if not event.changed or event.is_complete:
        return []
    return [
        (name, event.before.groups[name], group)
        for name, group in event.after.groups.items()
        if isinstance(group, after) and isinstance(event.before.groups.get(name), before)
    ]


def config_of(event: Event) -> BrokerConfig:
    """Return the broker configs that were in effect when the event was decided."""
    config: BrokerConfig = event.context.config if event.context is not None else event.runtime.config
    return config


def check_upgrade(
    event: Event, old: ClassicGroup, group: ConvertibleGroup, policy: str, max_size: int
) -> None:
    """Check that a classic group was upgraded with all its members, at its generation, and with at most one
    new member; and that the policy and the maximum size allow it."""
    assert policy in UPGRADE_POLICIES, f"{old!r} is upgraded, but the policy is {policy}"
    assert len(old.members) <= max_size, f"{old!r} is upgraded, but the maximum size is {max_size}"
    # A static member may return under another member id.
    missing = [
        member_id
        for member_id, m in old.members.items()
        if member_id not in group.members and group.static_member(m.instance_id) is None
    ]
    assert not missing, f"{old!r} is upgraded without {missing}"
    # A returning static member, and one with an unresolved expression, does not bump the epoch.
    bumps = group.epoch - max(old.generation, FIRST_EPOCH)
    assert bumps in (0, 1), f"{old!r} is upgraded to {group!r}"
    joined = len(group.members.keys() - old.members.keys())
    assert joined <= 1, f"{old!r} is upgraded, and {joined} members joined at once"


def check_downgrade(event: Event, old: ConvertibleGroup, group: ClassicGroup, policy: str) -> None:
    """Check that a group with members was downgraded with members of the classic protocol only; and that the
    policy and the maximum size allow it."""
    max_size = config_of(event)["group.max.size"]
    assert policy in DOWNGRADE_POLICIES, f"{old!r} is downgraded, but the policy is {policy}"
    assert len(group.members) <= max_size, f"{old!r} is downgraded, but group.max.size is {max_size}"
    assert group.members, f"{old!r} is downgraded, but has no members"
    modern = [m for m in old.members.values() if m.classic is None and m.member_id in group.members]
    assert not modern, f"{old!r} is downgraded with {modern}, which do not use the classic protocol"


def check_offsets_kept(event: Event, group: object) -> None:
    """Check that an event that converted a group writes and removes no committed offset."""
    for record in event.batch.records if event.batch is not None else ():
        assert type(record) is not OffsetCommitted, f"the conversion to {group!r} changes {record}"


def lost_last_modern_member(old: ConvertibleGroup, group: ConvertibleGroup) -> bool:
    """Return True if an event removed the last member that does not use the classic protocol, and members of
    the classic protocol remain."""
    if not group.members:
        return False
    had_modern = any(m.classic is None for m in old.members.values())
    return had_modern and all(m.classic is not None for m in group.members.values())
