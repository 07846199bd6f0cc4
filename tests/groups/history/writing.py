"""Random logs of consumer groups in Apache Kafka's format, with the causes of their epoch bumps.

No member changes twice within a batch: that would look like a single change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.groups.history.logs import Batch, Entry

from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, Resolved
from konvene.groups.consumer.log import (
    assignment_record,
    current_record,
    group_record,
    group_tombstones,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_record,
)
from konvene.records.coordinator import Record

TOPICS = ("a", "b", "c", "d")
REGEXES = ("a.*", "b|c", ".+")

Causes = frozenset[tuple[str, str | None]]
"""Causes with their members."""


@dataclass(slots=True)
class Model:
    """The state of a group."""

    name: str
    epoch: int = 1
    assigned: int = 1
    hash: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    regexes: dict[str, frozenset[str]] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    moved_ms: int = -1
    """Time of the first epoch bump since it was last stable; -1 if there was none."""
    since: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def is_stable(self) -> bool:
        return self.epoch == self.assigned and all(
            m.is_reconciled_to(self.assigned) for m in self.members.values()
        )


class Writer:
    """One partition's log. `raised` and `stable` are what readers should infer."""

    def __init__(self, seed: int, groups: int = 3) -> None:
        self.random = Random(seed)
        self.log: list[Batch] = []
        self.raised: dict[tuple[str, int], Causes] = {}
        """By group and offset of the epoch's record."""
        self.stable: dict[tuple[str, int], tuple[int, Causes]] = {}
        """By group and offset of the last member's record: the time of the first bump, and the causes."""
        self._groups = {f"g{i}": Model(f"g{i}") for i in range(groups)}
        self._ids = 0
        self._offset = 0
        self._now_ms = 1_000
        self._batch: list[Entry] = []
        self._touched: set[str] = set()

    def write(self, steps: int) -> None:
        """Log `steps` decisions, sometimes two in one batch."""
        for _ in range(steps):
            self._now_ms += self.random.choice((0, 1, 700))
            group = self._groups[self.random.choice(sorted(self._groups))]
            before = self._offset
            self.random.choice(STEPS)(self, group)
            self._record_if_stable(group, before)
            if self._batch and self.random.random() < 0.8:
                self._end_batch()
            if self.random.random() < 0.1:
                self._end_batch()
                self._put((group.name, "commit"), None)
                self._end_batch()
        self._end_batch()

    # --- the log ---

    def _put(self, key: Any, record: Record | None) -> None:
        self._batch.append(Entry(self._offset, self._now_ms, key, record))
        self._offset += 1

    def _write(self, *records: Record) -> None:
        for record in records:
            self._put(record.key, record)

    def _end_batch(self) -> None:
        if self._batch:
            first, last = self._batch[0].offset, self._batch[-1].offset
            self.log.append(Batch(first, last, tuple(self._batch)))
            self._batch = []
        self._touched.clear()

    def _bump(self, g: Model, *why: tuple[str, str | None]) -> None:
        g.epoch += 1
        self.raised[g.name, self._offset] = frozenset(why)
        self._write(group_record(g.name, g.epoch, g.hash))
        if g.members:
            g.moved_ms = self._now_ms if g.moved_ms < 0 else g.moved_ms
            g.since += why
        else:
            self._write(assignment_record(g.name, g.epoch, 0))
            g.assigned, g.moved_ms = g.epoch, -1
            g.since.clear()

    def _record_if_stable(self, g: Model, before: int) -> None:
        if g.moved_ms >= 0 and g.is_stable and self._offset > before:
            self.stable[g.name, self._offset - 1] = (g.moved_ms, frozenset(g.since))
            g.moved_ms = -1
            g.since.clear()

    # --- decisions ---

    def _any(self, g: Model) -> Member | None:
        free = [g.members[name] for name in sorted(g.members) if name not in self._touched]
        return self.random.choice(free) if free else None

    def _set(self, g: Model, member: Member) -> None:
        self._touched.add(member.member_id)
        g.members[member.member_id] = member
        self._write(member_record(g.name, member))

    def _set_assignment(self, g: Model, member: Member, state: MemberState, epoch: int) -> None:
        current = CurrentAssignment(state, epoch, member.current.epoch)
        g.members[member.member_id] = replace(member, current=current)
        self._write(current_record(g.name, member.member_id, current))

    def _unused(self, g: Model, regex: str) -> None:
        """Remove an expression if no member uses it any more."""
        if regex and regex in g.regexes and all(m.regex != regex for m in g.members.values()):
            del g.regexes[regex]
            self._write(regex_tombstone(g.name, regex))

    def _new(self, instance: str | None, like: Member | None = None) -> Member:
        self._ids += 1
        name = f"m{self._ids}"
        if like is not None:
            return replace(like, member_id=name, current=CurrentAssignment())
        some = frozenset(self.random.sample(TOPICS, self.random.randint(0, 2)))
        regex = self.random.choice(("", *REGEXES)) if not some else ""
        some = some or (frozenset() if regex else frozenset("a"))
        return Member(name, instance, client_id=f"c-{name}", client_host="/h", topics=some, regex=regex)

    def join(self, g: Model) -> None:
        names = {m.instance_id for m in g.members.values()}
        instance = self.random.choice((None, "i1", "i2"))
        member = self._new(None if instance in names else instance)
        self._set(g, member)
        if member.topics or member.regex in g.regexes:
            self._bump(g, ("member-joined", member.member_id))
        else:
            g.waiting[member.member_id] = "member-joined"
        self._set_assignment(g, member, MemberState.STABLE, g.assigned)

    def leave(self, g: Model) -> None:
        member = self._any(g)
        if member is None:
            return
        del g.members[member.member_id]
        g.waiting.pop(member.member_id, None)
        self._write(*member_tombstones(g.name, member.member_id))
        self._unused(g, member.regex)
        self._bump(g, ("member-gone", member.member_id))

    def change_topics(self, g: Model) -> None:
        member = self._any(g)
        if member is None:
            return
        topics = frozenset(self.random.sample(TOPICS, 2))
        if topics == member.topics:
            return
        g.waiting.pop(member.member_id, None)
        self._set(g, replace(member, topics=topics))
        self._bump(g, ("subscription-changed", member.member_id))

    def change_regex(self, g: Model) -> None:
        member = self._any(g)
        regex = self.random.choice(("", *REGEXES))
        if member is None or regex == member.regex:
            return
        g.waiting.pop(member.member_id, None)
        self._set(g, replace(member, regex=regex))
        self._unused(g, member.regex)
        if not regex or regex in g.regexes:
            self._bump(g, ("subscription-changed", member.member_id))
        else:
            g.waiting[member.member_id] = "subscription-changed"

    def change_client_host(self, g: Model) -> None:
        """Change a member's record without an effect on the group."""
        member = self._any(g)
        if member is not None:
            self._set(g, replace(member, client_host=f"/h{self.random.randrange(9)}"))

    def change_assignor(self, g: Model) -> None:
        member = self._any(g)
        if member is None:
            return
        self._set(g, replace(member, assignor="range" if member.assignor != "range" else "uniform"))
        if self.random.random() < 0.5:
            self._bump(g, ("assignor-changed", member.member_id))

    def leave_temporarily(self, g: Model) -> None:
        """Let a static member leave temporarily."""
        member = self._any(g)
        if member is not None and member.instance_id is not None:
            self._set_assignment(g, member, MemberState.STABLE, -2)

    def rejoin(self, g: Model) -> None:
        """Let a static member rejoin, sometimes with another subscription."""
        member = self._any(g)
        if member is None or member.instance_id is None or member.regex:
            return
        back = self._new(member.instance_id, like=member)
        changed = self.random.random() < 0.3
        if changed:
            back = replace(back, topics=back.topics ^ {"z"})
        del g.members[member.member_id]
        self._write(*member_tombstones(g.name, member.member_id))
        self._set(g, back)
        self._write(target_record(g.name, back.member_id, {}))
        if changed:
            self._bump(g, ("subscription-changed", back.member_id))
        self._set_assignment(
            g, back, MemberState.STABLE, g.assigned if member.current.epoch in (-2, g.assigned) else 0
        )

    def refresh(self, g: Model) -> None:
        used = sorted({m.regex for m in g.members.values() if m.regex})
        first = [regex for regex in used if regex not in g.regexes]
        differs = False
        for regex in used:
            topics = frozenset(t for t in TOPICS if self.random.random() < 0.6)
            topics = g.regexes.get(regex, topics) if self.random.random() < 0.6 else topics
            differs |= topics != g.regexes.get(regex, frozenset())
            g.regexes[regex] = topics
            self._write(regex_record(g.name, regex, Resolved(topics, self._now_ms, self._now_ms)))
        waited = [name for name in g.waiting if g.members[name].regex in first]
        if differs:
            why = [(g.waiting[name], name) for name in waited]
            self._bump(g, ("regex-refreshed", None), *why)
        for name in waited:
            del g.waiting[name]

    def change_cluster(self, g: Model) -> None:
        if g.members:
            g.hash += 1
            self._bump(g, ("topic-metadata-changed", None))

    def compute(self, g: Model) -> None:
        if g.epoch > g.assigned and g.members:
            self._write(*(target_record(g.name, name, {}) for name in sorted(g.members)))
            self._write(assignment_record(g.name, g.epoch, self._now_ms))
            g.assigned = g.epoch

    def heartbeat(self, g: Model) -> None:
        behind = [n for n in sorted(g.members) if not g.members[n].is_reconciled_to(g.assigned)]
        if behind:
            state = self.random.choice(
                (MemberState.STABLE, MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS)
            )
            self._set_assignment(g, g.members[self.random.choice(behind)], state, g.assigned)

    def delete(self, g: Model) -> None:
        if not g.members and g.epoch > 1:
            self._write(*group_tombstones(ConsumerGroup(g.name)))
            self._groups[g.name] = Model(g.name)


Step = Callable[[Writer, Model], None]

STEPS: tuple[Step, ...] = (
    Writer.join, Writer.join, Writer.leave, Writer.change_topics, Writer.change_regex,
    Writer.change_client_host,
    Writer.change_assignor, Writer.leave_temporarily, Writer.rejoin, Writer.refresh, Writer.change_cluster,
    Writer.compute, Writer.compute, Writer.compute, Writer.heartbeat, Writer.heartbeat, Writer.heartbeat,
    Writer.heartbeat, Writer.heartbeat, Writer.delete,
)  # fmt: skip
"""The possible events, as often as they are likely."""
