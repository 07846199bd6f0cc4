"""Invariants of groups that move between the classic and the consumer protocol while they run."""

from __future__ import annotations

from typing import Any

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer import log as consumer_log
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.records.commits import OffsetCommitted
from konvene.sim.invariants.consumer.state import units
from konvene.sim.world.event import Event, Invariant

KINDS = ("migration",)

UPGRADES, DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")


class UpgradesKeepMembers(Invariant):
    """MG1: a classic group becomes a consumer group with the members that it has, at its generation, and with
    whoever joined; where the policy and the sizes let it."""

    def after(self, event: Event) -> None:
        for name, old, group in converted(event, ClassicGroup, ConsumerGroup):
            if not old.members:
                continue
            policy = str(event.context.config["group.consumer.migration.policy"])
            assert policy in UPGRADES, f"{name} is upgraded, the policy is {policy}"
            most = event.context.config["group.consumer.max.size"]
            assert len(old.members) <= most, f"{old!r} is upgraded, {most} may be in"
            # By its id or by its name: who knows an id may come in its name, and give it another name.
            gone = [
                member_id
                for member_id, m in old.members.items()
                if member_id not in group.members and group.static_member(m.instance_id) is None
            ]
            assert not gone, f"{old!r} is upgraded without {gone}"
            # Who takes its own place, or reads by an expression that is still looked at, moves nothing.
            moved = group.epoch - max(old.generation, FIRST_EPOCH)
            assert moved in (0, 1), f"{old!r} is upgraded to {group!r}"
            joined = len(group.members.keys() - old.members.keys())
            assert joined <= 1, f"{old!r} is upgraded, {joined} joined at once"


class DowngradesKeepMembers(Invariant):
    """MG4: when the last member of the new protocol is gone, the group is a classic one again, with whoever
    is left and at the group's epoch; nothing of the consumer group is left in the log, and every offset is.

    MG5: it is no larger than a classic group may be."""

    def __init__(self) -> None:
        self.left: dict[str, set[Any]] = {}
        """By group, the keys of consumer records that the log has values for."""

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.left.clear()
            for batch in event.runtime.log.batches:
                self._write(batch.records)
        elif event.batch is not None:
            self._write(event.batch.records)
        if event.is_complete or not event.changed:
            return
        for name, old, group in converted(event, ConsumerGroup, ClassicGroup):
            self._downgraded(event, name, old, group)
        for group in event.after.groups.values():
            if isinstance(group, ConsumerGroup) and event.kind != "completion":
                self._stays(event, group)

    def _write(self, records: Any) -> None:
        for record in records:
            key: Any = getattr(record, "key", None)
            if type(key) in consumer_log.REPLAYS:
                keys = self.left.setdefault(key.group_id, set())
                (keys.discard if record.value is None else keys.add)(key)

    def _downgraded(self, event: Event, name: str, old: ConsumerGroup, group: ClassicGroup) -> None:
        left = self.left.get(name)
        assert not left, f"{group!r} is a classic group, in the log there are {left}"
        for record in event.batch.records if event.batch is not None else ():
            assert type(record) is not OffsetCommitted, f"{name} is downgraded, and an offset is gone"
        if not old.members:
            return
        config = event.context.config if event.context is not None else event.runtime.config
        policy, most = str(config["group.consumer.migration.policy"]), config["group.max.size"]
        assert policy in DOWNGRADES, f"{name} is downgraded, the policy is {policy}"
        assert len(group.members) <= most, f"{old!r} is downgraded, {most} may be in a classic group"
        assert group.members, f"{old!r} is downgraded, and nobody is left"
        assert group.generation >= old.epoch, f"{old!r} is downgraded to {group!r}"
        new = [m for m in old.members.values() if m.classic is None and m.member_id in group.members]
        assert not new, f"{old!r} is downgraded with {new}, who speak the new protocol"

    def _stays(self, event: Event, group: ConsumerGroup) -> None:
        """All who are left speak the classic protocol: where the last other one went just now, why not?"""
        old = event.before.groups.get(group.group_id)
        if not isinstance(old, ConsumerGroup) or not group.members:
            return
        had = any(m.classic is None for m in old.members.values())
        has = any(m.classic is None for m in group.members.values())
        if had and not has:
            config = event.context.config if event.context is not None else event.runtime.config
            open_ = str(config["group.consumer.migration.policy"]) in DOWNGRADES
            fits = len(group.members) <= config["group.max.size"]
            assert not (open_ and fits), (
                f"{group!r}: only classic members are left, and it is no classic group"
            )


class UpgradesKeepOwnership(Invariant):
    """MG1: over a move between the protocols no member is given what another one has."""

    def after(self, event: Event) -> None:
        for name, old, group in converted(event, ClassicGroup, ConsumerGroup):
            owners: dict[Any, str] = {}
            for member in group.members.values():
                for unit in units(member.current.assigned) | units(member.current.pending_revocation):
                    other = owners.setdefault(unit, member.member_id)
                    assert other == member.member_id, (
                        f"{name}: {other}, {member.member_id} own {unit}: {old!r}"
                    )


def converted(event: Event, was: type, becomes: type) -> list[tuple[str, Any, Any]]:
    """The groups that were of one type and are of another."""
    if not event.changed or event.is_complete:
        return []
    return [
        (name, event.before.groups[name], group)
        for name, group in event.after.groups.items()
        if isinstance(group, becomes) and isinstance(event.before.groups.get(name), was)
    ]
