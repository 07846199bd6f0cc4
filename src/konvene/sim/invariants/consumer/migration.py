"""Invariants of groups that are converted between the classic and the consumer protocol, online (KIP-848)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer import log as consumer_log
from konvene.groups.consumer.group import ConsumerGroup
from konvene.sim.invariants.consumer.state import Unit, owned_units
from konvene.sim.invariants.conversions import (
    DOWNGRADE_POLICIES,
    check_downgrade,
    check_offsets_kept,
    check_upgrade,
    config_of,
    converted,
    lost_last_modern_member,
)
from konvene.sim.world.event import Event, Invariant

KINDS = ("migration",)


class UpgradesKeepMembers(Invariant):
    """MG1: if the migration policy and the maximum size permit it, a classic group that a consumer-protocol
    member joins becomes a consumer group with all its members and that one, and its generation becomes the
    group epoch."""

    def after(self, event: Event) -> None:
        for _, old, group in converted(event, ClassicGroup, ConsumerGroup):
            if old.members:
                max_size = event.context.config["group.consumer.max.size"]
                check_upgrade(event, old, group, _policy(event), max_size)


class DowngradesKeepMembers(Invariant):
    """MG4: when the last member of the consumer protocol leaves, the group becomes a classic one with the
    remaining members, at the group's epoch. The log keeps no consumer group records, and all offsets.

    MG5: it does not exceed the maximum size of a classic group."""

    def __init__(self) -> None:
        self.live_keys: dict[str, set[Hashable]] = {}
        """By group: the keys of consumer group records that have a value in the log."""

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.live_keys.clear()
            for batch in event.runtime.log.batches:
                self._replay(batch.records)
        elif event.batch is not None:
            self._replay(event.batch.records)
        if event.is_complete or not event.changed:
            return
        for name, old, group in converted(event, ConsumerGroup, ClassicGroup):
            self._check_downgraded(event, name, old, group)
        for group in event.after.groups.values():
            if isinstance(group, ConsumerGroup) and event.kind != "completion":
                self._check_not_downgraded(event, group)

    def _replay(self, records: Iterable[Any]) -> None:
        for record in records:
            key: Any = getattr(record, "key", None)
            if type(key) in consumer_log.RECORDS.replays:
                keys = self.live_keys.setdefault(key.group_id, set())
                (keys.discard if record.value is None else keys.add)(key)

    def _check_downgraded(self, event: Event, name: str, old: ConsumerGroup, group: ClassicGroup) -> None:
        keys = self.live_keys.get(name)
        assert not keys, f"{group!r} is a classic group, but the log has {keys}"
        check_offsets_kept(event, group)
        if old.members:
            check_downgrade(event, old, group, _policy(event))
            assert group.generation >= old.epoch, f"{old!r} is downgraded to {group!r}"

    def _check_not_downgraded(self, event: Event, group: ConsumerGroup) -> None:
        """Check that the policy or the size prevented a downgrade when the last consumer member left."""
        old = event.before.groups.get(group.group_id)
        if isinstance(old, ConsumerGroup) and lost_last_modern_member(old, group):
            allowed = _policy(event) in DOWNGRADE_POLICIES
            fits = len(group.members) <= config_of(event)["group.max.size"]
            assert not (allowed and fits), f"{group!r} has classic members only, but was not downgraded"


class UpgradesKeepOwnership(Invariant):
    """MG1: in an upgrade no member gets a partition that another one owns."""

    def after(self, event: Event) -> None:
        for name, old, group in converted(event, ClassicGroup, ConsumerGroup):
            owners: dict[Unit, str] = {}
            for member in group.members.values():
                for unit in owned_units(member):
                    other = owners.setdefault(unit, member.member_id)
                    assert other == member.member_id, (
                        f"{name}: {other} and {member.member_id} own {unit} after the upgrade of {old!r}"
                    )


def _policy(event: Event) -> str:
    return str(config_of(event)["group.consumer.migration.policy"])
